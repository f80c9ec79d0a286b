"""The calls of a preview, as a worker makes them: a few at a time, each in its place at the endpoint and paid for.

It is known as a worker of its own, which claims nothing: so it has its part of the endpoint's limits, and no more.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from uuid import UUID, uuid4

import psycopg

from cell_engine.errors import AutofillError
from cell_engine.kinds.apart import Apart
from cell_engine.kinds.base import PAUSING, RETRYABLE, Answer, Call, Failure, Kind, Outcome
from cell_engine.kinds.registry import make_kinds
from cell_engine.plan import NOT_FOUND, Due
from cell_engine.preview.comparing import Before, Preview, Tried, agree
from cell_engine.preview.preparing import Prepared
from cell_engine.specs.text import Json
from cell_engine.store import previews
from cell_engine.store.budgets import JOB_TYPES, Left, left
from cell_engine.store.claims import WorkerEndedError, beat, goodbye, register
from cell_engine.store.holds import Hold, active
from cell_engine.worker.asker import Asker
from cell_engine.worker.calls import Called, Calls, Order
from cell_engine.worker.holds import FREE, Refused, covers
from cell_engine.worker.link import Link
from cell_engine.worker.outcomes import pause, settled
from cell_engine.worker.providers import Providers

AT_ONCE = 4
LEASE_SECONDS = 30.0
TRIES = 3
"""Of a call that fails for now."""

LONGEST_SECONDS = 300.0
"""A call that finds no room at its endpoint for so long is given up."""


class HeldError(AutofillError):
    """Calls of the column are not made now: held, or not paid for."""


async def run(url: str, prepared: Prepared, *, actor: str) -> Preview:
    """Make the calls. Raises HeldError where none may be made, AdmissionError when a limit refuses it for now, and
    AutofillError where this process cannot compute the column (no key, no such function)."""
    kinds = make_kinds([prepared.column.job_type])
    try:
        kinds[prepared.column.job_type].check(prepared.column)
        async with _worker(url) as (link, worker_id, providers):
            return await _Run(prepared, kinds, link, worker_id, providers).run(actor)
    finally:
        for kind in kinds.values():
            await kind.close()


@asynccontextmanager
async def _worker(url: str) -> AsyncIterator[tuple[Link, UUID, Providers]]:
    worker_id = uuid4()
    link, beats = Link(url, "preview"), Link(url, "preview heartbeat")
    providers = Providers(beats, lambda: worker_id, LEASE_SECONDS, asyncio.Event.set)
    await link.call(
        register, worker_id, host=socket.gethostname(), pid=os.getpid(), job_types=["preview"], lease=LEASE_SECONDS
    )
    tasks = [asyncio.create_task(providers.run()), asyncio.create_task(_beat(beats, worker_id))]
    try:
        yield link, worker_id, providers
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(psycopg.OperationalError):
            await link.call(goodbye, worker_id)
        for one in (link, beats):
            await one.close()


async def _beat(link: Link, worker_id: UUID) -> None:
    while True:
        await asyncio.sleep(LEASE_SECONDS / 3)
        with suppress(psycopg.OperationalError, WorkerEndedError):
            await link.call(beat, worker_id)


def _agrees(before: Before, value: Json, not_found: str | None) -> bool | None:
    was_not_found = before.state == NOT_FOUND
    if (before.value is None and not was_not_found) or (value is None and not_found is None):
        return None
    if was_not_found or not_found is not None:
        return was_not_found == (not_found is not None)
    return agree(before.value, value)


class _Run:
    def __init__(
        self, prepared: Prepared, kinds: dict[str, Kind], link: Link, worker_id: UUID, providers: Providers
    ) -> None:
        self._prepared = prepared
        self._kinds = kinds
        self._link = link
        self._worker_id = worker_id
        self._calls = Calls(kinds, Apart(), Asker(link), providers)
        self._left: list[Left] = []
        self._preview = Preview(0)

    async def run(self, actor: str) -> Preview:
        prepared = self._prepared
        collection_id = prepared.collection.id
        for hold in await self._link.call(active):
            if self._is_held_by(hold):
                raise HeldError(f"no call is made now: {hold.what} is held for {hold.reason}: {hold.message}")
        self._left = await self._link.call(left, [collection_id])
        if (unpaid := self._unpaid()) is not None:
            raise HeldError(unpaid)
        self._preview.dispatch_id = await self._link.call(
            previews.begin, prepared.version, prepared.column.id, len(prepared.calls), actor=actor
        )
        places = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for row_id, due in prepared.calls.items():
                group.create_task(self._try(row_id, due, places))
        order = {row_id: place for place, row_id in enumerate(prepared.calls)}
        self._preview.tried.sort(key=lambda one: order[one.row_id])
        return self._preview

    async def _try(self, row_id: int, due: Due, places: asyncio.Semaphore) -> None:
        async with places:
            for number in range(1, TRIES + 1):
                self._preview.stopped = self._preview.stopped or self._unpaid()
                if self._preview.stopped is not None:
                    return
                outcome = await self._call(row_id, due, number)
                await self._book(row_id, outcome)
                retry = isinstance(outcome, Failure) and outcome.error_class in RETRYABLE and number < TRIES
                if not retry:
                    break
                await asyncio.sleep(pause(number, outcome.retry_after if isinstance(outcome, Failure) else None))
            self._take(row_id, outcome)

    async def _call(self, row_id: int, due: Due, number: int) -> Outcome:
        """The outcome of one call, in line for its place at the endpoint."""
        prepared = self._prepared
        column = prepared.column
        call = Call(
            column=column,
            inputs=due.inputs,
            names=prepared.version.keys,
            collection=prepared.collection.full_name,
            row_id=row_id,
            # never that of a call whose answer goes into a cell
            identity=("preview", self._preview.dispatch_id, row_id, column.id, number),
            deadline=column.timeout,
        )
        kind = self._kinds[column.job_type]
        if (outcome := kind.at_once(call)) is not None:
            return outcome
        until = asyncio.get_running_loop().time() + LONGEST_SECONDS
        while True:
            task = self._calls.start(Order(call, self._worker_id, None, True, False, lambda: FREE))
            if isinstance(task, Refused):
                refused = task
            else:
                await asyncio.wait([task])
                came = settled(task)
                if isinstance(came, Called):
                    return came.outcome
                assert isinstance(came, Refused)
                refused = came
            if asyncio.get_running_loop().time() + refused.seconds > until:
                return Failure("rate_limited", "its endpoint had no room for it in five minutes")
            await asyncio.sleep(refused.seconds)

    async def _book(self, row_id: int, outcome: Outcome) -> None:
        failure = outcome if isinstance(outcome, Failure) else None
        booked = previews.Booked(
            row_id,
            failure.error_class if failure is not None else None,
            (failure.message or failure.error_class) if failure is not None else None,
            outcome.model,
            outcome.tokens_in,
            outcome.tokens_out,
            outcome.tokens_cached,
            outcome.tokens_reasoning,
            outcome.cost,
        )
        prepared = self._prepared
        allowed = await self._link.patiently(
            "a preview's answer waits", None, previews.book, prepared.collection.id, prepared.column.id,
            self._preview.dispatch_id, self._worker_id, booked,
        )  # fmt: skip
        self._preview.cost += outcome.cost or 0
        self._preview.unpriced += outcome.cost is None
        if allowed is not None:
            self._left = allowed

    def _take(self, row_id: int, outcome: Outcome) -> None:
        before = self._prepared.before[row_id]
        value = outcome.value if isinstance(outcome, Answer) else None
        not_found = outcome.not_found if isinstance(outcome, Answer) else None
        failure = outcome if isinstance(outcome, Failure) else None
        self._preview.tried.append(
            Tried(
                row_id,
                before,
                value,
                failure.error_class if failure is not None else None,
                failure.message if failure is not None else None,
                outcome.model,
                outcome.tokens_in,
                outcome.tokens_out,
                outcome.cost,
                _agrees(before, value, not_found),
                not_found,
            )
        )
        if failure is not None and failure.error_class in PAUSING:
            # Every other call would meet the same. The lane is not held: it may be this definition's own trouble.
            self._preview.stopped = self._preview.stopped or f"{failure.error_class}: {failure.message}"

    def _unpaid(self) -> str | None:
        column, collection = self._prepared.column, self._prepared.collection
        if column.job_type not in JOB_TYPES:
            return None
        for one in self._left:
            if (
                one.left <= 0
                and one.dispatch_id is None
                and covers(one, collection.id, collection.full_name, column.id)
            ):
                return f"the {'credit' if one.period == 'credit' else 'budget'} of {one.namespace} is spent"
        return None

    def _is_held_by(self, hold: Hold) -> bool:
        column, collection = self._prepared.column, self._prepared.collection
        return (
            hold.job_type == column.job_type
            and hold.namespace == collection.namespace
            and hold.collection_id in (None, collection.id)
            and hold.column in (None, column.name)
        )
