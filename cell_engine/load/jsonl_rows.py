"""JSON Lines into records: an object a line, its keys the names of input columns; null and an absent key are missing.

What breaks a line (no JSON, no object, a key twice, an unknown one) costs that line alone.
"""

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, TextIO

from cell_engine.errors import BadValueError
from cell_engine.load.content import Content
from cell_engine.load.rows import Record, column_hint, record, rejection, told_of
from cell_engine.specs.text import Json, shorten
from cell_engine.specs.version import Column, Version

LINE_LIMIT = 64 * 2**20
"""The most characters in one line."""


def jsonl_rows(content: Content, version: Version, skip: int) -> Iterator[Record]:
    """The records after the first `skip`; blank lines are no records."""
    inputs = {column.name: column for column in version.input_columns}
    with content.open(newline="\n") as file:
        for line, text in islice(_lines(file), skip, None):
            yield rejection(line, _TOO_LONG) if text is None else _record(line, text, inputs, version)


_TOO_LONG = f"longer than {LINE_LIMIT:,} characters"


def _lines(file: TextIO) -> Iterator[tuple[int, str | None]]:
    """Each line that holds anything, numbered; None for one beyond the limit, which is passed without being kept."""
    line = 0
    while text := file.readline(LINE_LIMIT + 1):
        line += 1
        if len(text) > LINE_LIMIT:
            while text and not text.endswith("\n"):
                text = file.readline(LINE_LIMIT)
            yield line, None
        elif text.strip():
            yield line, text


def _record(line: int, text: str, inputs: dict[str, Column], version: Version) -> Record:
    try:
        found = json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except _KeyTwiceError as error:
        return rejection(line, f"the key {shorten(str(error))} stands there twice", text.strip())
    except json.JSONDecodeError as error:
        return rejection(line, f"not JSON: {error.msg} at character {error.colno}", text.strip())
    except (ValueError, RecursionError) as error:
        return rejection(line, f"not JSON: {error}", text.strip())
    if not isinstance(found, dict):
        reason = f'not an object but {shorten(text.strip())}: write {{"column": value, …}} a line'
        return rejection(line, reason, text.strip())
    row: dict[int, Json] = {}
    faults: list[str] = []
    missing: list[int] = []
    for name, value in found.items():
        column = inputs.get(name)
        if column is None:
            faults.append(f"key {shorten(name)}{column_hint(name, version)}")
        elif value is None:
            missing.append(column.id)
        else:
            try:
                row[column.id] = column.type.accept(value)
            except BadValueError as error:
                faults.append(f"column {column.name!r}: {error}")
    known = ((column, found[name]) for name, column in inputs.items() if name in found)
    return record(line, row, faults, missing, lambda: (text.strip(), told_of(known)[1]))


class _KeyTwiceError(Exception):
    """A JSON object names a key twice: which value was meant is not to be guessed."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _KeyTwiceError(next(name for name in names if names.count(name) > 1))
    return found


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no number in JSON")
