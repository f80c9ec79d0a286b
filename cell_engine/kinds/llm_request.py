"""What an ``llm`` column asks: the body of a request, its messages, and what follows an answer that will not do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from cell_engine.kinds.base import Call
from cell_engine.specs import answer_shape, prompt
from cell_engine.specs.text import Json

# The older max_tokens is refused by OpenAI's reasoning models.
_PARAMETERS = {
    "temperature": "temperature",
    "max_tokens": "max_completion_tokens",
    "seed": "seed",
    "reasoning_effort": "reasoning_effort",
}

Message: TypeAlias = dict[str, Any]
"""One message of a conversation: its role and its content, a text or a list of parts."""


def body(call: Call, messages: Sequence[Message]) -> dict[str, Any]:
    """The request: settings left out are not sent."""
    settings = cast(Mapping[str, Any], call.column.settings)
    columns = list(quotable(call)) if answer_shape.needs_evidence(settings) else ()
    schema = answer_shape.schema(call.column.type, settings, columns)
    request: dict[str, Any] = {
        "model": settings["model"],
        "messages": messages,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "cell", "strict": True, "schema": schema},
        },
    }
    for setting, parameter in _PARAMETERS.items():
        if settings.get(setting) is not None:
            request[parameter] = settings[setting]
    return request


def messages(call: Call) -> list[Message]:
    """The conversation that the column's settings and the call's inputs make."""
    column = call.column
    said = prompt.conversation(column.settings, call.inputs, call.names)
    turns: list[Message] = [{"role": "system", "content": said.system}]
    for asked, example in said.examples:
        evidence = cast(Sequence[Json], example["evidence"])
        reason = cast(str | None, example["not_found"])
        answer = answer_shape.written(column.type, column.settings, example["output"], reason, evidence)
        turns += [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
    return [*turns, {"role": "user", "content": said.user}]


def quotable(call: Call) -> dict[str, Json]:
    """The inputs that the prompt shows, by column key."""
    shown = prompt.referred(cast(Sequence[Json], call.column.settings["prompt"]))
    return {call.names[column]: call.inputs[column] for column in shown}


def correction(content: str, problem: str) -> list[Message]:
    """What is said after an answer that will not do."""
    return [
        {"role": "assistant", "content": content},
        {"role": "user", "content": f"That answer does not fit: {problem}\nAnswer again, as the schema demands."},
    ]
