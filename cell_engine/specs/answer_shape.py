"""The JSON that a model is to answer with: ``value``, and ``evidence`` where a column has it.

Where a column may not find its answer, ``value`` is either that or an object that says why there is none: of two keys,
one to be null, small models filled both. Strict mode takes closed objects alone, every key required, and such a union
in a property. Evidence comes first: a model that has quoted answers from what it quoted.
"""

import json
from collections.abc import Mapping, Sequence

from cell_engine.specs.text import Json
from cell_engine.specs.types import ColumnType

NOT_FOUND_NOTE = (
    "Do not guess: if the answer is not in the data, or the data is not enough to tell, value is an object that says "
    'why: {"not_found": "…"}.'
)
EVIDENCE_NOTE = (
    "In evidence, quote the passages that the answer rests on, each word for word as it stands in the data, with the "
    "name of its column."
)


def may_not_find(settings: Mapping[str, Json]) -> bool:
    """Whether "not found" is an answer; with evidence it is, unless the column says otherwise."""
    declared = settings.get("not_found")
    return needs_evidence(settings) if declared is None else bool(declared)


def needs_evidence(settings: Mapping[str, Json]) -> bool:
    return settings.get("evidence") == "required"


def notes(with_evidence: bool, may_not_find: bool) -> list[str]:
    """What the system message says of the answer."""
    return [EVIDENCE_NOTE] * with_evidence + [NOT_FOUND_NOTE] * may_not_find


def schema(column_type: ColumnType, settings: Mapping[str, Json], columns: Sequence[str]) -> dict[str, Json]:
    """``columns`` are those that may be quoted, by key."""
    properties: dict[str, Json] = {}
    value = column_type.json_schema()
    if needs_evidence(settings):
        quote: Json = {"type": "string", "description": "A passage of that column, word for word."}
        properties["evidence"] = {
            "type": "array",
            "items": _object({"column": {"type": "string", "enum": list(columns)}, "quote": quote}),
        }
    why: Json = {"type": "string", "description": "Why there is no answer."}
    properties["value"] = {"anyOf": [value, _object({"not_found": why})]} if may_not_find(settings) else value
    return _object(properties)


def written(
    column_type: ColumnType,
    settings: Mapping[str, Json],
    value: Json,
    not_found: str | None = None,
    evidence: Sequence[Json] = (),
) -> str:
    """An answer as the model is to write it."""
    answer: dict[str, Json] = {}
    if needs_evidence(settings):
        answer["evidence"] = list(evidence)
    answer["value"] = column_type.as_answer(value) if not_found is None else {"not_found": not_found}
    return json.dumps(answer, ensure_ascii=False)


def _object(properties: dict[str, Json]) -> dict[str, Json]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
