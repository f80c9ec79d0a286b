"""Asks the cache for the calls of cached columns that are due, in batches: a few milliseconds after the first."""

import asyncio
from dataclasses import dataclass
from uuid import UUID

import psycopg

from cell_engine.store.cache import Ask, Told, ask
from cell_engine.worker.link import Link

ASKS = 500
ASK_SECONDS = 0.005


@dataclass(slots=True)
class _Waiting:
    worker_id: UUID
    ask: Ask
    future: "asyncio.Future[Told]"


class Asker:
    """One batch at a time, on a link of its own. Where no column is cached it does nothing at all."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._waiting: list[_Waiting] = []
        self._batch: asyncio.Task[None] | None = None

    def ask(self, worker_id: UUID, one: Ask) -> "asyncio.Future[Told]":
        """What the cache has to say of a call. Raises psycopg.Error if it cannot be asked at all."""
        future: asyncio.Future[Told] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(worker_id, one, future))
        if self._batch is None:
            self._batch = asyncio.create_task(self._ask_all())
        return future

    def close(self) -> None:
        """Whoever still waits has been given up."""
        if self._batch is not None:
            self._batch.cancel()

    async def _ask_all(self) -> None:
        try:
            await asyncio.sleep(ASK_SECONDS)
            while self._waiting:
                batch, self._waiting = self._waiting[:ASKS], self._waiting[ASKS:]
                # A worker that was ended and started afresh has two ids for a while.
                for worker_id in {one.worker_id for one in batch}:
                    await self._ask_for(worker_id, [one for one in batch if one.worker_id == worker_id])
        finally:
            self._batch = None

    async def _ask_for(self, worker_id: UUID, batch: list[_Waiting]) -> None:
        try:
            # However long the server is away: a call that nobody may know of is not made.
            told = await self._link.patiently("the cache waits", None, ask, worker_id, [one.ask for one in batch])
        except psycopg.Error as error:
            for one in batch:
                if not one.future.done():
                    one.future.set_exception(error)
            return
        for one, answer in zip(batch, told, strict=True):
            if not one.future.done():  # given up meanwhile: its key is free when its visit has ended
                one.future.set_result(answer)
