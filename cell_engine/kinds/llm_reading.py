"""What a model answered: the text of its completion, and the value in it."""

from __future__ import annotations

import json

from cell_engine.errors import BadValueError
from cell_engine.kinds.base import Failure
from cell_engine.kinds.llm_client import Completion
from cell_engine.kinds.provider_errors import class_of
from cell_engine.specs.text import Json, shorten
from cell_engine.specs.types import ColumnType


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


def value_of(content: str, column_type: ColumnType) -> Json:
    """The cell's value out of ``{"value": …}``; raises BadValueError for everything else."""
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadValueError(f"not JSON: {error}: {shorten(content)}") from None
    if not isinstance(answer, dict) or answer.keys() != {"value"}:
        raise BadValueError(f'expected an object with the single key "value", not {shorten(content)}')
    return column_type.accept_answer(answer["value"])
