"""What this worker knows of the budgets: no call is started that they would not pay for.

Asked before each call. Told of each answer as it comes, before it is stored: what is in flight when a budget is reached
is all that is spent beyond it, and not also what starts while the answer that reached it is on its way to the database.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

import psycopg

from cell_engine.log import get_logger
from cell_engine.specs.version import Column
from cell_engine.store.budgets import JOB_TYPES, Left, left
from cell_engine.store.results import Result
from cell_engine.worker.holds import covers
from cell_engine.worker.link import Link

LOOK_SECONDS = 1.0
"""What other workers spend, and what people allow, is heard of within so long."""

log = get_logger(__name__)


class Meter:
    def __init__(self, link: Link, collections: Callable[[], Collection[int]]) -> None:
        """`collections` are those that the worker has come across."""
        self._link = link
        self._collections = collections
        self._limits: dict[tuple[int | None, int | None], Left] = {}
        self._unstored: Counter[tuple[int | None, int | None]] = Counter()
        self._heard = 0  # how often a flush has told; a look that began before is older than what is known

    def admits(self, collection_id: int, collection: str, column: Column, dispatches: Iterable[int]) -> Left | None:
        """The budget that does not pay for a call any more, None if all do. `dispatches` are all that want the row:
        it goes on for any of them that pays. `collection` is "namespace/name"."""
        if not self._limits or column.job_type not in JOB_TYPES:
            return None
        unpaid = None
        capped: set[int] = set()
        for key, one in self._limits.items():
            if one.left - self._unstored[key] > 0:
                continue
            if one.dispatch_id is not None:
                capped.add(one.dispatch_id)
            elif covers(one, collection_id, collection, column.id):
                return one
        if capped and all(dispatch in capped for dispatch in dispatches):
            unpaid = next(one for one in self._limits.values() if one.dispatch_id in capped)
        return unpaid

    def spend(self, results: Iterable[Result], collection: str) -> None:
        """Answers have come. They count from now on."""
        self._count(results, lambda _: collection, 1)

    def stored(self, results: Iterable[Result], names: Callable[[int], str], limits: list[Left] | None) -> None:
        """Answers are in the database, and with them what their budgets still allow."""
        self._count(results, names, -1)
        if limits is None:
            return
        self._heard += 1
        told = {(one.budget_id, one.dispatch_id): one for one in limits}
        namespaces = {one.namespace_id for one in limits}
        kept = {key: one for key, one in self._limits.items() if one.namespace_id not in namespaces}
        self._limits = kept | told

    async def run(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS * random.uniform(0.5, 1.0))  # noqa: S311
            with suppress(psycopg.OperationalError):
                await self.look()

    async def look(self) -> None:
        heard = self._heard
        collections = sorted(self._collections())
        if not collections:
            return
        limits = await self._link.call(left, collections)
        if heard == self._heard:
            self._limits = {(one.budget_id, one.dispatch_id): one for one in limits}

    def _count(self, results: Iterable[Result], names: Callable[[int], str], sign: int) -> None:
        if not self._limits:
            if self._unstored:
                self._unstored.clear()
            return
        for result in results:
            if not result.cost:
                continue
            collection_id = result.key.collection_id
            for key, one in self._limits.items():
                if one.dispatch_id == result.dispatch_id or (
                    one.dispatch_id is None and covers(one, collection_id, names(collection_id), result.column_id)
                ):
                    # A budget that was not known when the answer came: no less than nothing is on its way.
                    self._unstored[key] = max(0, self._unstored[key] + sign * result.cost)
