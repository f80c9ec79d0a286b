"""What one cell's call takes: its requests, their tokens or the time of what is heard, and what that costs."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cell_engine.estimate.calls import ANSWER_CHARACTERS, Past, assumed, requests_of
from cell_engine.plan import Due
from cell_engine.prices import Price, prices
from cell_engine.specs.version import Column

CHARACTERS_PER_TOKEN = 4.0
ASSUMED_ERROR_IN, ASSUMED_ERROR_OUT = 0.3, 0.6
"""How far the assumptions may be off; of languages other than English, and of models that reason, further."""

ASSUMED_SECONDS = 300.0
"""How long a recording is taken to be that nobody has heard yet: files are not opened for an estimate."""

_ASSUMED_ERROR_SECONDS = 2.0
_TOKENS_OF_SECOND = (10.0, 3.5)
"""Of sound in, and of what is said in it out, where a model bills these."""

_LEAST_ERROR = 0.02
SURE = 1.96
"""Standard errors that 95 of 100 estimates stay within."""


class Taken(NamedTuple):
    """By one cell, or the sum over several."""

    requests: float = 0.0
    tokens_in: float = 0.0
    tokens_out: float = 0.0
    seconds: float = 0.0

    def plus(self, other: "Taken", times: float = 1.0) -> "Taken":
        return Taken(*(mine + times * its for mine, its in zip(self, other, strict=True)))


@dataclass(frozen=True)
class Rate:
    """What a column's calls take and cost, and how far that may be off. `each` is taken by every cell, `out` are tokens
    that each request of one answers with, and `last` that of a long text's parts the last one does."""

    model: str | None
    price: Price | None
    basis: str
    tokens_per_character: float = 0.0
    out: float = 0.0
    last: float | None = None
    each: Taken | None = None
    error_in: float = 0.0
    error_out: float = 0.0

    @property
    def is_unpriced(self) -> bool:
        return self.model is not None and self.price is None

    @classmethod
    def of(cls, column: Column, past: Past) -> "Rate":
        if column.kind not in ("llm", "transcribe"):
            return cls(None, None, "free")
        # What answered before is what will be billed, whatever name it was asked by.
        model = past.models.most_common(1)[0][0] if past.models else str(column.settings["model"])
        price = prices().of(model)
        if column.kind == "transcribe":
            return cls(model, price, *_heard(past))
        if past.is_known:
            return cls(
                model, price, "past", past.tokens_in / past.characters, _mean(past.tokens_out),
                error_in=_error(past.ratios), error_out=_error(past.tokens_out),
            )  # fmt: skip
        limit = column.settings.get("max_tokens")
        most = limit if isinstance(limit, int) else math.inf
        answer = json.dumps({"value": assumed(column, past.answer)}, ensure_ascii=False)
        out = min(most, (ANSWER_CHARACTERS + len('{"value": ""}')) / CHARACTERS_PER_TOKEN)
        return cls(
            model, price, "assumed", 1 / CHARACTERS_PER_TOKEN, out, min(most, len(answer) / CHARACTERS_PER_TOKEN),
            error_in=ASSUMED_ERROR_IN, error_out=ASSUMED_ERROR_OUT,
        )  # fmt: skip

    def take(self, due: Due, names: Mapping[int, str]) -> Taken:
        if self.model is None:
            return Taken()
        if self.each is not None:
            return self.each
        asked = requests_of(due.column, due.inputs, names)
        last = self.out if self.last is None else self.last
        tokens_out = max(0, asked.number - 1) * self.out + min(1, asked.number) * last
        return Taken(asked.number, asked.characters * self.tokens_per_character, tokens_out)

    def cost(self, taken: Taken) -> float:
        """Billionths of a dollar; 0 without a price."""
        if self.price is None:
            return 0.0
        of_tokens = (taken.tokens_in * self.price.tokens_in + taken.tokens_out * self.price.tokens_out) / 1_000_000
        return of_tokens + taken.seconds * self.price.minute / 60

    def off(self, taken: Taken) -> float:
        """How far the cost of so much may be off, in billionths of a dollar."""
        of_in = self.cost(Taken(tokens_in=taken.tokens_in, seconds=taken.seconds)) * self.error_in
        return math.hypot(of_in, self.cost(Taken(tokens_out=taken.tokens_out)) * self.error_out)


def _heard(past: Past) -> "tuple[str, float, float, None, Taken, float, float]":
    """Of recordings: what those before took, a mean; files are not opened for an estimate."""
    if past.seconds:
        seconds = _mean(past.seconds)
        each = Taken(1, past.tokens_in / len(past.seconds), _mean(past.tokens_out), seconds)
        return "past", 0.0, 0.0, None, each, _error(past.seconds), _error(past.seconds)
    of_in, of_out = _TOKENS_OF_SECOND
    each = Taken(1, of_in * ASSUMED_SECONDS, of_out * ASSUMED_SECONDS, ASSUMED_SECONDS)
    return "assumed", 0.0, 0.0, None, each, _ASSUMED_ERROR_SECONDS, _ASSUMED_ERROR_SECONDS


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _error(values: Sequence[float]) -> float:
    """The relative error of a mean."""
    mean = _mean(values)
    if mean == 0 or len(values) < 2:
        return _LEAST_ERROR
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return max(_LEAST_ERROR, SURE * deviation / mean / math.sqrt(len(values)))
