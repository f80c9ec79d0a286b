"""Token buckets: what a limit a minute lets go now, and when the next."""

import math


class RequestBucket:
    """Lets at most `minute` requests go in any 60 seconds, evenly.

    One in 300 may be caught up with (an event loop is late by milliseconds): one and that many go at once, at most. A
    bucket that is one large keeps requests 60 / `minute` seconds apart, which no minute exceeds; a larger one refills
    the slower for it.
    """

    __slots__ = ("_at", "_level", "_per_second", "_size", "minute")

    def __init__(self, minute: int, now: float) -> None:
        self._level = 1.0
        self._at = now
        self._size = 1
        self._per_second = 0.0
        self.set(minute, now)

    def set(self, minute: int, now: float) -> None:
        """Another limit from now on; what has come together so far is kept, as far as it fits."""
        self._fill(now)
        self.minute = minute
        self._size = 1 + minute // 300
        self._per_second = (minute - self._size + 1) / 60
        self._level = min(self._level, self._size)

    def wait(self, now: float) -> float:
        """Seconds until a request may go; 0: now."""
        self._fill(now)
        if self._level >= 1:
            return 0.0
        return (1 - self._level) / self._per_second if self._per_second > 0 else math.inf

    def take(self, requests: int = 1) -> None:
        """They go, or have gone: beyond what was there, the next wait for it."""
        self._level -= requests

    def _fill(self, now: float) -> None:
        self._level = min(self._size, self._level + (now - self._at) * self._per_second)
        self._at = now


class TokenBucket:
    """Lets tokens go at `minute` / 60 a second, a second's worth at once; a call may start while there are any.

    What a call takes is known when it has ended, so the bucket may owe: in a minute, at most a second's worth and what
    the last call was larger than estimated go beyond the limit, of which 2 % are kept back for it.
    """

    __slots__ = ("_at", "_level", "_per_second", "minute")

    def __init__(self, minute: int, now: float) -> None:
        self._level = 0.0
        self._per_second = 0.0
        self._at = now
        self.set(minute, now)
        self._level = self._per_second

    def set(self, minute: int, now: float) -> None:
        self._fill(now)
        self.minute = minute
        self._per_second = minute / 60
        self._level = min(self._level, self._per_second)

    def wait(self, tokens: int, now: float) -> float:
        """Seconds until a call of about so many tokens may start; 0: now. A large one waits for a full bucket."""
        self._fill(now)
        missing = min(tokens, self._per_second) - self._level
        if missing <= 0 and self._per_second > 0:
            return 0.0
        return missing / self._per_second if self._per_second > 0 else math.inf

    def take(self, tokens: int) -> None:
        """So many go; fewer than none, when a call took less than was estimated."""
        self._level = min(self._level - tokens, self._per_second)

    def _fill(self, now: float) -> None:
        self._level = min(self._per_second, self._level + (now - self._at) * self._per_second)
        self._at = now
