"""Classes what an OpenAI-compatible provider answers when it does not answer, once, for everyone."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Protocol

import openai

from cell_engine.kinds.base import ErrorClass, Failure

_TOO_LONG_CODES = frozenset({"context_length_exceeded", "string_above_max_length", "request_too_large"})
_REFUSED_CODES = frozenset({"content_filter", "content_policy_violation", "invalid_prompt"})
_QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})

# Compatible servers give no code for it, or a number; a 429 of this kind ("Request too large … tokens per min")
# is no rate limit either: however long one waits, it never fits.
_TOO_LONG_WORDS = re.compile(
    r"maximum context length|context[ _](?:length|window|size)|(?:prompt|input|request) (?:is )?too (?:long|large)",
    re.IGNORECASE,
)


class OversizedError(OSError):
    """A server sends more than any answer is."""


def failure_of(error: Exception, key: str | None, hide: Callable[[str], str]) -> Failure:
    """The failure that an exception of the OpenAI client, or of the transport below it, stands for. ``key`` is the name
    of the endpoint's, ``hide`` takes its value out of what a server says."""
    if isinstance(error, openai.APIStatusError):
        status, headers = error.status_code, error.response.headers
        error_class = class_of(status, {error.code, error.type}, error.message)
        waits = retry_after(headers) if error_class in ("rate_limited", "transient", "quota") else None
        words = hide(f"HTTP {status}: {_words(error)}")
        return Failure(error_class, _hint(error_class, words, key), retry_after=waits)
    if isinstance(error, OversizedError):
        return Failure("transient", f"The model's server was cut off: {error}")
    if isinstance(error, openai.APIConnectionError):
        # Its own text is the same for all; the transport's, one below, is what happened.
        words = hide(f"The model's server cannot be reached: {str(error.__cause__ or '') or error}")
        return Failure("transient", words)
    return Failure("transient", hide(f"The model's server broke off: {type(error).__name__}: {error}"))


def class_of(status: int, codes: set[str | None], message: str) -> ErrorClass:
    """The error class of an HTTP status, the provider's error codes and its words."""
    too_long = bool(codes & _TOO_LONG_CODES or _TOO_LONG_WORDS.search(message))
    match status:
        case 429:
            if codes & _QUOTA_CODES:
                return "quota"
            return "too_long" if too_long else "rate_limited"
        case 402:
            return "quota"
        case 404:
            return "model_missing"
        case 401 | 403:
            return "model_missing" if "model_not_found" in codes else "auth"
        case 413:
            return "too_long"
        case 408 | 409:
            return "transient"
        case _ if status >= 500:
            return "transient"
    if too_long:
        return "too_long"
    if codes & _REFUSED_CODES:
        return "refused"
    return "model_missing" if "model_not_found" in codes else "bad_input"


class Headers(Protocol):
    """As much of a response's headers as is read here."""

    def get(self, key: str) -> str | None: ...


def retry_after(headers: Headers) -> float | None:
    """Seconds the server asks to wait, by ``retry-after-ms`` or ``Retry-After`` (seconds or an HTTP date)."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name)
        if text is None:
            continue
        if re.fullmatch(r"\d{1,9}(\.\d*)?", text.strip()):
            return float(text) * unit
        try:
            until = parsedate_to_datetime(text)
        except ValueError:
            continue
        if until.tzinfo is None:  # an HTTP date is in GMT, also where it says so by "-0000"
            until = until.replace(tzinfo=UTC)
        return max(0.0, (until - datetime.now(UTC)).total_seconds())
    return None


def _words(error: openai.APIStatusError) -> str:
    """The provider's own words; a body that is no JSON error (a proxy's page) has none."""
    body = error.body
    message = body.get("message") if isinstance(body, dict) else None
    return message if isinstance(message, str) and message else error.response.reason_phrase or "no reason given"


_HINTS: dict[ErrorClass, str] = {
    "auth": "Check {key}.",
    "quota": "Check the account's credit.",
    "model_missing": "Check the column's llm.model and {address}.",
}


def _hint(error_class: ErrorClass, words: str, key: str | None) -> str:
    hint = _HINTS.get(error_class, "").format(
        key=key or "whether it asks for a key: name one as llm.key",
        address="OPENAI_BASE_URL" if key == "OPENAI_API_KEY" else "its address",
    )
    return f"{words.rstrip('. ')}. {hint}" if hint else words
