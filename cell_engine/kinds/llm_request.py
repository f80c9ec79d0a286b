"""What an ``llm`` column asks: the body of a request, its messages, and the schema its answer is held to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from cell_engine.kinds.base import Call
from cell_engine.specs import prompt
from cell_engine.specs.text import Json
from cell_engine.specs.version import Column

# The older max_tokens is refused by OpenAI's reasoning models.
_PARAMETERS = {"temperature": "temperature", "max_tokens": "max_completion_tokens", "seed": "seed"}

Message: TypeAlias = dict[str, Any]
"""One message of a conversation: its role and its content, a text or a list of parts."""


def body(call: Call, messages: Sequence[Message]) -> dict[str, Any]:
    """The request: settings left out are not sent."""
    settings = cast(Mapping[str, Any], call.column.settings)
    request: dict[str, Any] = {
        "model": settings["model"],
        "messages": messages,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "cell", "strict": True, "schema": schema(call.column)},
        },
    }
    for setting, parameter in _PARAMETERS.items():
        if settings.get(setting) is not None:
            request[parameter] = settings[setting]
    return request


def schema(column: Column) -> dict[str, Json]:
    """The column's type as strict mode takes it: always an object, closed, every key required."""
    return {
        "type": "object",
        "properties": {"value": column.type.json_schema()},
        "required": ["value"],
        "additionalProperties": False,
    }


def messages(call: Call) -> list[Message]:
    """The conversation that the column's settings and the call's inputs make."""
    system, user = prompt.conversation(call.column.settings, call.inputs, call.names)
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def correction(content: str, problem: str) -> list[Message]:
    """What is said after an answer that will not do."""
    return [
        {"role": "assistant", "content": content},
        {"role": "user", "content": f"That answer does not fit: {problem}\nAnswer again, as the schema demands."},
    ]
