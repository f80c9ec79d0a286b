"""Asks the cache for the calls of cached columns that are due, in batches: a few milliseconds after the first."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

import psycopg

from cell_engine.kinds.base import Answer, Failure, Outcome
from cell_engine.log import get_logger
from cell_engine.store.cache import Ask, Told, ask
from cell_engine.worker.finalizer import RETRY_SECONDS
from cell_engine.worker.link import Link
from cell_engine.worker.outcomes import Awaited, Called, Hit, Settled, outcome_of

ASKS = 500
ASK_SECONDS = 0.005

log = get_logger(__name__)


@dataclass(slots=True)
class _Waiting:
    worker_id: UUID
    ask: Ask
    start: Callable[[], "asyncio.Task[Outcome]"]
    future: "asyncio.Future[Settled]"


class Asker:
    """One batch at a time, on a link of its own. Where no column is cached it does nothing at all."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._waiting: list[_Waiting] = []
        self._batch: asyncio.Task[None] | None = None

    def ask(self, worker_id: UUID, one: Ask, start: Callable[[], "asyncio.Task[Outcome]"]) -> "asyncio.Future[Settled]":
        """What comes of it; `start` makes the call, should it fall to this one. To cancel it cancels the call."""
        future: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(worker_id, one, start, future))
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
            told = await self._patiently(worker_id, [one.ask for one in batch])
        except psycopg.Error as error:
            for one in batch:
                if not one.future.done():
                    one.future.set_exception(error)
            return
        for one, answer in zip(batch, told, strict=True):
            _settle(one, answer)

    async def _patiently(self, worker_id: UUID, asks: list[Ask]) -> list[Told]:
        """However long the server is away: a call that nobody may know of is not made."""
        wait = RETRY_SECONDS[0]
        while True:
            try:
                return await self._link.call(ask, worker_id, asks)
            except psycopg.OperationalError as error:
                log.warning("the cache waits for the database", error=str(error).strip())
                await asyncio.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311
                wait = min(wait * 2, RETRY_SECONDS[1])


def _settle(one: _Waiting, told: Told) -> None:
    future = one.future
    if future.done():  # given up meanwhile, as is its visit: so the key is free
        return
    if told.state == "hit":
        future.set_result(Hit(told.value, told.signal, told.model, told.tokens_in, told.tokens_out))
    elif told.state == "wait":
        future.set_result(Awaited())
    else:
        task = one.start()

        def ended(task: "asyncio.Task[Outcome]") -> None:
            if not future.done():
                outcome = outcome_of(task)
                assert isinstance(outcome, Answer | Failure)
                future.set_result(Called(outcome, told.signal))

        def given_up(future: "asyncio.Future[Settled]") -> None:
            if future.cancelled():
                task.cancel()

        # the call goes with what asked for it, and its end with the call's
        task.add_done_callback(ended)
        future.add_done_callback(given_up)
