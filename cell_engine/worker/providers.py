"""The endpoints that this worker calls, and the rounds in which it reports on them and takes its parts.

About once a second one transaction for all of them says what goes on here and brings what to go by
(`store.providers`); at once, when an endpoint has turned a call away or shown that it works, when calls begin to wait,
and when a part has become smaller, which the others wait to hear.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from uuid import UUID

import psycopg

from cell_engine.log import get_logger
from cell_engine.shares import ProviderKey
from cell_engine.store.providers import lease
from cell_engine.worker.link import Link
from cell_engine.worker.provider import Provider, Waiter
from cell_engine.worker.watch import Endpoint

ROUND_SECONDS = 1.0
SECONDS_A_WORKER = 0.005
"""A round takes an endpoint's lock for a millisecond or two: two hundred workers take turns at leisure."""

HURRIED_SECONDS = 0.1
"""Between two rounds at least, whatever has happened."""

WAITING_SECONDS = 0.25
"""Between rounds while calls wait and the worker has no part at all: others are about to make room."""

IDLE_SECONDS = 600.0
"""An endpoint that nobody here has called for so long is forgotten, and its lease runs out."""

log = get_logger(__name__)


class Providers:
    """The endpoints that this worker calls."""

    def __init__(
        self, link: Link, worker_id: Callable[[], UUID], lease_seconds: float, tell: Callable[[Waiter], None]
    ) -> None:
        self._link = link
        self._worker_id = worker_id
        self._lease = lease_seconds
        self._tell = tell
        self._by_key: dict[ProviderKey, Provider] = {}
        self._hurried = asyncio.Event()

    def of(self, key: ProviderKey) -> Provider:
        found = self._by_key.get(key)
        if found is None:
            now = asyncio.get_running_loop().time()
            found = self._by_key[key] = Provider(key, self._tell, self._hurried.set, now)
            self._hurried.set()
        return found

    def ahead(self, keys: Iterable[ProviderKey]) -> int | None:
        """How many more rows it is worth to claim whose calls go to one of these; None: as many as you like, -1: none
        before they have cooled down. Those that nobody has called yet say nothing."""
        now = asyncio.get_running_loop().time()
        known = [self._by_key[key] for key in keys if key in self._by_key]
        if not known:
            return None
        rooms = [one.ahead(now) for one in known if not one.cools(now)]
        if None in rooms:
            return None
        return sum(room or 0 for room in rooms) if rooms else -1

    def endpoints(self) -> tuple[Endpoint, ...]:
        """What goes on at each."""
        return tuple(Endpoint(key, one.in_flight, one.waiting, one.limit) for key, one in list(self._by_key.items()))

    async def run(self) -> None:
        pause = ROUND_SECONDS
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause * random.uniform(0.9, 1.1)):  # noqa: S311
                    await self._hurried.wait()
            self._hurried.clear()
            try:
                pause = await self.round()
            except psycopg.Error as error:
                log.info("no word of the endpoints' limits", error=str(error).strip())
                pause = ROUND_SECONDS
            await asyncio.sleep(HURRIED_SECONDS)
            pause = max(0.0, pause - HURRIED_SECONDS)

    async def round(self) -> float:
        """Report, and go by what is granted; returns the seconds after which the next round is due."""
        sent = asyncio.get_running_loop().time()
        for key, one in list(self._by_key.items()):
            if sent - one.used_at > IDLE_SECONDS and not one.in_flight and not one.waiting:
                del self._by_key[key]
        if not self._by_key:
            return ROUND_SECONDS
        reports = {key: provider.report(sent) for key, provider in self._by_key.items()}
        grants = await self._link.call(lease, self._worker_id(), list(reports.values()))
        left = sent + self._lease - asyncio.get_running_loop().time()
        is_out = False
        for grant in grants:
            provider = self._by_key[grant.key]
            if provider.take(grant, reports[grant.key], left):
                self._hurried.set()
            is_out = is_out or (provider.waiting > 0 and provider.limit == 0 and grant.cool == 0)
        if is_out:
            return WAITING_SECONDS
        return max([ROUND_SECONDS, *(SECONDS_A_WORKER * one.workers for one in grants)])
