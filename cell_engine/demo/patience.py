"""Watching through an absence of the database: somebody may kill it while the demo runs, and it comes back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import psycopg

from cell_engine.parts import open_store
from cell_engine.store.database import Connection

T = TypeVar("T")

_PAUSE_SECONDS = 0.5
_PATIENCE = 120.0


class PatientStore:
    """A connection to the database at `url` for reads, which are repeated on a new one when that breaks.

    `pause` lets time pass. What has kept failing for two minutes is raised: psycopg.OperationalError, InterfaceError.
    """

    def __init__(self, url: str, application: str, pause: Callable[[float], None]) -> None:
        self._url = url
        self._application = application
        self._pause = pause
        self._connection: Connection | None = None

    def __call__(self, read: Callable[[Connection], T]) -> T:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                if self._connection is None:
                    self._connection = open_store(self._application, self._url)
                return read(self._connection)
            except (psycopg.OperationalError, psycopg.InterfaceError):
                self.close()
                if time.monotonic() > deadline:
                    raise
                self._pause(_PAUSE_SECONDS)

    def __enter__(self) -> PatientStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
