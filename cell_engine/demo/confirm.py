"""Before the demo calls an API that may cost money: which one, how much it is about, and whether that is all right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cell_engine.log import redact_text
from cell_engine.prices import prices, shown
from cell_engine.specs.compiled import CompiledSpec, SpecColumn
from cell_engine.specs.prompt import FENCE_NOTE

_OPENAI = "https://api.openai.com/v1"
_CHARACTERS_PER_TOKEN = 4
# What a computed column that others read is taken to be long, and what an answer costs, reasoning left out.
_ANSWER_CHARACTERS = 240
_ANSWER_TOKENS = _ANSWER_CHARACTERS // _CHARACTERS_PER_TOKEN
_FENCE_CHARACTERS = 40


@dataclass(frozen=True)
class Estimate:
    """What filling all rows would take: calls, tokens as a guess from the number of characters, `cost` in billionths of
    a dollar, None without a price for one of the models."""

    calls: int
    tokens_in: int
    tokens_out: int
    cost: int | None
    models: tuple[str, ...]


def estimate(spec: CompiledSpec, rows: Sequence[Mapping[str, Any]]) -> Estimate:
    """For the language model columns of `spec`; rows (by column) that lack a required input make no call."""
    calls = characters = 0
    costs: list[int | None] = []
    columns = [column for column in spec.columns if column.kind == "llm"]
    computed = {column.key for column in spec.columns if column.kind is not None}
    for column in columns:
        calls_before, characters_before = calls, characters
        for row in rows:
            cells = {**dict.fromkeys(computed, "x" * _ANSWER_CHARACTERS), **row}
            if all(dep.optional or cells.get(dep.column) is not None for dep in column.deps):
                calls += 1
                characters += _prompt_characters(column, cells)
        price = prices().of(str(column.settings["model"]))
        tokens_in, tokens_out = characters - characters_before, (calls - calls_before) * _ANSWER_TOKENS
        costs.append(None if price is None else price.cost(tokens_in // _CHARACTERS_PER_TOKEN, 0, tokens_out))
    return Estimate(
        calls,
        tokens_in=characters // _CHARACTERS_PER_TOKEN,
        tokens_out=calls * _ANSWER_TOKENS,
        cost=None if None in costs else sum(one or 0 for one in costs),
        models=tuple(dict.fromkeys(str(column.settings["model"]) for column in columns)),
    )


def describe(found: Estimate, environment: Mapping[str, str]) -> str:
    """What a person needs to know before saying yes."""
    cost = "an unknown amount (AUTOFILL_PRICES takes your prices)" if found.cost is None else shown(found.cost)
    address = redact_text(environment.get("OPENAI_BASE_URL") or _OPENAI)
    return (
        f"This calls the model {', '.join(found.models)} at {address}, with your key.\n"
        f"At most {found.calls:,} calls: about {found.tokens_in:,} tokens in and {found.tokens_out:,} out, estimated "
        f"at {_CHARACTERS_PER_TOKEN} characters a token. Reasoning models bill more tokens out than they show.\n"
        f"At list price that is about {cost}. What was computed before is kept, and not paid for again."
    )


def _prompt_characters(column: SpecColumn, cells: Mapping[str, Any]) -> int:
    parts = column.settings["prompt"]
    assert isinstance(parts, list)
    total = len(str(column.settings.get("system") or "")) + len(FENCE_NOTE)
    for part in parts:
        if isinstance(part, str):
            total += len(part)
        elif isinstance(part, dict):
            value = cells.get(str(part["column"]))
            total += _FENCE_CHARACTERS + (len(value) if isinstance(value, str) else len(str(value or "")))
    return total
