"""Stores what visits bring, in durable batches: by size, or a few milliseconds after the first.

An answer has been paid for. So a batch is tried until the server takes it, however long that is away; and one that the
server will not have (a value it cannot store) is split until the one at fault is alone.
"""

import asyncio
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Protocol
from uuid import UUID

import psycopg

from cell_engine.log import get_logger
from cell_engine.store.budgets import Left
from cell_engine.store.cache import wake
from cell_engine.store.claims import Reading, RowKey, recover, reread
from cell_engine.store.results import Ending, Release, Released, Result, Stored, end_dispatches, flush
from cell_engine.worker.link import Link

FLUSH_ENTRIES = 500
"""For more than so many no batch waits. It takes up to twice as many, or what has come meanwhile would be a small batch
of its own, which costs a commit as well."""

FLUSH_SECONDS = 0.02
_WAITING = "answers wait"

log = get_logger(__name__)


@dataclass(slots=True)
class Answered:
    """What became of an entry: its results in order, its release, and the reading that was asked for (None: lost)."""

    stored: list[Stored] = field(default_factory=list)
    released: Released | None = None
    reading: Reading | None = None


class Submitter(Protocol):
    """Who submits: what it is known by, and how it is told. It submits one thing at a time, so it is told in order."""

    identity: tuple[RowKey, int]

    @property
    def reading(self) -> Reading: ...

    async def give_up(self, ending: Ending, seconds: float | None = None) -> None: ...

    def stored(self, entry: "Entry", answer: Answered) -> None: ...


@dataclass(slots=True)
class Entry:
    """What one visit submits at once. `reread` asks for a reading that holds whatever was stored before it."""

    visit: Submitter
    worker_id: UUID
    results: list[Result]
    release: Release | None
    reread: bool


class Host(Protocol):
    """What the finalizer needs of its worker."""

    def visits_open(self) -> int:
        """How many visits may still submit something."""

    async def learn(self, reading: Reading, link: Link) -> None:
        """Know the version that a reading is to be planned with, however long the server is away."""

    def metered(self, results: list[Result], limits: list[Left] | None) -> None:
        """What became of budgets, before anybody goes on with what was stored."""

    def deliver(self, entry: Entry, outcome: Answered | psycopg.Error) -> None: ...


class Finalizer:
    """The one writer of a worker's answers, so that what a visit stores and what it reads afterwards are in order."""

    def __init__(self, link: Link, host: Host) -> None:
        self._link = link
        self._host = host
        self._freed: dict[UUID, Counter[int]] = {}
        self._unsure: set[UUID] = set()
        self._numbers = count(1)
        self._entries: deque[Entry] = deque()
        self._arrived = asyncio.Event()
        self._closing = False

    def submit(self, entry: Entry) -> None:
        """Store a visit's results, then its release, in one transaction; its worker delivers when it has committed."""
        self._entries.append(entry)
        if not self._arrived.is_set() and (len(self._entries) == 1 or self._is_batch()):
            self._arrived.set()

    def _is_batch(self) -> bool:
        """Whether there is nothing to wait for: a full batch, or all that there can be."""
        return len(self._entries) >= min(FLUSH_ENTRIES, self._host.visits_open())

    def take_freed(self, worker_id: UUID) -> Counter[int]:
        """The slots, by collection id, that have come free since the last call: the next claim gives them back."""
        return self._freed.pop(worker_id, Counter())

    def is_unsure(self, worker_id: UUID) -> bool:
        """Whether a batch may have been stored without our learning of it, and so of the slots it freed: `recover`."""
        return worker_id in self._unsure

    async def recover(self, worker_id: UUID, claim_number: int | None) -> None:
        """`recover` of the store, in order with what is flushed, so that no slot is counted twice or not at all."""
        self._unsure.discard(worker_id)
        try:
            await self._link.call(recover, worker_id, claim_number)
        except psycopg.Error:
            self._unsure.add(worker_id)
            raise
        self._freed.pop(worker_id, None)

    def close(self) -> None:
        """`run` returns when everything submitted so far is stored."""
        self._closing = True
        self._arrived.set()

    async def run(self) -> None:
        while self._entries or not self._closing:
            await self._arrived.wait()
            self._arrived.clear()
            if not self._is_batch() and not self._closing:
                with suppress(TimeoutError):
                    async with asyncio.timeout(FLUSH_SECONDS):
                        await self._arrived.wait()
                self._arrived.clear()
            batch = [self._entries.popleft() for _ in range(min(2 * FLUSH_ENTRIES, len(self._entries)))]
            if self._entries or self._closing:
                self._arrived.set()
            # A worker that was ended and started afresh has two ids for a while.
            for worker_id in {entry.worker_id for entry in batch}:
                await self._store(worker_id, [entry for entry in batch if entry.worker_id == worker_id])

    async def _store(self, worker_id: UUID, entries: list[Entry]) -> None:
        results = [result for entry in entries for result in entry.results]
        releases = [entry.release for entry in entries if entry.release is not None]
        try:
            number = next(self._numbers)
            unsure = partial(self._unsure.add, worker_id)
            flushed = await self._link.patiently(_WAITING, unsure, flush, worker_id, results, releases, number)
        except psycopg.Error as error:
            await self._split(worker_id, entries, error)
            return
        self._freed.setdefault(worker_id, Counter()).update(flushed.freed)
        self._host.metered(results, flushed.left)
        if flushed.ended:
            with suppress(psycopg.OperationalError):  # who is not woken comes by itself
                await self._link.call(wake, flushed.ended)
        if flushed.dispatches:
            with suppress(psycopg.OperationalError):  # the janitor ends them, too
                await self._link.call(end_dispatches, list(flushed.dispatches))
        # Apart from the flush: were it tried again for the reading's sake, everything would be stored twice.
        wanted = [entry.visit.identity for entry in entries if entry.reread]
        found = await self._link.patiently(_WAITING, None, reread, worker_id, wanted) if wanted else []
        readings = {(one.key, one.token.claim): one for one in found}
        stored, released = iter(flushed.stored), iter(flushed.released)
        for reading in (*found, *(one.reading for one in flushed.released if one.reading is not None)):
            await self._host.learn(reading, self._link)
        for entry in entries:
            answer = Answered(
                [next(stored) for _ in entry.results],
                next(released) if entry.release is not None else None,
                readings.get(entry.visit.identity) if entry.reread else None,
            )
            self._host.deliver(entry, answer)

    async def _split(self, worker_id: UUID, entries: list[Entry], error: psycopg.Error) -> None:
        if len(entries) > 1:
            middle = len(entries) // 2
            await self._store(worker_id, entries[:middle])
            await self._store(worker_id, entries[middle:])
            return
        (entry,) = entries
        if not any(result.value is not None for result in entry.results):
            self._host.deliver(entry, error)
            return
        log.warning("the database cannot store an answer", row=entry.results[0].key.row_id, error=str(error).strip())
        reason = f"the database cannot store the answer: {str(error).splitlines()[0]}"
        entry.results = [
            result
            if result.value is None
            else replace(result, value=None, details=None, error_class="schema", error=reason)
            for result in entry.results
        ]
        await self._store(worker_id, entries)
