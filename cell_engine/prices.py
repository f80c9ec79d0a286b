"""What a model's tokens cost: `data/prices.yaml`, with a file of the user's before it (AUTOFILL_PRICES).

Money is whole billionths of a dollar everywhere: a call's cost is rounded once, and from there on sums are exact in
Python and in SQL alike. Floats are not (ten million additions of $0.0001 are off by $0.0000002, and no two orders of
them agree); numeric is, but a sum takes three times as long and each value six bytes more. A bigint ends at nine
billion dollars.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from cell_engine.errors import BadValueError

DOLLAR = 1_000_000_000
"""Billionths."""

_MILLION = 1_000_000
_RELEASE = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|\d{8}|\d{4}|latest)$")


@dataclass(frozen=True, slots=True)
class Price:
    """Of one model, in billionths of a dollar a million tokens; since when, and who says so. One that bills by the
    length of what it hears has what a ``minute`` costs, and nothing for tokens."""

    tokens_in: int
    tokens_cached: int
    tokens_out: int
    source: str
    date: date
    minute: int = 0

    def cost(self, tokens_in: int, tokens_cached: int, tokens_out: int) -> int:
        """Of one call, in billionths of a dollar, rounded half up. `tokens_in` includes `tokens_cached`."""
        cached = min(tokens_cached, tokens_in)
        millionths = (tokens_in - cached) * self.tokens_in + cached * self.tokens_cached + tokens_out * self.tokens_out
        return (millionths + _MILLION // 2) // _MILLION

    def cost_of_seconds(self, seconds: float) -> int:
        """Of one call over so much sound, as `cost`."""
        return int((Decimal(seconds) * self.minute / 60).to_integral_value(ROUND_HALF_UP))


@dataclass(frozen=True, slots=True)
class Prices:
    """By model name, those of the user first."""

    models: Mapping[str, Price]

    def of(self, model: str | None) -> Price | None:
        """The price of a model or of the one it is a dated release of; None where nobody has said."""
        if model is None:
            return None
        found = self.models.get(model)
        return found if found is not None else self.models.get(_RELEASE.sub("", model))


@cache
def prices() -> Prices:
    """Read once a process. Raises BadValueError that names the file, the model and what is wrong with it."""
    from cell_engine.settings import get_settings  # not at the top: the command line shows amounts, and starts light

    ours = files("cell_engine").joinpath("data/prices.yaml").read_text(encoding="utf-8")
    models = _read(ours, "prices.yaml")
    theirs = get_settings().prices
    if theirs is not None:
        models |= _read(_text(theirs), str(theirs))
    return Prices(models)


def dollars(amount: str) -> int:
    """Billionths of what a person wrote, such as "12.50" or "$3". Raises BadValueError."""
    try:
        value = Decimal(amount.strip().removeprefix("$").replace(",", ""))
        billionths = int((value * DOLLAR).to_integral_value(ROUND_HALF_UP))
    except (InvalidOperation, OverflowError, ValueError):
        raise BadValueError(f"{amount!r} is no amount of dollars: write one such as 12.50") from None
    if not 0 <= billionths < 2**62:
        raise BadValueError(f"{amount!r}: an amount of dollars is 0 at least, and no more than four billion")
    return billionths


def shown(cost: int | None) -> str:
    """Dollars for people: cents where they say enough, else two digits; "unknown" for None."""
    if cost is None:
        return "unknown"
    value = Decimal(cost) / DOLLAR
    if cost == 0 or abs(value) >= 1:
        return f"${value:,.2f}"
    digits = max(2, 1 - value.adjusted())
    return f"${value:.{digits}f}"


def spent(cost: int, unpriced: int) -> str:
    """What calls have cost, for people: some of them may have cost nobody knows what."""
    if not unpriced:
        return shown(cost)
    return f"{shown(cost) + ' + ' if cost else ''}unknown ({unpriced:,} {'call' if unpriced == 1 else 'calls'})"


def as_dollars(cost: int | None) -> float | None:
    """For programs: a number of dollars, with all nine digits up to some millions of them. Nothing adds these up."""
    return None if cost is None else cost / DOLLAR


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadValueError(f"AUTOFILL_PRICES: {file} cannot be read: {error}") from None


def _read(text: str, name: str) -> dict[str, Price]:
    import yaml

    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadValueError(f"{name} is no YAML: {error}") from None
    models = found.get("models") if isinstance(found, dict) else None
    if not isinstance(models, dict):
        raise BadValueError(f"{name}: expected `models:` and below it a line for each model, as in prices.yaml")
    return {str(model): _price(entry, f"{name}: {model}") for model, entry in models.items()}


def _price(entry: Any, where: str) -> Price:
    if not isinstance(entry, dict):
        raise BadValueError(f"{where}: expected {{in: …, out: …, source: …, date: …}}")
    unknown = set(entry) - {"in", "cached", "out", "minute", "source", "date"}
    if unknown:
        raise BadValueError(f"{where}: unknown {', '.join(sorted(map(str, unknown)))}")
    by_minute = entry.get("minute") is not None
    if by_minute and set(entry) & {"in", "cached", "out"}:
        raise BadValueError(f"{where}: either a price a minute, or prices of tokens")
    for needed in ("source", "date") if by_minute else ("in", "out", "source", "date"):
        if entry.get(needed) is None:
            raise BadValueError(f"{where}: {needed} is missing")
    if not isinstance(entry["date"], date):
        raise BadValueError(f"{where}: date {entry['date']!r} is none: write it as 2026-11-30")
    if by_minute:
        return Price(0, 0, 0, str(entry["source"]), entry["date"], _amount(entry["minute"], where))
    price_in = _amount(entry["in"], where)
    cached = price_in if entry.get("cached") is None else _amount(entry["cached"], where)
    return Price(price_in, cached, _amount(entry["out"], where), str(entry["source"]), entry["date"])


def _amount(value: object, where: str) -> int:
    try:
        if isinstance(value, bool):
            raise BadValueError(str(value))
        return dollars(str(value))
    except BadValueError:
        raise BadValueError(f"{where}: {value!r} is no price: write dollars a million tokens, or a minute") from None
