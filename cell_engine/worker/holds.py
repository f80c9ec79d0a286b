"""What this worker must not call for now, and the one call that sees whether it may again.

Every cell of a lane without quota, or with a bad key, would meet the same. The first that does holds the lane: here at
once, in the database within milliseconds, at the other workers within a second. Its rows wait; no attempt is counted.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol
from uuid import UUID

import psycopg

from cell_engine.kinds.base import Failure
from cell_engine.log import get_logger
from cell_engine.specs.version import Column
from cell_engine.store.database import Connection
from cell_engine.store.holds import Held, Trip, lift, look, place
from cell_engine.worker.link import Link

LOOK_SECONDS = 1.0
LANE_SECONDS = (2.0, 3.0)
"""A row whose lane is held leaves it for so long: by then no worker claims from it."""

COLUMN_SECONDS = (20.0, 30.0)
"""A row whose column is held comes again after so long: the rest of its lane goes on."""

PROBE_SECONDS = 50.0
"""A call that may be made to see whether a hold is over starts within so long; others may after a minute."""

FREE = 0

log = get_logger(__name__)


class Refused(NamedTuple):
    """Not now; perhaps in so many seconds."""

    seconds: float


class Holds:
    """Asked before each call, told after those that matter."""

    def __init__(self, link: Link, worker_id: Callable[[], UUID], job_types: Sequence[str]) -> None:
        self._link = link
        self._worker_id = worker_id
        self._job_types = job_types
        self._held: list[Held] = []
        self._probes: dict[int, float] = {}  # holds that one call may try, and until when
        self._trips: deque[Trip] = deque()
        self._proved: deque[int] = deque()
        self._told = asyncio.Event()

    def admit(self, collection_id: int, collection: str, column: Column) -> int | Refused:
        """Whether the column may be called now: FREE, or the hold that the call is to probe. `collection` is
        "namespace/name"."""
        if not self._held and not self._trips:
            return FREE
        for trip in self._trips:
            if _trips(trip, collection_id, column):
                return refused(trip.column_id)
        admitted = FREE
        for held in self._held:
            if held.job_type == column.job_type and covers(held, collection_id, collection, column.id):
                if self._probes.get(held.id, 0.0) < asyncio.get_running_loop().time():
                    return refused(held.column_id)
                admitted = held.id
        self._probes.pop(admitted, None)
        return admitted

    def trip(self, collection_id: int, column: Column, failure: Failure, probed: int) -> Refused:
        """A call met quota, auth or a missing model: nothing more of the kind is called until that is put right.

        A missing model is its column's own trouble, and so is an account that the column names itself; the account that
        all share is the whole lane's.
        """
        is_own = failure.error_class == "model_missing" or bool(column.settings.keys() & {"base_url", "key"})
        of_column = column.id if is_own else None
        self._trips.append(
            Trip(
                collection_id,
                column.job_type,
                of_column,
                failure.error_class,
                failure.message,
                failure.retry_after,
                probed or None,
            )
        )
        self._told.set()
        return refused(of_column)

    def prove(self, probed: int) -> None:
        """The call that was to probe a hold came through: the reason is gone."""
        self._proved.append(probed)
        self._held = [held for held in self._held if held.id != probed]
        self._told.set()

    async def run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS * random.uniform(0.75, 1.0)):  # noqa: S311
                    await self._told.wait()
            self._told.clear()
            try:
                await self.refresh()
            except psycopg.OperationalError as error:
                log.info("cannot look for holds", error=str(error).strip())
                await asyncio.sleep(LOOK_SECONDS)

    async def refresh(self) -> None:
        """Tell the database what was met here, and hear what is held."""
        trips, proved = list(self._trips), list(self._proved)
        held = await self._link.call(_exchange, self._worker_id(), self._job_types, _once(trips), proved)
        self._held = held
        until = asyncio.get_running_loop().time() + PROBE_SECONDS
        self._probes.update({one.id: until for one in held if one.is_probe})
        for _ in trips:
            self._trips.popleft()
        for _ in proved:
            self._proved.popleft()


def refused(column_id: int | None) -> Refused:
    return Refused(random.uniform(*(LANE_SECONDS if column_id is None else COLUMN_SECONDS)))  # noqa: S311


def _exchange(
    connection: Connection, worker_id: UUID, job_types: Sequence[str], trips: Sequence[Trip], proved: Sequence[int]
) -> list[Held]:
    if proved and lift(connection, proved, "a call that came through"):
        log.info("calls are made again", holds=list(proved))
    for trip in trips:
        if place(connection, trip):
            log.error(
                "calls are held until this is put right",
                collection_id=trip.collection_id,
                job_type=trip.job_type,
                reason=trip.reason,
                message=trip.message,
            )
    return look(connection, worker_id, job_types)


def _once(trips: Sequence[Trip]) -> list[Trip]:
    """One of each lane, the probe's first: hundreds in flight meet the same."""
    first: dict[tuple[int, str, int | None], Trip] = {}
    for trip in trips:
        key = (trip.collection_id, trip.job_type, trip.column_id)
        if key not in first or trip.probed is not None:
            first[key] = trip
    return list(first.values())


def _trips(trip: Trip, collection_id: int, column: Column) -> bool:
    return (
        trip.collection_id == collection_id and trip.job_type == column.job_type and trip.column_id in (None, column.id)
    )


class Scope(Protocol):
    """What a hold or a budget is of: a namespace; in it all collections, or one; in that all columns, or one."""

    @property
    def namespace(self) -> str: ...

    @property
    def collection_id(self) -> int | None: ...

    @property
    def column_id(self) -> int | None: ...


def covers(scope: Scope, collection_id: int, collection: str, column_id: int) -> bool:
    """Whether a column is in it; `collection` is "namespace/name"."""
    return (
        scope.collection_id in (None, collection_id)
        and scope.column_id in (None, column_id)
        and scope.namespace == collection.partition("/")[0]
    )
