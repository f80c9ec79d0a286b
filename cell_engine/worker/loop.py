"""The worker's loops: claim and top up, poll for news, beat; and how it starts and stops."""

import asyncio
import gc
import os
import random
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from uuid import UUID, uuid4

import psycopg

from cell_engine.kinds.apart import Apart
from cell_engine.kinds.registry import make_kinds
from cell_engine.log import get_logger
from cell_engine.shares import ProviderKey
from cell_engine.specs.version import Version
from cell_engine.store import schema
from cell_engine.store.budgets import Left
from cell_engine.store.claims import (
    Claimed,
    Reading,
    RowKey,
    Token,
    WorkerEndedError,
    beat,
    claim,
    dirty,
    goodbye,
    mark,
    register,
    widen,
)
from cell_engine.store.collections import collection_name, load_version
from cell_engine.store.database import Connection
from cell_engine.store.results import Release, Result, end_dispatches
from cell_engine.worker.asker import Asker
from cell_engine.worker.calls import Calls
from cell_engine.worker.checking import start_checking
from cell_engine.worker.finalizer import Answered, Entry, Finalizer, Submitter
from cell_engine.worker.holds import Holds
from cell_engine.worker.link import Link
from cell_engine.worker.meter import Meter
from cell_engine.worker.providers import Providers
from cell_engine.worker.rest import STORM_SECONDS
from cell_engine.worker.visit import Visit
from cell_engine.worker.watch import Load, Watch

CLAIM_ROWS = 500
ADVANCE_VISITS = 50
POLL_SECONDS = 0.1
AGAIN_SECONDS = 0.02
DEAR_SECONDS = 0.03
"""Of a claim that brought little; after it as long a rest."""

MARK_SECONDS = 0.5
"""Calls that have run this long are shown as computing; shorter ones cost no write."""

RECOVER_SECONDS = 1.0
EDIT_RESERVE = 0.05
"""The share of its slots that a worker keeps from sweeps, so that an edit never waits a whole model call for one."""

log = get_logger(__name__)


async def run_worker(
    url: str,
    *,
    job_types: Sequence[str] | None = None,
    slots: int = 500,
    lease: float = 30.0,
    grace: float = 60.0,
    watch: Watch | None = None,
    stop: asyncio.Event,
) -> None:
    """Work on the queue at `url` until `stop` is set; then finish or hand back within `grace` seconds.

    `job_types` is the pool it serves (None: all of them), `slots` the calls it has in flight at most, `lease` the
    seconds without a sign of life after which its rows are given to others. `watch` is told how it fares. Raises
    NotFoundError for an unknown job type and SchemaVersionError for a database that this code cannot work with.
    """
    # Visits are thousands of small objects without cycles, dead within milliseconds. To search them for cycles as often
    # as Python does by itself takes 30 of a cell's 120 µs, and every 20,000 objects, while most of these still live, 2.
    gc.freeze()
    gc.set_threshold(100_000, 10, 10)
    worker = Worker(url, job_types, slots, lease, watch)
    await worker.start()
    start_checking(url, worker.kinds)
    asked = asyncio.create_task(stop.wait())
    try:
        # A loop that ends by itself is a fault. Better to hand back and be restarted than to live on, idle or deaf.
        ended, _ = await asyncio.wait([asked, *worker.loops], return_when=asyncio.FIRST_COMPLETED)
    finally:
        asked.cancel()
        await worker.stop(grace)
    for task in ended - {asked}:
        task.result()


class Worker:
    """The parts of one worker. Its id is fresh at every start, and again if the janitor ends it."""

    def __init__(
        self, url: str, job_types: Sequence[str] | None, slots: int, lease: float, watch: Watch | None = None
    ) -> None:
        self.kinds = make_kinds(job_types)
        self.apart = Apart()
        self._job_types = list(self.kinds)
        self._slots = slots
        self._lease = lease
        self._id = UUID(int=0)
        self._claims = 0
        self._watch = watch = watch or Watch(lease)
        self._claim_link = Link(url, "worker claim", watch)
        self._flush_link = Link(url, "worker finalize", watch)
        self._beat_link = Link(url, "worker heartbeat", watch)
        self._cache_link = Link(url, "worker cache", watch)
        self._finalizer = Finalizer(self._flush_link, self)
        self._asker = Asker(self._cache_link)
        self.meter = Meter(self._beat_link, lambda: self._names)
        self.holds = Holds(self._beat_link, lambda: self._id, self._job_types)
        self._providers = Providers(self._beat_link, lambda: self._id, lease, asyncio.Event.set)
        self.calls = Calls(self.kinds, self.apart, self._asker, self._providers, watch)
        self._visits: dict[tuple[RowKey, int], Visit] = {}
        self._leaving = 0  # visits whose release is on its way to the database
        self._emptied = asyncio.Event()
        self._ready: list[Visit] = []
        self._giving_up: set[asyncio.Task[None]] = set()
        self._versions: dict[tuple[int, int], Version] = {}
        self._names: dict[int, str] = {}
        self._endpoints: dict[tuple[int, str], set[ProviderKey]] = {}  # by lane
        self._wanting: list[Visit] = []
        self._marked: dict[tuple[RowKey, int], tuple[int, ...]] = {}
        self._freed = asyncio.Event()
        self._looking = False
        self._stopping = False
        self.loops: list[asyncio.Task[None]] = []
        watch.load = self._load

    async def start(self) -> None:
        await self._claim_link.call(schema.check)
        await self._register()
        with suppress(psycopg.OperationalError):  # its loop asks again; claims leave out what is held in any case
            await self.holds.refresh()
        # `stop` ends the first by asking it, the last when all is stored, those between when there is nothing left.
        between = (self._news_loop(), self._beat_loop(), self.holds.run(), self.meter.run(), self._providers.run())
        loops = (self._claim_loop(), *between, self._watch.run(), self._finalizer.run())
        self.loops = [asyncio.create_task(loop) for loop in loops]

    async def stop(self, grace: float) -> None:
        """Claim no more; let visits finish for `grace` seconds, hand the others back, and beat until all is stored."""
        self._stopping = True
        self._watch.drain()
        self._freed.set()
        claim_loop, *others, finalize_loop = self.loops
        await asyncio.wait([claim_loop])
        self._emptied.clear()
        if self._visits:
            with suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await self._emptied.wait()
        with suppress(psycopg.OperationalError):
            await self._mark(0.0)  # what is given up now was interrupted, and is recorded as that
        if not finalize_loop.done():
            await asyncio.gather(
                *self._giving_up, *(visit.give_up("hand_back") for visit in list(self._visits.values()))
            )
            self._finalizer.close()
            await asyncio.wait([finalize_loop])
        for loop in others:
            loop.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        with suppress(psycopg.OperationalError):
            await self._beat_link.call(goodbye, self._id)
        for kind in self.kinds.values():
            await kind.close()
        self._asker.close()
        for link in (self._claim_link, self._flush_link, self._beat_link, self._cache_link):
            await link.close()

    # ---- what visits need

    def version(self, collection_id: int, number: int) -> Version:
        return self._versions[collection_id, number]

    def submit(
        self, visit: Visit, results: list[Result], release: Release | None = None, *, reread: bool = False
    ) -> None:
        self._finalizer.submit(Entry(visit, visit.reading.token.worker_id, results, release, reread))
        if release is not None:
            self._leaving += 1
            self._look_for_room()

    def advance_soon(self, visit: Visit) -> None:
        self._ready.append(visit)
        if len(self._ready) == 1:
            asyncio.get_running_loop().call_soon(self._advance_ready)

    def forget(self, visit: Visit) -> None:
        self._visits.pop(visit.identity, None)
        self._marked.pop(visit.identity, None)
        self._look_for_room()
        if not self._visits:
            self._emptied.set()

    def want_slot(self, visit: Visit) -> None:
        self._wanting.append(visit)
        self._freed.set()

    def _look_for_room(self) -> None:
        """Once for all that comes free in this turn of the event loop."""
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._looking = False
        if self._has_room():
            self._freed.set()

    def _has_room(self) -> bool:
        # A claim costs much the same whatever it brings: where hardly anything waits for calls, or a full batch to be
        # stored, more slots come free within milliseconds, and it brings more.
        calling = len(self._visits) - self._leaving - len(self._ready)
        soon = calling < self._slots / 10 or self._leaving >= self._slots / 2
        return self._room() >= self._slots * (0.75 if soon else 0.1)

    def _room(self) -> int:
        """Slots for visits to come. One that only waits for its release to be stored makes no call any more, and the
        next are claimed meanwhile; but no more than three times as many as have slots are held in all."""
        return min(self._slots - (len(self._visits) - self._leaving), 3 * self._slots - len(self._visits))

    # ---- what the finalizer needs

    def visits_open(self) -> int:
        return len(self._visits)

    def deliver(self, entry: Entry, outcome: Answered | psycopg.Error) -> None:
        if entry.release is not None:
            self._leaving -= 1
        if isinstance(outcome, psycopg.Error):
            self._break_off(entry.visit, outcome)
            return
        try:
            entry.visit.stored(entry, outcome)
        except Exception as error:  # noqa: BLE001 (one row's trouble is never the others')
            self._break_off(entry.visit, error)

    def metered(self, results: list[Result], limits: list[Left] | None) -> None:
        self.meter.stored(results, self._names.__getitem__, limits)
        self._watch.stored(results, self.version)

    async def learn(self, reading: Reading, link: Link) -> None:
        while True:
            try:
                await self._know((reading.key.collection_id, reading.version), link)
                return
            except psycopg.OperationalError as error:
                log.warning("a version waits for the database", error=str(error).strip())
                await asyncio.sleep(RECOVER_SECONDS * random.uniform(0.5, 1.0))  # noqa: S311

    # ---- visits

    def _advance_ready(self) -> None:
        # Not all in one go: calls that answer at once take the loop's time, and a beat must not wait for hundreds.
        ready, self._ready = self._ready[:ADVANCE_VISITS], self._ready[ADVANCE_VISITS:]
        if self._ready:
            asyncio.get_running_loop().call_soon(self._advance_ready)
        for visit in ready:
            self._advance(visit)

    def _advance(self, visit: Visit) -> None:
        try:
            visit.advance()
        except Exception as error:  # noqa: BLE001 (one row's trouble is never the others')
            self._break_off(visit, error)

    def _break_off(self, visit: Submitter, error: Exception) -> None:
        log.error("a visit failed", row=visit.reading.key.row_id, error=repr(error))
        task = asyncio.create_task(visit.give_up("defer", STORM_SECONDS))
        self._giving_up.add(task)
        task.add_done_callback(self._giving_up.discard)

    # ---- the loops

    async def _claim_loop(self) -> None:
        while not self._stopping:
            self._freed.clear()  # before the claim: what comes free during it is for the next
            pause = random.uniform(0.75, 1.25)  # noqa: S311
            try:
                if self._finalizer.is_unsure(self._id):
                    await self._recover(None)
                await self._widen()
                pause *= await self._top_up()
            except WorkerEndedError:
                log.warning("this worker was taken for dead and starts afresh", worker=str(self._id))
                with suppress(psycopg.OperationalError):
                    await self._register()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._freed.wait()
                    # What came free while the last claim was made may be taken by what it brought.
                    while not (self._stopping or self._wanting or self._has_room()):
                        self._freed.clear()
                        await self._freed.wait()

    async def _top_up(self) -> float:
        """Claim what there is room for; returns the seconds after which it is worth trying again."""
        widened = sum(visit.slots - 1 for visit in self._visits.values())
        room = self._room() - widened
        free = min(room, CLAIM_ROWS)
        if free <= 0:
            return POLL_SECONDS
        reserve = max(1, int(self._slots * EDIT_RESERVE)) if self._slots > 1 else 0
        sweep_slots = max(0, min(room - reserve, CLAIM_ROWS))
        self._claims += 1
        token = Token(self._id, self._claims)
        began = asyncio.get_running_loop().time()
        freed = self._finalizer.take_freed(self._id)
        try:
            claimed = await self._claim_link.call(
                _claim, token, self._job_types, free, sweep_slots, freed, self._bounds()
            )
            for which in {(one.key.collection_id, one.version) for one in claimed.visits} - self._versions.keys():
                await self._know(which, self._claim_link)
        except psycopg.Error as error:
            log.warning("cannot claim", error=str(error).strip())
            await self._recover(token.claim)
            return RECOVER_SECONDS
        self._watch.claimed += len(claimed.visits)
        for reading in claimed.visits:
            visit = Visit(self, reading, self._names[reading.key.collection_id])
            self._visits[visit.identity] = visit
            self.advance_soon(visit)
        took = asyncio.get_running_loop().time() - began
        if took > DEAR_SECONDS and len(claimed.visits) < CLAIM_ROWS / 2:
            # Over a thousand lanes a claim costs the same whatever it brings: let it bring more.
            await asyncio.sleep(min(POLL_SECONDS, took))
        if claimed.goes_on:
            return AGAIN_SECONDS
        # A full claim means that there is more; a partial one, that lanes ran dry or caps are full.
        return 0.002 if len(claimed.visits) >= free and self._has_room() else POLL_SECONDS

    def _bounds(self) -> dict[tuple[int, str], int]:
        """Rows worth claiming, of lanes whose endpoints can take only some soon: other workers may have room, and here
        they would keep slots from lanes that can go on. A lane with nothing here gets one: it may be an edit."""
        bounds: dict[tuple[int, str], int] = {}
        for lane, keys in self._endpoints.items():
            rows = self._providers.ahead(keys)
            if rows is not None:
                bounds[lane] = max(0, rows)
            if rows == 0 and not any(
                (one.reading.key.collection_id, one.reading.job_type) == lane for one in self._visits.values()
            ):
                bounds[lane] = 1
        return bounds

    async def _widen(self) -> None:
        """More slots for visits of edits that could call more side by side; who gets none now asks again."""
        asking = {
            visit.identity: visit
            for visit in self._wanting
            if visit.wants_slot and visit.identity in self._visits and visit.reading.token.worker_id == self._id
        }
        self._wanting = list(asking.values())
        if not asking:
            return
        try:
            for identity in await self._claim_link.call(widen, self._id, list(asking)):
                asking[identity].give_slot()
        except psycopg.Error as error:
            log.warning("cannot widen visits", error=str(error).strip())
            await self._recover(None)

    async def _recover(self, claim_number: int | None) -> None:
        """After slots were asked for in vain; until that is put right nothing more is claimed."""
        while not self._stopping:
            try:
                await self._finalizer.recover(self._id, claim_number)
                return
            except psycopg.Error as error:
                log.warning("cannot recover a claim", error=str(error).strip())
                await asyncio.sleep(RECOVER_SECONDS * random.uniform(0.5, 1.0))  # noqa: S311

    async def _news_loop(self) -> None:
        while True:
            await asyncio.sleep(POLL_SECONDS * random.uniform(0.75, 1.25))  # noqa: S311
            if not self._visits:
                continue
            try:
                for identity in await self._beat_link.call(dirty, self._id):
                    if identity in self._visits:
                        self._visits[identity].tell_news()
                await self._mark(MARK_SECONDS)
            except psycopg.OperationalError as error:
                log.info("cannot poll", error=str(error).strip())

    async def _mark(self, seconds: float) -> None:
        now = asyncio.get_running_loop().time()
        calling = {}
        for identity, visit in self._visits.items():
            if not visit.calling and (not self._marked or identity not in self._marked):
                continue
            columns = tuple(id for id, one in visit.calling.items() if now - one.started >= seconds)
            if columns != self._marked.get(identity, ()):
                calling[identity] = columns
        await self._beat_link.call(mark, self._id, calling)
        self._marked.update(calling)

    async def _beat_loop(self) -> None:
        while True:
            await asyncio.sleep(self._lease / 3)
            with suppress(psycopg.OperationalError, WorkerEndedError):
                # One that was ended learns it from its next claim; till then its answers lose, and are booked.
                await self._beat_link.call(beat, self._id)

    # ---- small things

    def _load(self) -> Load:
        # From another thread: a list of a dict's values is taken in one go.
        calls = sum(len(visit.calling) for visit in list(self._visits.values()))
        return Load(self._slots, len(self._visits), calls, self._providers.endpoints())

    async def _register(self) -> None:
        self._id = uuid4()
        await self._claim_link.call(
            register,
            self._id,
            host=socket.gethostname(),
            pid=os.getpid(),
            job_types=self._job_types,
            lease=self._lease,
        )

    async def _know(self, which: tuple[int, int], link: Link) -> None:
        """The version of a collection, by its id and number."""
        if which not in self._versions:
            version, name = await link.call(_load, *which)
            self._versions[which] = version
            endpoints: dict[tuple[int, str], set[ProviderKey]] = {}
            for column in version.computed:
                kind = self.kinds.get(column.job_type)
                key = None if kind is None else kind.provider(column)
                if key is not None:
                    endpoints.setdefault((which[0], column.job_type), set()).add(key)
            self._endpoints |= endpoints
            self._names[which[0]] = name


def _claim(
    connection: Connection,
    token: Token,
    job_types: Sequence[str],
    slots: int,
    sweep_slots: int,
    freed: Mapping[int, int],
    bounds: Mapping[tuple[int, str], int],
) -> Claimed:
    claimed = claim(connection, token, job_types, slots, sweep_slots, freed, bounds)
    if claimed.swept:
        end_dispatches(connection, claimed.swept)
    return claimed


def _load(connection: Connection, collection_id: int, number: int) -> tuple[Version, str]:
    return load_version(connection, collection_id, number), collection_name(connection, collection_id)
