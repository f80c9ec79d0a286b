"""One of the worker's connections: used by a thread of its own, opened again when it is lost."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Concatenate, ParamSpec, TypeVar

import psycopg

from cell_engine.store.database import Connection, connect

P = ParamSpec("P")
T = TypeVar("T")

STATEMENT_TIMEOUT = 30.0


class Link:
    """Runs store functions on one connection, one at a time, off the event loop.

    A failure is the caller's to handle; the next call finds a working connection if there is one to be had.
    """

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self._name = name
        self._connection: Connection | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"autofill-{name}")

    async def call(self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`function(connection, …)`. Raises psycopg.OperationalError when the server is away or took too long."""
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, lambda: function(self._connected(), *args, **kwargs)
        )

    async def close(self) -> None:
        """Wait for what runs, and disconnect."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown()

    def _connected(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._disconnect()
            self._connection = connect(self._url, application=self._name, statement_timeout=STATEMENT_TIMEOUT)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None
