"""robots.txt, by RFC 9309: fetched once for all calls of an origin, kept for an hour, and its failures told apart.

A file that is not there (4xx, too many redirects) allows everything; one that cannot be had (5xx, 429, no connection)
allows nothing until it can be, unless there is an earlier copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from protego import Protego
from yarl import URL

from cell_engine.kinds.base import Failure
from cell_engine.kinds.web.failing import FetchError, TooManyRedirectsError
from cell_engine.kinds.web.transfer import Reply

KEPT_SECONDS = 3_600.0
RETRIED_SECONDS = 60.0
"""A file that could not be had is asked for again after so long; until then nothing is fetched there."""

LOAD_SECONDS = 20.0
MOST_BYTES = 5_000_000
PARSED_BYTES = 512_000  # RFC 9309 has crawlers read 500 KiB at least; what is behind them is not read
LONGEST_DELAY_SECONDS = 30.0
"""The longest Crawl-delay honoured."""

_MOST_ORIGINS = 5_000


@dataclass(frozen=True)
class Rules:
    """What an origin allows."""

    parsed: Protego | None
    agent: str

    def allows(self, url: URL) -> bool:
        return self.parsed is None or self.parsed.can_fetch(str(url), self.agent)

    @property
    def delay(self) -> float | None:
        """Seconds between two requests, if it asks for a pause."""
        wish = self.parsed.crawl_delay(self.agent) if self.parsed is not None else None
        return None if wish is None else min(max(0.0, float(wish)), LONGEST_DELAY_SECONDS)


@dataclass
class _Known:
    loading: asyncio.Task[None] | None = None
    until: float = 0.0
    rules: Rules | None = None
    failure: Failure | None = None


class Robots:
    """The rules of the origins met so far. ``load`` fetches a file of at most so many bytes, redirects followed."""

    def __init__(self, agent: str, load: Callable[[URL, int], Awaitable[Reply]]) -> None:
        self._agent = agent
        self._load = load
        self._origins: dict[URL, _Known] = {}

    async def rules(self, url: URL) -> Rules:
        """The rules for ``url``'s origin. Raises FetchError while they cannot be had."""
        origin, now = url.origin(), asyncio.get_running_loop().time()
        known = self._origins.get(origin)
        if known is None:
            if len(self._origins) >= _MOST_ORIGINS:
                self._origins = {one: kept for one, kept in self._origins.items() if kept.until > now or kept.loading}
            known = self._origins[origin] = _Known()
        if known.until <= now:
            if known.loading is None:
                known.loading = asyncio.create_task(self._refresh(origin, known))
            # Not canceled with one of the calls that wait for it.
            await asyncio.shield(known.loading)
        if known.rules is not None:
            return known.rules
        assert known.failure is not None
        raise FetchError(known.failure.error_class, known.failure.message, known.failure.retry_after)

    async def _refresh(self, origin: URL, known: _Known) -> None:
        clock = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                known.rules = await self._fetched(origin)
            known.failure, known.until = None, clock() + KEPT_SECONDS
        except (FetchError, TimeoutError) as error:
            known.failure = _unreadable(origin, error)
            known.until = clock() + RETRIED_SECONDS
        finally:
            known.loading = None

    async def _fetched(self, origin: URL) -> Rules:
        try:
            reply = await self._load(origin.with_path("/robots.txt"), MOST_BYTES)
        except TooManyRedirectsError:
            return Rules(None, self._agent)
        if reply.status == 429 or reply.status >= 500:
            raise FetchError("transient", f"HTTP {reply.status}")
        if reply.status not in (200, 203):
            return Rules(None, self._agent)
        text = reply.body[:PARSED_BYTES].decode("utf-8", "replace")
        return Rules(await asyncio.to_thread(Protego.parse, text), self._agent)


def _unreadable(origin: URL, error: FetchError | TimeoutError) -> Failure:
    if isinstance(error, TimeoutError):
        return Failure("transient", f"{origin}/robots.txt did not come within {LOAD_SECONDS:g} s.", RETRIED_SECONDS)
    failure = error.failure
    if failure.error_class == "bad_input":  # it would meet the page as well: a refused address, no such host
        return failure
    return Failure(
        "transient",
        f"{origin}/robots.txt cannot be read, so nothing may be fetched there for now: {failure.message}",
        RETRIED_SECONDS,
    )
