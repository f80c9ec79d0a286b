"""Politeness: a line before each host, so that it is asked by few at a time, with a pause between two.

A call that would stand in line for long is sent away with the time to come back at, which costs its cell no attempt: a
thousand cells of one slow host then hold no thousand slots of their worker. Whoever comes back at their time goes
before those who come for the first time.

Lines are those of one worker process: with more of them, a host is asked by each.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from cell_engine.kinds.web.failing import FetchError

PATIENCE_SECONDS = 5.0
"""No call stands in line longer, by what can be told."""

GIVE_UP_SECONDS = 30.0
"""Nor longer than this in any case: a host may have become slow since."""

LONGEST_SECONDS = 600.0
"""Nobody is sent away for longer, unless a host says so itself."""

ASKED_SECONDS = (5.0, 86_400.0)
"""The pause after a refusal (429) that names none, doubling up to LONGEST_SECONDS; and the longest one honoured."""

_GUESS_SECONDS = 0.05  # that a request takes, before anything is known of the host
_FORGET_SECONDS = 600.0
_MOST_HOSTS = 5_000
_MOST_PROMISES = 10_000


@dataclass
class _Line:
    """A host's line. Times are the loop's."""

    places: asyncio.Semaphore
    used: float
    waiting: int = 0
    running: int = 0
    next_start: float = 0.0
    held_until: float = 0.0
    refusals: int = 0
    duration: float = _GUESS_SECONDS
    last_promise: float = 0.0
    promises: dict[str, float] = field(default_factory=dict)
    """When those who were sent away come back."""


class Lines:
    """``at_once`` requests to a host side by side, ``delay`` seconds between two that start."""

    def __init__(self, at_once: int, delay: float) -> None:
        self._at_once = at_once
        self._delay = delay
        self._lines: dict[str, _Line] = {}

    @asynccontextmanager
    async def place(self, host: str, who: str, wish: float | None) -> AsyncIterator[None]:
        """Within it, ``host`` may be asked. ``who`` is the same whenever the call comes back; ``wish`` is the delay
        that the host asks for, if it does.

        Raises FetchError of class ``rate_limited`` when that would take too long.
        """
        clock = asyncio.get_running_loop().time
        line = self._line(host, clock())
        delay = max(self._delay, wish or 0.0)
        self._admit(line, host, who, delay, clock())
        await self._stand(line, host, delay)
        line.running += 1
        begun = clock()
        try:
            yield
        finally:
            line.running -= 1
            line.places.release()
            line.used = clock()
            line.duration += 0.2 * (line.used - begun - line.duration)

    def refused(self, host: str, retry_after: float | None) -> float:
        """``host`` wants to be left alone; returns for how many seconds it is."""
        now = asyncio.get_running_loop().time()
        line = self._line(host, now)
        shortest, longest = ASKED_SECONDS
        if retry_after is None:
            retry_after = min(LONGEST_SECONDS, shortest * 2.0 ** min(line.refusals, 30))
        if line.held_until <= now:  # those that were under way when it began are not counted again
            line.refusals += 1
        line.held_until = max(line.held_until, now + min(retry_after, longest))
        return line.held_until - now

    def answered(self, host: str) -> None:
        """``host`` answers again as it should."""
        self._line(host, asyncio.get_running_loop().time()).refusals = 0

    def _admit(self, line: _Line, host: str, who: str, delay: float, now: float) -> None:
        """Raises FetchError if the line is too long for one more."""
        step = max(delay, line.duration / self._at_once)
        expected = max(line.next_start, line.held_until, now) - now + step * line.waiting
        was_promised = line.promises.pop(who, None) is not None
        if expected <= PATIENCE_SECONDS and (was_promised or line.last_promise <= now + PATIENCE_SECONDS):
            return
        seconds = expected if was_promised else max(expected, line.last_promise - now + step)
        seconds = max(min(seconds, LONGEST_SECONDS), line.held_until - now)
        if len(line.promises) >= _MOST_PROMISES:
            line.promises = {who: at for who, at in line.promises.items() if at > now}
        line.promises[who] = now + seconds
        line.last_promise = max(line.last_promise, now + seconds)
        raise self._sent_away(host, delay, seconds)

    async def _stand(self, line: _Line, host: str, delay: float) -> None:
        clock = asyncio.get_running_loop().time
        line.waiting += 1
        try:
            async with asyncio.timeout(GIVE_UP_SECONDS):
                await line.places.acquire()
        except TimeoutError:
            raise self._sent_away(host, delay, GIVE_UP_SECONDS) from None
        finally:
            line.waiting -= 1
        try:
            now = clock()
            start = max(now, line.next_start, line.held_until)
            if start - now > PATIENCE_SECONDS:  # it has asked to be left alone since
                raise self._sent_away(host, delay, start - now)
            line.next_start = start + delay
            await asyncio.sleep(start - now)
        except BaseException:
            line.places.release()
            raise

    def _sent_away(self, host: str, delay: float, seconds: float) -> FetchError:
        return FetchError(
            "rate_limited",
            f"{host} has a line: it is asked by {self._at_once} at a time, {delay:g} s apart. The turn comes in about "
            f"{seconds:.0f} s.",
            retry_after=seconds,
        )

    def _line(self, host: str, now: float) -> _Line:
        line = self._lines.get(host)
        if line is None:
            if len(self._lines) >= _MOST_HOSTS:
                self._lines = {name: one for name, one in self._lines.items() if _is_needed(one, now)}
            line = self._lines[host] = _Line(asyncio.Semaphore(self._at_once), now)
        return line


def _is_needed(line: _Line, now: float) -> bool:
    latest = max(line.used + _FORGET_SECONDS, line.held_until, line.last_promise)
    return bool(line.waiting or line.running) or latest > now
