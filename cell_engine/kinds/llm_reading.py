"""What a model answered: the text of its completion, and the answer in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import NamedTuple

from cell_engine.errors import BadValueError
from cell_engine.kinds.base import Failure
from cell_engine.kinds.evidence import Claim
from cell_engine.kinds.llm_client import Completion
from cell_engine.kinds.provider_errors import class_of
from cell_engine.specs import answer_shape
from cell_engine.specs.text import Json, clean_text, shorten
from cell_engine.specs.types import ColumnType

REASON_CHARACTERS = 500
"""As much is kept of why something was not found."""


def content_of(completion: Completion) -> str | Failure:
    """The text of the answer, or why there is none that could be used."""
    if completion.error is not None:  # gateways report an upstream's error with status 200
        status = completion.error.code if isinstance(completion.error.code, int) else 500
        return Failure(
            class_of(status, {str(completion.error.code)}, completion.error.message),
            f"The model's server failed: {completion.error.message}",
        )
    if not completion.choices:
        return Failure("transient", "The model's server sent an answer without choices.")
    choice = completion.choices[0]
    if choice.finish_reason == "length":
        return Failure(
            "truncated",
            f"The model's answer was cut off after {completion.usage.completion_tokens if completion.usage else '?'} "
            "tokens. Raise the column's llm.max_tokens, or leave it out.",
        )
    if choice.finish_reason == "content_filter":
        return Failure("refused", "The provider's content filter held the answer back.")
    if choice.message.refusal:
        return Failure("refused", f"The model refused: {choice.message.refusal}")
    return choice.message.content or ""


class Said(NamedTuple):
    """An answer of the right shape: a value that fits the column's type, or why there is none, and what it rests on."""

    value: Json
    not_found: str | None
    claims: list[Claim]


# Decimals as they are written: a double would round them before the type could refuse to.
_DECODER = json.JSONDecoder(parse_float=Decimal)


def read(content: str, column_type: ColumnType, settings: Mapping[str, Json]) -> Said:
    """The answer in the JSON that was asked for; raises BadValueError, in words for the model, for everything else."""
    try:
        answer = _DECODER.decode(content)
    except (ValueError, RecursionError) as error:
        raise BadValueError(f"not JSON: {error}: {shorten(content)}") from None
    has_evidence, may_not_find = answer_shape.needs_evidence(settings), answer_shape.may_not_find(settings)
    keys = ["evidence", "value"] if has_evidence else ["value"]
    if not isinstance(answer, dict) or answer.keys() != set(keys):
        named = f'the single key "{keys[0]}"' if len(keys) == 1 else "the keys " + ", ".join(f'"{key}"' for key in keys)
        raise BadValueError(f"expected an object with {named}, not {shorten(content)}")
    claims = _claims(answer["evidence"]) if has_evidence else []
    value = answer["value"]
    if may_not_find and (value is None or (isinstance(value, dict) and "not_found" in value)):
        reason = value.get("not_found") if value is not None and len(value) == 1 else None
        if not isinstance(reason, str) or not (reason := clean_text(reason).strip()):
            raise BadValueError(
                '"value" is an answer or, where there is none, {"not_found": …} with a text that says why'
            )
        return Said(None, reason[:REASON_CHARACTERS], [])
    return Said(column_type.accept_answer(value), None, claims)


def _claims(evidence: object) -> list[Claim]:
    if not isinstance(evidence, list):
        raise BadValueError('"evidence" is a list of quotes')
    claims = []
    for one in evidence:
        match one:
            case {"column": str(column), "quote": str(quote)} if len(one) == 2:
                claims.append(Claim(column, clean_text(quote)))
            case _:
                raise BadValueError(f'each of "evidence" has "column" and "quote", both texts, not {shorten(one)}')
    return claims
