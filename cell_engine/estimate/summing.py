"""From the calls of a sample to tokens and money for all rows, with how far that may be off."""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cell_engine.estimate.calls import Past, assumed, characters_of
from cell_engine.plan import Due
from cell_engine.prices import Price, prices, shown
from cell_engine.specs.version import Column, Version

CHARACTERS_PER_TOKEN = 4.0
ASSUMED_ERROR_IN, ASSUMED_ERROR_OUT = 0.3, 0.6
"""How far the assumptions may be off; of languages other than English, and of models that reason, further."""

_LEAST_ERROR = 0.02
_SURE = 1.96  # standard errors that 95 of 100 estimates stay within


@dataclass(frozen=True, slots=True)
class ColumnEstimate:
    """One column's share. `cells` would be computed, `cached` of them without a call; `least` where no answer differs
    from the one before, so that nothing follows from it. `cost`: billionths of a dollar, None without a price for
    `model`. `basis`: "past" calls, or "assumed"."""

    column: str
    model: str | None
    cells: int
    least: int
    cached: int
    tokens_in: int
    tokens_out: int
    cost: int | None
    basis: str


@dataclass(frozen=True, slots=True)
class Estimate:
    """A dispatch over `rows` rows, of which `sampled` were planned. Of 100 estimates 95 are within `low` and `high`, in
    billionths of a dollar; the low one is where no answer differs from the one before. `cells_high` bounds the cells.
    `unpriced` are models without a price: their calls are in no cost here. `at_most`: with those at the dearest price
    there is."""

    rows: int
    sampled: int
    columns: tuple[ColumnEstimate, ...]
    cost: int
    low: int
    high: int
    cells_high: int
    unpriced: tuple[str, ...]
    at_most: int

    @property
    def cells(self) -> int:
        return sum(one.cells for one in self.columns)

    @property
    def is_exact_scope(self) -> bool:
        """Whether every row was planned, so that only tokens are estimated."""
        return self.sampled >= self.rows

    @property
    def summary(self) -> str:
        """In a few lines: the sum, its bounds, and what it rests on."""
        if not self.columns:
            of = "" if self.is_exact_scope else f", as far as {self.sampled:,} rows of {self.rows:,} tell: "
            few = "" if self.is_exact_scope else f"fewer than {self.cells_high + 1:,} cells"
            return f"nothing is due{of}{few}"
        cost = "an unknown amount" if self.unpriced and not self.cost else f"about {shown(self.cost)}"
        low, high = shown(self.low), shown(self.high)
        lines = [f"{self.cells:,} cells, {cost}" + (f", between {low} and {high}" if low != high else "")]
        if self.unpriced:
            lines.append(
                f"without {', '.join(self.unpriced)}, which no price is known for (AUTOFILL_PRICES takes yours); "
                f"at the dearest price there is, {shown(self.at_most)}"
            )
        if any(one.least < one.cells for one in self.columns):
            lines.append('cells "at least" are computed where answers do not differ from those before, else all')
        paid = [one for one in self.columns if one.model is not None]
        assumed = [one.column for one in paid if one.basis == "assumed"]
        how = "every row" if self.is_exact_scope else f"{self.sampled:,} random rows of {self.rows:,}"
        basis = "tokens as their columns' earlier calls took"
        if assumed:
            basis = f"no earlier calls of {', '.join(assumed)}: four characters a token, and answers by their type"
        lines.append(f"from {how}; {basis}" if paid else f"from {how}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Rate:
    """What a column's calls take and cost, and how far that may be off."""

    model: str | None
    price: Price | None
    tokens_per_character: float
    error_in: float
    answer: Callable[[Due], float]
    error_out: float
    basis: str

    @property
    def is_unpriced(self) -> bool:
        return self.model is not None and self.price is None

    @classmethod
    def of(cls, column: Column, past: Past) -> "Rate":
        if column.kind != "llm":
            return cls(None, None, 0.0, 0.0, lambda _: 0.0, 0.0, "free")
        # What answered before is what will be billed, whatever name it was asked by.
        model = past.models.most_common(1)[0][0] if past.models else str(column.settings["model"])
        price = prices().of(model)
        if past.is_known:
            mean = sum(past.tokens_out) / len(past.tokens_out)
            return cls(
                model, price, past.tokens_in / past.characters, _error(past.ratios), lambda _: mean,
                _error([float(tokens) for tokens in past.tokens_out]), "past",
            )  # fmt: skip
        answer = json.dumps({"value": assumed(column, past.answer)}, ensure_ascii=False)
        limit = column.settings.get("max_tokens")
        tokens = len(answer) / CHARACTERS_PER_TOKEN
        tokens = min(tokens, limit) if isinstance(limit, int) else tokens
        return cls(
            model, price, 1 / CHARACTERS_PER_TOKEN, ASSUMED_ERROR_IN, lambda _: tokens, ASSUMED_ERROR_OUT, "assumed"
        )

    def tokens(self, due: Due, names: Mapping[int, str]) -> tuple[float, float]:
        if self.model is None:
            return 0.0, 0.0
        return characters_of(due.column, due.inputs, names) * self.tokens_per_character, self.answer(due)

    def cost(self, tokens_in: float, tokens_out: float) -> float:
        if self.price is None:
            return 0.0
        return (tokens_in * self.price.tokens_in + tokens_out * self.price.tokens_out) / 1_000_000

    def due_cost(self, due: Due, names: Mapping[int, str]) -> float:
        return self.cost(*self.tokens(due, names))


@dataclass
class _Sum:
    """Of one column over the sample: calls, their tokens, and how far those may be off (a share of them)."""

    cells: int = 0
    cached: float = 0.0
    tokens_in: float = 0.0
    tokens_out: float = 0.0


def sum_up(
    version: Version,
    rows: int,
    drawn: int,
    moving: Sequence[list[Due]],
    still: Sequence[list[Due]],
    past: Mapping[int, Past],
    hits: set[bytes],
) -> Estimate:
    scale = rows / drawn if drawn else 0.0
    rates = {column.id: Rate.of(column, past[column.id]) for column in version.computed}
    sums = {column.id: _Sum() for column in version.computed}
    costs: list[float] = []
    shared = _shared(moving)
    for calls in moving:
        of_row = 0.0
        for due in calls:
            one, rate = sums[due.column.id], rates[due.column.id]
            one.cells += 1
            # Of equal ones a single call is made, whether or not it is in the sample.
            share = 0.0 if due.fingerprint in hits else 1 / (scale * shared.get(due.fingerprint, 1 / scale))
            one.cached += 1 - share
            if not share:
                continue
            tokens_in, tokens_out = (tokens * share for tokens in rate.tokens(due, version.keys))
            one.tokens_in += tokens_in
            one.tokens_out += tokens_out
            of_row += rate.cost(tokens_in, tokens_out)
        costs.append(of_row)
    costs += [0.0] * (drawn - len(costs))  # rows that are gone
    least = Counter(due.column.id for calls in still for due in calls)
    cost_still = sum(rates[due.column.id].due_cost(due, version.keys) for calls in still for due in calls)
    found = tuple(_column(version.by_id[id], one, least[id], scale, rates[id]) for id, one in sums.items() if one.cells)
    cost = sum(one.cost for one in found if one.cost is not None)
    tokens_off = math.sqrt(sum(_off(one, rates[version.by_name[one.column].id]) ** 2 for one in found))
    bound = math.hypot(_standard_error(costs, rows) * _SURE, tokens_off)
    cells = [float(len(calls)) for calls in moving] + [0.0] * (drawn - len(moving))
    cells_off = _standard_error(cells, rows) * _SURE if any(cells) else 3 * scale  # none of n seen: under 3/n of all
    unpriced = tuple(sorted({str(one.model) for one in found if one.cost is None}))
    dearest = max(prices().models.values(), key=lambda price: (price.tokens_out, price.tokens_in))
    at_most = cost + sum(dearest.cost(one.tokens_in, 0, one.tokens_out) for one in found if one.cost is None)
    return Estimate(
        rows=rows,
        sampled=drawn,
        columns=found,
        cost=cost,
        low=max(0, round(min(cost, cost_still * scale) - bound)),
        high=round(cost + bound),
        cells_high=round(sum(cells) * scale + (cells_off if drawn < rows else 0)),
        unpriced=unpriced,
        at_most=at_most,
    )


def _shared(moving: Sequence[list[Due]]) -> dict[bytes, int]:
    """How often the sample has each call of a cached column that it has more than once.

    One that it has once is taken for one of its own, as are all that read what a call before them will answer: the
    sample knows no answers. So the estimate is rather too high.
    """
    counts = Counter(
        due.fingerprint
        for calls in moving
        for due in calls
        if due.column.cache is not None
        and not any(dep.column == other.column.id for dep in due.column.deps for other in calls)
    )
    return {fingerprint: count for fingerprint, count in counts.items() if count > 1}


def _column(column: Column, one: _Sum, least: int, scale: float, rate: Rate) -> ColumnEstimate:
    tokens_in, tokens_out = round(one.tokens_in * scale), round(one.tokens_out * scale)
    cost = None if rate.is_unpriced else round(rate.cost(one.tokens_in, one.tokens_out) * scale)
    return ColumnEstimate(
        column=column.name,
        model=rate.model,
        cells=round(one.cells * scale),
        least=round(least * scale),
        cached=round(one.cached * scale),
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        cost=cost,
        basis=rate.basis,
    )


def _off(one: ColumnEstimate, rate: Rate) -> float:
    """How far a column's cost may be off for its tokens' sake, in billionths of a dollar."""
    return math.hypot(rate.cost(one.tokens_in, 0) * rate.error_in, rate.cost(0, one.tokens_out) * rate.error_out)


def _standard_error(values: Sequence[float], population: int) -> float:
    """Of the sum over all rows, as scaled up from a sample without replacement."""
    count = len(values)
    if count < 2 or count >= population:
        return 0.0
    mean = sum(values) / count
    variance = sum((value - mean) ** 2 for value in values) / (count - 1)
    return population * math.sqrt(variance / count * (1 - count / population))


def _error(values: Sequence[float]) -> float:
    """The relative error of a mean."""
    mean = sum(values) / len(values)
    if mean == 0 or len(values) < 2:
        return _LEAST_ERROR
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return max(_LEAST_ERROR, _SURE * deviation / mean / math.sqrt(len(values)))
