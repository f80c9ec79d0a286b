"""One of the worker's connections: used by a thread of its own, opened again when it is lost."""

import asyncio
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Concatenate, ParamSpec, TypeVar

import psycopg

from cell_engine.log import get_logger
from cell_engine.store.database import Connection, connect
from cell_engine.worker.watch import Watch

P = ParamSpec("P")
T = TypeVar("T")

STATEMENT_TIMEOUT = 30.0
RETRY_SECONDS = (0.1, 5.0)

log = get_logger(__name__)


class Link:
    """Runs store functions on one connection, one at a time, off the event loop.

    A failure is the caller's to handle; the next call finds a working connection if there is one to be had.
    """

    def __init__(self, url: str, name: str, watch: Watch | None = None) -> None:
        self._url = url
        self._name = name
        self._watch = watch or Watch()
        self._connection: Connection | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"autofill-{name}")

    async def call(self, function: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`function(connection, …)`. Raises psycopg.OperationalError when the server is away or took too long."""
        loop, failed = asyncio.get_running_loop(), None
        began = loop.time()
        try:
            return await loop.run_in_executor(self._thread, lambda: function(self._connected(), *args, **kwargs))
        except Exception as error:
            failed = error
            raise
        finally:
            self._watch.called(getattr(function, "__name__", "other"), loop.time() - began, failed)

    async def patiently(
        self,
        waiting: str,
        failed: Callable[[], object] | None,
        function: Callable[Concatenate[Connection, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """`call`, until the server takes it, however long that is away. What it did before a failure (deadlock,
        time-out, lost connection) is undone, or, if only the answer to its commit was lost, for it to find done.

        `waiting` is what waits, for the log; `failed` is told of each failure.
        """
        wait = RETRY_SECONDS[0]
        while True:
            try:
                return await self.call(function, *args, **kwargs)
            except psycopg.OperationalError as error:
                log.warning(f"{waiting} for the database", error=str(error).strip())
                if failed is not None:
                    failed()
                await asyncio.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311
                wait = min(wait * 2, RETRY_SECONDS[1])

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
