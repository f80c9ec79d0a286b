"""The limits of a real endpoint: calls in flight, and calls in any 60 seconds."""

from __future__ import annotations

from collections import deque

from cell_engine.offline_model.switches import Switches

_MINUTE = 60.0


class Limits:
    """Counts the calls that were let in. Calls turned away count for nothing, as with OpenAI."""

    def __init__(self) -> None:
        self.in_flight = 0
        self._arrived: deque[float] = deque()

    def refusal(self, switches: Switches, now: float) -> float | None:
        """Seconds until a call may come again; None: this one may, and is counted as in flight until `leave`."""
        while self._arrived and self._arrived[0] <= now - _MINUTE:
            self._arrived.popleft()
        if switches.concurrency and self.in_flight >= switches.concurrency:
            return switches.retry_after
        if switches.requests_minute and len(self._arrived) >= switches.requests_minute:
            return self._arrived[len(self._arrived) - switches.requests_minute] + _MINUTE - now
        self.in_flight += 1
        if switches.requests_minute:
            self._arrived.append(now)
        return None

    def leave(self) -> None:
        self.in_flight -= 1

    def headers(self, switches: Switches) -> dict[str, str]:
        """What OpenAI tells of requests: the limit, what is left of it, and when all of it is back."""
        if not (switches.limit_headers and switches.requests_minute):
            return {}
        used = len(self._arrived)
        return {
            "x-ratelimit-limit-requests": f"{switches.requests_minute}",
            "x-ratelimit-remaining-requests": f"{max(0, switches.requests_minute - used)}",
            "x-ratelimit-reset-requests": f"{used * 60_000 // switches.requests_minute}ms",
        }
