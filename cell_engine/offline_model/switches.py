"""What the offline model does besides answering: it waits, limits and fails, on demand and repeatably."""

from __future__ import annotations

import hashlib
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Fault = Literal[
    "rate_limited", "server_error", "wrong_shape", "connection_reset", "truncated", "invalid_json", "unsupported",
    "quota_exhausted",
]  # fmt: skip

# Those that hit a fraction of the calls, in the order in which they share a draw: a new one goes to the end, so that
# a seed goes on giving the others to the same calls.
_FRACTIONS: tuple[Fault, ...] = (
    "rate_limited",
    "server_error",
    "wrong_shape",
    "connection_reset",
    "truncated",
    "invalid_json",
    "unsupported",
)


class Switches(BaseModel):
    """The settings that tests and benchmarks turn, at start or through ``POST /switches``.

    The limits are those of a real endpoint: whoever goes above them is told so with 429 and when to come again, and is
    counted. The seven fractions share one draw per call, so they may not add up to more than 1. An exhausted quota
    comes before them all: from then on every call gets it, until ``quota_exhausted_from`` is set to 0 or higher than
    the calls made, or ``DELETE /stats`` starts the count over.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    latency: float = Field(default=0.0, ge=0, description="seconds before an answer, 5xx or reset; none before a 429")
    rate_limited: float = Field(default=0.0, ge=0, le=1, description="fraction of calls answered with 429")
    retry_after: float = Field(default=1.0, ge=0, description="seconds named in the Retry-After of a 429")
    server_error: float = Field(default=0.0, ge=0, le=1, description="fraction of calls answered with 500")
    wrong_shape: float = Field(default=0.0, ge=0, le=1, description="fraction of answers that break the asked schema")
    connection_reset: float = Field(default=0.0, ge=0, le=1, description="fraction of calls cut without an answer")
    truncated: float = Field(default=0.0, ge=0, le=1, description="fraction of answers cut off halfway (length)")
    invalid_json: float = Field(default=0.0, ge=0, le=1, description="fraction of answers no JSON where asked for")
    unsupported: float = Field(default=0.0, ge=0, le=1, description="fraction of answers whose quotes are made up")
    quota_exhausted_from: int = Field(default=0, ge=0, description="this call and all later get 429 for quota; 0: none")
    key: str = Field(default="", description="the only key that is let in, else 401; empty: any")
    concurrency: int = Field(default=0, ge=0, description="calls in flight at most, else 429; 0: no limit")
    requests_minute: int = Field(default=0, ge=0, description="calls in any 60 s at most, else 429; 0: no limit")
    limit_headers: bool = Field(default=False, description="whether answers tell of requests_minute (x-ratelimit-*)")
    seed: int = Field(default=0, description="which calls the fractions hit")

    @model_validator(mode="after")
    def _fractions_fit(self) -> Switches:
        if sum(getattr(self, fault) for fault in _FRACTIONS) > 1 + 1e-9:
            raise ValueError(f"{', '.join(_FRACTIONS)} add up to more than 1")
        return self

    def fault(self, body_hash: bytes, occurrence: int, number: int) -> Fault | None:
        """The fault of the ``occurrence``-th call with this body, the ``number``-th of all; or None. Both count from 1.

        Calls turned away for the quota are not counted as an occurrence: before and after it a body draws the same.
        A draw depends on the body and on how often it came, never on what else is in flight: the same load meets
        the same faults however its calls interleave, and a repeated call draws anew. The quota alone goes by the
        number among all: how many calls get through is fixed, which ones is a matter of who comes first.
        """
        if 0 < self.quota_exhausted_from <= number:
            return "quota_exhausted"
        if not any(getattr(self, fault) for fault in _FRACTIONS):
            return None
        digest = hashlib.blake2b(b"%d/%d/" % (self.seed, occurrence) + body_hash, digest_size=8).digest()
        draw = int.from_bytes(digest, "big") / 2**64
        for fault in _FRACTIONS:
            draw -= getattr(self, fault)
            if draw < 0:
                return fault
        return None
