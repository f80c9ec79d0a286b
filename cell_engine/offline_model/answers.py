"""From a chat-completions request to an answer: deterministic, by extraction and word lists."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from itertools import chain
from typing import Any, Literal

from cell_engine.offline_model import extract, facts
from cell_engine.offline_model.choices import all_choices, best_choice
from cell_engine.offline_model.grounds import (
    DOES_NOT_SAY,
    NUMBER,
    Cell,
    Ground,
    ground_of,
    made_up,
    stated_ground,
    unit_of,
)
from cell_engine.offline_model.media import seen
from cell_engine.offline_model.notes import told
from cell_engine.offline_model.switches import Fault

_LIST_LENGTH = 5
_NO_TEXT = "There is no text to answer from."
_NO_DATE = "1970-01-01"
_NO_URL = "https://offline-model.invalid/no-url-found"

# How cell_engine.specs.prompt fences a cell.
_CELL = re.compile(r"<(column(?:-\d+)?) name=\"([^\"]*)\"[^>]*>(.*?)</\1>", re.DOTALL)
_DATE = re.compile(r"(?<!\d)\d{4}-\d{2}-\d{2}(?!\d)")


class BadRequestError(Exception):
    """The request breaks the protocol; the message goes back as OpenAI's 400."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True)
class Completion:
    """One answer: ``content`` is JSON text if a schema was given; the length of the prompt is for ``usage``.

    ``flaw`` is what was made wrong with it.
    """

    content: str
    finish_reason: Literal["stop", "length"]
    prompt_characters: int
    flaw: Fault | None = None


@dataclass(frozen=True)
class _Prompt:
    instruction: str
    data: str
    cells: tuple[Cell, ...] = ()


def complete(request: Mapping[str, Any], *, flaw: Fault | None = None) -> Completion:
    """Answer one request; raises BadRequestError with OpenAI-like words.

    The ``flaw`` ``wrong_shape`` is JSON that does not fit the schema, as models without strict mode answer;
    ``invalid_json`` is no JSON where JSON was asked for, and nothing for a text; ``truncated`` is half of the
    answer; ``unsupported`` are quotes that stand nowhere, where quotes were asked for. The other faults are not an
    answer's and change nothing here.
    """
    messages = _messages(request)
    schema = _schema(request)
    prompt = _prompt(messages)
    if flaw not in ("wrong_shape", "invalid_json", "truncated", "unsupported") or (
        flaw == "invalid_json" and schema is None
    ):
        flaw = None
    if flaw == "unsupported" and (schema is None or "evidence" not in schema.get("properties", {})):
        flaw = None
    if flaw == "wrong_shape":
        content = '{"unexpected": true}'
    elif schema is None:
        content = extract.summary(prompt.data) or _NO_TEXT
    else:
        value = _value(schema, prompt, "response_format")
        if flaw == "unsupported":
            value["evidence"] = [made_up(Ground(**one))._asdict() for one in value["evidence"]]
        content = json.dumps(value, ensure_ascii=False)
    if flaw == "invalid_json":
        content = "[" + content  # whatever the schema, this is no JSON, and it holds none that a reader could unwrap
    limit = request.get("max_completion_tokens") or request.get("max_tokens")
    room = limit * 4 if isinstance(limit, int) else len(content)
    if flaw == "truncated":
        room = min(room, len(content) // 2)
    return Completion(
        content=content[:room],
        finish_reason="length" if room < len(content) else "stop",
        prompt_characters=sum(len(text) for _, text in messages),
        flaw=flaw,
    )


def _messages(request: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not isinstance(request.get("model"), str) or not request["model"]:
        raise BadRequestError("you must provide a model parameter", "model")
    for unsupported in ("stream", "tools", "functions"):
        if request.get(unsupported):
            raise BadRequestError(f"The offline model does not support '{unsupported}'.", unsupported)
    if request.get("n") not in (None, 1):
        raise BadRequestError("The offline model gives one choice: 'n' must be 1.", "n")
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequestError("'messages' must be a list with at least one message.", "messages")
    return [_message(message, at) for at, message in enumerate(messages)]


def _message(message: object, at: int) -> tuple[str, str]:
    if isinstance(message, dict) and isinstance(message.get("role"), str):
        content = message.get("content")
        if isinstance(content, str):
            return message["role"], content
        if isinstance(content, list) and all(isinstance(part, dict) for part in content):
            return message["role"], "".join(_part(part, f"messages[{at}]") for part in content)
    raise BadRequestError(f"Invalid message: 'messages[{at}]' needs a 'role' and a text 'content'.", f"messages[{at}]")


def _part(part: Mapping[str, Any], where: str) -> str:
    """The text of a part; of a picture the words that it carries, or that it cannot be seen."""
    if part.get("type") == "image_url":
        image = part.get("image_url")
        try:
            return seen(image.get("url") if isinstance(image, dict) else None)
        except ValueError as error:
            raise BadRequestError(f"Invalid message: {where}: {error}", where) from None
    return part["text"] if isinstance(part.get("text"), str) else ""


def _prompt(messages: list[tuple[str, str]]) -> _Prompt:
    """What to answer from: the last user message with cells, for those before it are examples, and those behind it only
    correct an answer that was given; without any cells, the first."""
    asked = [text for role, text in messages if role == "user"] or [messages[-1][1]]
    text = next((text for text in reversed(asked) if _CELL.search(text)), asked[0])
    cells = tuple(Cell(match.group(2), told(match.group(3))) for match in _CELL.finditer(text))
    if cells:
        return _Prompt(_CELL.sub(" ", text), "\n\n".join(cell.text for cell in cells), cells)
    for separator in ("\n\n", "\n", ": "):
        instruction, found, data = text.partition(separator)
        if found and data.strip():
            return _Prompt(instruction, data)
    return _Prompt("", text)


def _schema(request: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The JSON schema asked for; None if plain text will do."""
    response_format = request.get("response_format")
    kind = response_format.get("type") if isinstance(response_format, dict) else None
    if response_format is None or kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object", "properties": {"answer": {"type": "string"}}}
    wrapper = response_format.get("json_schema") if isinstance(response_format, dict) else None
    if kind != "json_schema" or not isinstance(wrapper, dict) or not isinstance(wrapper.get("schema"), dict):
        raise BadRequestError(
            "'response_format' must be text, json_object or json_schema with a schema.", "response_format"
        )
    if not isinstance(wrapper.get("name"), str):
        raise BadRequestError("Missing required parameter: 'response_format.json_schema.name'.", "response_format")
    schema: Mapping[str, Any] = wrapper["schema"]
    if wrapper.get("strict"):
        if schema.get("type") != "object":
            raise _invalid_schema("response_format", "a strict schema must be of type object")
        _check_strict(schema, "response_format")
    return schema


def _check_strict(schema: object, path: str) -> None:
    """The rules of OpenAI's strict mode for objects, at every depth."""
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            if schema.get("additionalProperties") is not False:
                raise _invalid_schema(path, "'additionalProperties' is required to be supplied and to be false")
            if set(schema.get("required", ())) != set(schema.get("properties", ())):
                raise _invalid_schema(path, "'required' must list every key of 'properties'")
        for key, part in schema.items():
            if key != "enum":
                _check_strict(part, f"{path}.{key}")
    elif isinstance(schema, list):
        for part in schema:
            _check_strict(part, path)


def _invalid_schema(path: str, problem: str) -> BadRequestError:
    return BadRequestError(f"Invalid schema for response_format: in {path}, {problem}.", "response_format")


def _value(schema: Mapping[str, Any], prompt: _Prompt, path: str) -> Any:
    """A value that fits ``schema``, found in the prompt's data."""
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return _choice(schema["enum"], prompt, path)
    for union in ("anyOf", "oneOf"):
        if schema.get(union):
            return _value(_first_not_null(schema[union]), prompt, path)
    match _type_of(schema):
        case "object" if "evidence" in schema.get("properties", {}) or _may_not_find(schema):
            return _grounded(schema["properties"], prompt, path)
        case "object" if schema.get("properties", {}).keys() == {"amount", "unit"}:
            amount = _value(schema["properties"]["amount"], prompt, path)
            measure, other = schema["properties"]["unit"]["enum"]
            return {"amount": amount, "unit": unit_of(measure, other, amount, prompt.data)}
        case "object":
            return {name: _value(part, prompt, f"{path}.{name}") for name, part in schema.get("properties", {}).items()}
        case "array":
            return _list(schema, prompt, path)
        case "string" | None:
            return _string(schema, prompt)
        case "integer":
            return int(_number(schema, prompt, whole=True))
        case "number":
            return _number(schema, prompt, whole=False)
        case "boolean":
            return _is_said(prompt)
        case "null":
            return None
        case unknown:
            raise _invalid_schema(path, f"the offline model knows no type {unknown!r}")


def _grounded(properties: Mapping[str, Any], prompt: _Prompt, path: str) -> dict[str, Any]:
    """An answer with the sentence that it was found in; where there is none, and it may say so: not found."""
    may_not_find = _may_not_find({"properties": properties})
    asked = properties["value"]["anyOf"][0] if may_not_find else properties["value"]
    value = _value(asked, prompt, path)
    ground = stated_ground(prompt.cells, prompt.instruction)
    ground = ground or ground_of(asked, value, prompt.cells, prompt.instruction)
    answer = {
        "evidence": [ground._asdict()] if ground is not None else [],
        "value": {"not_found": DOES_NOT_SAY} if ground is None and may_not_find else value,
    }
    return {name: answer[name] for name in properties}


def _may_not_find(schema: Mapping[str, Any]) -> bool:
    """Whether the value may be an object that says why there is none."""
    others = schema.get("properties", {}).get("value", {}).get("anyOf", ())[1:]
    return any(other.get("properties", {}).keys() == {"not_found"} for other in others)


def _type_of(schema: Mapping[str, Any]) -> Any:
    named = schema.get("type")
    if isinstance(named, list):
        return next((each for each in named if each != "null"), "null")
    if named is None and ("$ref" in schema or "allOf" in schema):
        raise _invalid_schema("response_format", "the offline model reads neither $ref nor allOf")
    return named


def _first_not_null(schemas: list[Mapping[str, Any]]) -> Mapping[str, Any]:
    return next((each for each in schemas if each.get("type") != "null"), schemas[0])


def _choice(choices: list[Any], prompt: _Prompt, path: str) -> Any:
    texts = [choice for choice in choices if isinstance(choice, str)]
    if texts:
        return best_choice(texts, facts.stated(prompt.instruction, prompt.data) or prompt.data)
    if not choices:
        raise _invalid_schema(path, "'enum' is empty")
    return choices[0]


def _list(schema: Mapping[str, Any], prompt: _Prompt, path: str) -> list[Any]:
    items = schema.get("items") or {"type": "string"}
    most = schema.get("maxItems", _LIST_LENGTH)
    if "enum" in items and all(isinstance(choice, str) for choice in items["enum"]):
        return all_choices(items["enum"], prompt.data)[:most]
    if _type_of(items) == "string" and not items.keys() & {"format", "description"}:
        found = extract.keywords(prompt.data, min(most, _LIST_LENGTH))
        return found + [_NO_TEXT] * (schema.get("minItems", 0) - len(found))
    return [_value(items, prompt, path)] * max(1, schema.get("minItems", 1))


def _string(schema: Mapping[str, Any], prompt: _Prompt) -> str:
    described = str(schema.get("description", ""))
    stated = facts.stated(prompt.instruction, prompt.data)
    if schema.get("format") == "date":
        return _date(stated, prompt.data)
    if schema.get("format") == "date-time":
        return _date(stated, prompt.data) + "T00:00:00+00:00"
    if schema.get("format") == "uri" or "URL" in described:
        return extract.first_url(prompt.data) or _NO_URL
    text = stated or extract.line(prompt.instruction, extract.summary(prompt.data)) or _NO_TEXT
    return json.dumps({"text": text}, ensure_ascii=False) if "JSON" in described else text


def _date(stated: str | None, text: str) -> str:
    if stated is not None and (day := facts.first_date(stated)):
        return day.isoformat()
    for match in _DATE.finditer(text):
        try:
            return date.fromisoformat(match.group()).isoformat()
        except ValueError:
            continue
    return _NO_DATE


def _number(schema: Mapping[str, Any], prompt: _Prompt, *, whole: bool) -> float:
    """What is stated, else the first number in the data, else how many words its head has; moved into the schema's
    bounds."""
    least, most = schema.get("minimum", float("-inf")), schema.get("maximum", float("inf"))
    stated = facts.stated(prompt.instruction, prompt.data)
    amount = facts.first_amount(stated) if stated is not None else None
    found_numbers = (float(match.group()) for match in NUMBER.finditer(prompt.data[: extract.HEAD_CHARACTERS]))
    numbers = chain([] if amount is None else [amount], found_numbers)
    fitting = (number for number in numbers if least <= number <= most and (not whole or number.is_integer()))
    found = next(fitting, None)
    if found is None:
        found = min(max(len(extract.words(prompt.data)), least), most)
    return found


def _is_said(prompt: _Prompt) -> bool:
    """Whether the data speaks of at least half of what the instruction asks about."""
    asked = set(extract.words(prompt.instruction))
    return bool(asked) and 2 * len(asked & set(extract.words(prompt.data))) >= len(asked)
