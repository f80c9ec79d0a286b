"""What an endpoint's ``x-ratelimit-*`` headers say, as far as they can be relied on.

OpenAI's meaning, which others share: ``remaining`` is what is left of ``limit`` now, ``reset`` the time until all of it
is back, so that ``(limit - remaining) / reset`` comes back a second. That holds for limits a minute and for limits a
day, which have the same names. So what is left is spread over a minute, and what comes back in it is added: a limit a
minute comes to itself, one a day is spent gently and never run into.
"""

from __future__ import annotations

import re

from cell_engine.kinds.base import Traffic
from cell_engine.kinds.provider_errors import Headers

_MOST = 10**9
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_PART = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h|d)")


def note_limits(traffic: Traffic, headers: Headers) -> None:
    """Note what ``headers`` leave of requests and tokens a minute; without them, or with others, nothing."""
    traffic.requests_minute = _left(headers, "requests")
    traffic.tokens_minute = _left(headers, "tokens")


def _left(headers: Headers, what: str) -> int | None:
    limit = headers.get(f"x-ratelimit-limit-{what}")
    if limit is None:
        return None
    remaining, reset = headers.get(f"x-ratelimit-remaining-{what}"), headers.get(f"x-ratelimit-reset-{what}")
    if remaining is None or reset is None or not _is_count(limit) or not _is_count(remaining):
        return None
    seconds = _seconds(reset.strip())
    if not seconds:
        return None
    return min(_MOST, int(remaining) + int(max(0, int(limit) - int(remaining)) * 60 / seconds))


def _is_count(text: str) -> bool:
    return bool(re.fullmatch(r"\d{1,15}", text.strip()))


def _seconds(text: str) -> float | None:
    """Of a duration such as ``6m0s``, ``120ms`` or ``2.5``; None for what is none."""
    if re.fullmatch(r"\d{1,6}(\.\d{1,9})?", text):  # more digits are a point in time
        return float(text)
    if not re.fullmatch(rf"(?:{_PART.pattern})+", text):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
