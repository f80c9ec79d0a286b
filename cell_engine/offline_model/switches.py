"""What the offline model does besides answering: it waits, limits and fails, on demand and repeatably."""

from __future__ import annotations

import hashlib
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Fault = Literal["rate_limited", "server_error", "wrong_shape"]

_FAULTS: tuple[Fault, ...] = ("rate_limited", "server_error", "wrong_shape")


class Switches(BaseModel):
    """The settings that tests and benchmarks turn, at start or through ``POST /switches``.

    The three fractions share one draw per call, so they may not add up to more than 1.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    latency: float = Field(default=0.0, ge=0, description="seconds before an answer or a 5xx (a 429 comes at once)")
    rate_limited: float = Field(default=0.0, ge=0, le=1, description="fraction of calls answered with 429")
    retry_after: float = Field(default=1.0, ge=0, description="seconds named in the Retry-After of a 429")
    server_error: float = Field(default=0.0, ge=0, le=1, description="fraction of calls answered with 500")
    wrong_shape: float = Field(default=0.0, ge=0, le=1, description="fraction of answers that break the asked schema")
    seed: int = Field(default=0, description="which calls the fractions hit")

    @model_validator(mode="after")
    def _fractions_fit(self) -> Switches:
        if sum(getattr(self, fault) for fault in _FAULTS) > 1 + 1e-9:
            raise ValueError("rate_limited, server_error and wrong_shape add up to more than 1")
        return self

    def fault(self, body_hash: bytes, occurrence: int) -> Fault | None:
        """The fault of the ``occurrence``-th call with this body, or None.

        It depends on the body and on how often it came, never on what else is in flight: the same load meets
        the same faults however its calls interleave, and a repeated call draws anew.
        """
        if not (self.rate_limited or self.server_error or self.wrong_shape):
            return None
        digest = hashlib.blake2b(b"%d/%d/" % (self.seed, occurrence) + body_hash, digest_size=8).digest()
        draw = int.from_bytes(digest, "big") / 2**64
        for fault in _FAULTS:
            draw -= getattr(self, fault)
            if draw < 0:
                return fault
        return None
