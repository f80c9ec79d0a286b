"""From the calls of a sample to tokens and money for all rows, with how far that may be off."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cell_engine.estimate.calls import Past
from cell_engine.estimate.rates import SURE, Rate, Taken
from cell_engine.plan import Due
from cell_engine.prices import prices, shown
from cell_engine.specs.version import Column, Version


@dataclass(frozen=True, slots=True)
class ColumnEstimate:
    """One column's share. `cells` would be computed, `cached` of them without a call; `least` where no answer differs
    from the one before, so that nothing follows from it. `requests` go to the model, several for a text that is asked
    for in parts; `seconds` are those of recordings. `cost`: billionths of a dollar, None without a price for `model`.
    `basis`: "past" calls, or "assumed"."""

    column: str
    model: str | None
    cells: int
    least: int
    cached: int
    requests: int
    tokens_in: int
    tokens_out: int
    seconds: int
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
        lines = [f"{self.cells:,} cells, {cost}, between {shown(self.low)} and {shown(self.high)}"]
        if self.unpriced:
            lines.append(
                f"without {', '.join(self.unpriced)}, which no price is known for (AUTOFILL_PRICES takes yours); "
                f"at the dearest price there is, {shown(self.at_most)}"
            )
        if any(one.least < one.cells for one in self.columns):
            lines.append('cells "at least" are computed where answers do not differ from those before, else all')
        paid = [one for one in self.columns if one.model is not None]
        assumed = [one.column for one in paid if one.basis == "assumed" and not one.seconds]
        unheard = [one.column for one in paid if one.basis == "assumed" and one.seconds]
        basis = ["every row" if self.is_exact_scope else f"{self.sampled:,} random rows of {self.rows:,}"]
        if assumed:
            basis.append(
                f"no earlier calls of {', '.join(assumed)}: four characters a token, and answers by their type"
            )
        if unheard:
            basis.append(f"no earlier calls of {', '.join(unheard)}: recordings of five minutes")
        if paid and not assumed and not unheard:
            basis.append("tokens as their columns' earlier calls took")
        lines.append(f"from {'; '.join(basis)}")
        return "\n".join(lines)


@dataclass
class _Sum:
    """Of one column over the sample: calls, and what they take."""

    cells: int = 0
    cached: float = 0.0
    taken: Taken = field(default_factory=Taken)


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
            taken = rate.take(due, version.keys)
            one.taken = one.taken.plus(taken, share)
            of_row += rate.cost(taken) * share
        costs.append(of_row)
    costs += [0.0] * (drawn - len(costs))  # rows that are gone
    least = Counter(due.column.id for calls in still for due in calls)
    answered = ((rates[due.column.id], due) for calls in still for due in calls)
    cost_still = sum(rate.cost(rate.take(due, version.keys)) for rate, due in answered)
    found = tuple(_column(version.by_id[id], one, least[id], scale, rates[id]) for id, one in sums.items() if one.cells)
    cost = sum(one.cost for one in found if one.cost is not None)
    tokens_off = scale * math.hypot(*(rates[id].off(one.taken) for id, one in sums.items()))
    bound = math.hypot(_standard_error(costs, rows) * SURE, tokens_off)
    cells = [float(len(calls)) for calls in moving] + [0.0] * (drawn - len(moving))
    cells_off = _standard_error(cells, rows) * SURE if any(cells) else 3 * scale  # none of n seen: under 3/n of all
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
    requests, tokens_in, tokens_out, seconds = (round(each * scale) for each in one.taken)
    return ColumnEstimate(
        column=column.name,
        model=rate.model,
        cells=round(one.cells * scale),
        least=round(least * scale),
        cached=round(one.cached * scale),
        requests=requests,
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        seconds=seconds,
        cost=None if rate.is_unpriced else round(rate.cost(one.taken) * scale),
        basis=rate.basis,
    )


def _standard_error(values: Sequence[float], population: int) -> float:
    """Of the sum over all rows, as scaled up from a sample without replacement."""
    count = len(values)
    if count < 2 or count >= population:
        return 0.0
    mean = sum(values) / count
    variance = sum((value - mean) ** 2 for value in values) / (count - 1)
    return population * math.sqrt(variance / count * (1 - count / population))
