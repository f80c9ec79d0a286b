"""The engine's database, as a Dagster process reaches it: never started here, and waited for when it is away."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import psycopg

from cell_engine.errors import AutofillError
from cell_engine.parts import service_url
from cell_engine.store import schema
from cell_engine.store.database import Connection, connect

T = TypeVar("T")

# Seconds. A wait is cut into slices, so that the termination of a run lands between two of them.
SLICE = 0.4
_LONGEST_PAUSE = 5.0
# From here on an absence is worth a word; Dagster's own storage, usually on the same server, is likely to be away too.
_WORTH_SAYING = 30.0
# Longer than a restart and a crash recovery take; then the run fails, and its retry finds its dispatch again.
_PATIENCE = 600.0


@contextmanager
def engine(application: str, statement_timeout: float) -> Iterator[Connection]:
    """A checked connection to the database of AUTOFILL_DATABASE_URL. `statement_timeout` is seconds.

    Raises psycopg.OperationalError when it cannot be reached, NoDatabaseError and SchemaVersionError.
    """
    with connect(service_url(), application=application, statement_timeout=statement_timeout) as connection:
        schema.check(connection)
        yield connection


class PatientEngine:
    """A connection that survives the server: work is repeated on a new one until it succeeds, so it must be idempotent.

    `say` is told what is waited for, once an absence is long. `away` adds up the seconds of all absences.
    """

    def __init__(self, application: str, statement_timeout: float, say: Callable[[str], None]) -> None:
        self._application = application
        self._statement_timeout = statement_timeout
        self._say = say
        self._connection: Connection | None = None
        self.away = 0.0

    def __call__(self, work: Callable[[Connection], T]) -> T:
        """Raises AutofillError when the server stays away for ten minutes."""
        since: float | None = None
        said = False
        pause = SLICE / 2
        while True:
            try:
                result = work(self._connected())
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                self.close()
                now = time.monotonic()
                since = since if since is not None else now
                if now - since > _PATIENCE:
                    raise AutofillError(
                        f"PostgreSQL could not be used for {_PATIENCE / 60:.0f} minutes: {str(error).strip()}. "
                        "The dispatch goes on when it is back; re-execute this run to wait for it again."
                    ) from error
                if now - since > _WORTH_SAYING and not said:
                    said = True
                    self._say(f"waiting for PostgreSQL: {str(error).strip()}")
                self._sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                if since is not None:
                    self.away += time.monotonic() - since
                return result

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> Connection:
        if self._connection is None:
            connection = connect(
                service_url(), application=self._application, statement_timeout=self._statement_timeout
            )
            self._connection = connection
            schema.check(connection)
        return self._connection

    @staticmethod
    def _sleep(seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(SLICE, left))
