"""The calls that a row's visit would make, and what its columns' calls took before."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cell_engine.estimate.drawing import SAMPLE_ROWS, choose_of
from cell_engine.kinds.base import Call
from cell_engine.kinds.llm_chunks import chunked
from cell_engine.plan import BLOCKED, NOT_FOUND, PROPOSED, Asked, Cell, Due, Row, is_held, plan
from cell_engine.specs import prompt
from cell_engine.specs.text import Json
from cell_engine.specs.version import Column, Version
from cell_engine.store.collections import Collection, load_version
from cell_engine.store.database import Connection
from cell_engine.store.sampling import Called, Sampled, read_sample

PAST_ROWS = 150
"""Rows of all of the collection that are looked at for what its calls took."""

LEAST_PAST = 8
"""Calls after which a column's own past says more than the assumptions."""

ANSWER_CHARACTERS, READ_CHARACTERS = 240, 8_000
"""What a text that nobody has seen yet is taken to be long: an answer, and one read from a file or a page."""


@dataclass
class Past:
    """Of one column: what its calls were billed for the characters of their prompts, or for the seconds of what they
    heard, and what they answered. `tokens_out` are those of a request."""

    ratios: list[float] = field(default_factory=list)
    characters: int = 0
    tokens_in: int = 0
    tokens_out: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    models: Counter[str] = field(default_factory=Counter)
    answer: Json = None

    @property
    def is_known(self) -> bool:
        return len(self.ratios) >= LEAST_PAST


def read_past(
    connection: Connection, collection: Collection, version: Version, sample: Sequence[Sampled]
) -> dict[int, Past]:
    """By column id, from the sampled rows and some of the whole collection."""
    everywhere = choose_of([(1, collection.next_row - 1)])[:: max(1, SAMPLE_ROWS // PAST_ROWS)]
    seen = {one.row_id for one in sample}
    rows = [*sample, *read_sample(connection, collection.id, [row for row in everywhere if row not in seen])]
    versions = {version.number: version}
    past = {column.id: Past() for column in version.computed}
    for one in rows:
        for column_id, called in one.called.items():
            cell = one.row.cells[column_id]
            if cell.error_class not in (None, PROPOSED) or column_id not in past:
                continue
            if called.version not in versions:
                versions[called.version] = load_version(connection, collection.id, called.version)
            column = versions[called.version].by_id.get(column_id)
            if column is None or column.kind not in ("llm", "transcribe"):
                continue
            known = past[column_id]
            known.models[called.model] += 1
            if column.kind == "transcribe":
                _hear(known, called, cell)
                continue
            asked = requests_of(column, _inputs(column, one.row), versions[called.version].keys)
            known.tokens_out.append(called.tokens_out / max(1, asked.number))
            if called.tokens_in and asked.characters:
                known.ratios.append(called.tokens_in / asked.characters)
                known.tokens_in += called.tokens_in
                known.characters += asked.characters
    for column_id, known in past.items():  # also of what costs nothing: texts to be read are as long as those read
        answered = [one.row.cells[column_id] for one in rows if column_id in one.row.cells]
        values = (each.ai_value for each in answered if each.error_class in (None, PROPOSED))
        known.answer = next((value for value in values if value is not None), None)
    return past


def _hear(known: Past, called: Called, cell: Cell) -> None:
    seconds = (cell.details or {}).get("seconds")
    if isinstance(seconds, int | float) and seconds > 0:
        known.seconds.append(float(seconds))
        known.tokens_in += called.tokens_in
        known.tokens_out.append(called.tokens_out)


def _inputs(column: Column, row: Row) -> dict[int, Json]:
    """What a call reads, as the row shows it now."""
    values: dict[int, Json] = {}
    for dep in column.deps:
        cell = row.cells.get(dep.column)
        if cell is not None and cell.user_set:
            values[dep.column] = cell.user_value
        else:
            values[dep.column] = row.inputs.get(dep.column) if cell is None else cell.ai_value
    return values


class Requests(NamedTuple):
    """What is sent to a model for one cell: one request, or those of its parts."""

    number: int
    characters: int


def requests_of(column: Column, inputs: Mapping[int, Json], names: Mapping[int, str]) -> Requests:
    """Of an ``llm`` column's cell."""
    parts = chunked(Call(column, inputs, names, "", 0, (), 0.0))
    if parts is None:
        return Requests(1, _characters(column.settings, inputs, names))
    calls = list(parts.requests("x" * ANSWER_CHARACTERS))
    return Requests(len(calls), sum(_characters(call.column.settings, call.inputs, names) for call in calls))


def _characters(settings: Mapping[str, Json], inputs: Mapping[int, Json], names: Mapping[int, str]) -> int:
    said = prompt.conversation(settings, inputs, names)
    answers = sum(len(json.dumps(example, ensure_ascii=False)) for _, example in said.examples)
    return len(said.system) + len(said.user) + sum(len(asked) for asked, _ in said.examples) + answers


def simulate(
    row: Row, version: Version, asked: Mapping[int, Asked], past: Mapping[int, Past], *, changes: bool
) -> list[Due]:
    """The calls of one row's visit. With `changes` every answer differs from the one before, without none does; a cell
    that had none has one either way."""
    cells = dict(row.cells)
    row = Row(row.inputs, row.change, cells)
    left = dict(asked)
    calls: list[Due] = []
    for _ in version.computed:
        steps = plan(row, version, left)
        if not (steps.due or steps.blocked or steps.unfound):
            break
        for due in steps.due:
            calls.append(due)
            cells[due.column.id] = _answered(due, cells.get(due.column.id) or Cell(), past[due.column.id], changes)
            left.pop(due.column.id, None)
        for blocked in steps.blocked:
            before = cells.get(blocked.column.id) or Cell()
            cells[blocked.column.id] = Cell(
                before.user_set, before.user_value, before.ai_value, blocked.fingerprint, error_class=BLOCKED
            )
            left.pop(blocked.column.id, None)
        for unfound in steps.unfound:
            before = cells.get(unfound.column.id) or Cell()
            cells[unfound.column.id] = Cell(
                before.user_set, before.user_value, None, unfound.fingerprint, details={NOT_FOUND: unfound.reason}
            )
            left.pop(unfound.column.id, None)
    return calls


def _answered(due: Due, before: Cell, past: Past, changes: bool) -> Cell:
    value, details = before.ai_value, None
    if before.not_found is not None and not changes:
        details = before.details
    elif value is None or before.error_class is not None or changes:
        value = assumed(due.column, value if value is not None else past.answer)
    answered = Cell(
        before.user_set,
        before.user_value,
        value,
        due.fingerprint,
        called=2**62,
        read_change=due.read_change,
        details=details,
    )
    review = due.column.review
    if review is not None and review.when is None and is_held(due.column, before, value, details is not None):
        answered.error_class = PROPOSED  # what reads it is computed when it is accepted, which is another dispatch
    return answered


def assumed(column: Column, like: Json) -> Json:
    """A value of the column's type, of the length of another one where there is one, and not that one."""
    match column.type.name:
        case "choice":
            return next((one for one in column.type.choices or () if one != like), like)
        case "boolean":
            return not like
        case "integer" | "number":
            return (like if isinstance(like, int | float) else 99) + 1
        case "date":
            return "2000-01-01" if like != "2000-01-01" else "2000-01-02"
        case "datetime":
            return "2000-01-01T00:00:00+00:00" if like != "2000-01-01T00:00:00+00:00" else "2000-01-02T00:00:00+00:00"
        case "url":
            return f"https://example.invalid/{like or ''}"
        case "file":
            return f"{like or 'x'}x"
        case "list":
            return [*(like if isinstance(like, list) else ["x" * 24] * 4), "x"]
        case "json":
            return {"assumed": like if like is not None else "x" * (ANSWER_CHARACTERS // 2)}
    usual = READ_CHARACTERS if column.kind in ("extract", "fetch", "transcribe") else ANSWER_CHARACTERS
    text = like if isinstance(like, str) else "x" * usual
    return text[:-1] + ("y" if text.endswith("x") else "x")
