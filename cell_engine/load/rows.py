"""What every source of rows becomes: records, numbered, each a row that fits or the reason why not."""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from typing import NamedTuple

from cell_engine.load.errors import LoadError
from cell_engine.specs.explain import suggest
from cell_engine.specs.text import Json, shorten
from cell_engine.specs.version import Column, Version
from cell_engine.store.rejected import RAW_CHARACTERS, Rejected

ROW_BYTES = 64 * 2**20
"""What one row may take in memory; beyond it the row is rejected."""

_FAULTS_SHOWN = 3


class Record(NamedTuple):
    """One record of a file or frame: `row` (column id → accepted value, missing ones absent), or `reason` why it is
    rejected. `line`: where it begins, from 1; in Parquet and frames the row's number. `size`: bytes it takes in memory.
    `missing`: columns of which the record says that they hold nothing. Of a rejected one, `raw` is what stands there,
    and `fields` its cells as texts, as far as it can be taken apart.
    """

    line: int
    row: dict[int, Json] | None
    reason: str
    size: int
    missing: tuple[int, ...] = ()
    raw: str = ""
    fields: dict[int, str] | None = None


def as_rejected(record: Record) -> Rejected:
    return Rejected(record.line, record.reason, record.raw, record.fields)


def rejection(line: int, reason: str, raw: str = "", fields: dict[int, str] | None = None) -> Record:
    if len(raw) > RAW_CHARACTERS:
        raw, fields = raw[: RAW_CHARACTERS + 1], None
    size = sum(map(sys.getsizeof, (reason, raw, *(fields or {}).values())))
    return Record(line, None, reason, size, raw=raw, fields=fields)


def record(
    line: int,
    row: dict[int, Json],
    faults: Sequence[str],
    missing: Sequence[int] = (),
    told: Callable[[], tuple[str, dict[int, str]]] = lambda: ("", {}),
) -> Record:
    """The record that `row` makes; `faults` are what is wrong with its cells, and `told` gives what is kept then."""
    if faults:
        shown = "; ".join(faults[:_FAULTS_SHOWN])
        more = len(faults) - _FAULTS_SHOWN
        return rejection(line, f"{shown}; and {more} more" if more > 0 else shown, *told())
    size = size_of(row)
    if size > ROW_BYTES:
        return rejection(line, f"the row takes {size >> 20:,} MB; {ROW_BYTES >> 20} MB is the most")
    return Record(line, row, "", size, tuple(missing))


def as_text(value: object) -> str:
    """A cell as it would stand in a CSV."""
    if isinstance(value, str):
        return value
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bool | int | float | list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def told_of(cells: Iterable[tuple[Column, object]]) -> tuple[str, dict[int, str]]:
    """What is kept of a rejected row that is no text where it comes from."""
    fields = {column: as_text(value) for column, value in cells if value is not None}
    raw = json.dumps({column.name: text for column, text in fields.items()}, ensure_ascii=False)
    return raw, {column.id: text for column, text in fields.items()}


def size_of(value: object) -> int:
    """The bytes that a JSON value takes in memory, about."""
    size = sys.getsizeof(value)
    if isinstance(value, list | dict):
        items = value if isinstance(value, list) else [*value, *value.values()]
        for item in items:
            size += size_of(item) if isinstance(item, list | dict) else sys.getsizeof(item)
    return size


def match_columns(names: Sequence[str], version: Version, where: str) -> list[Column]:
    """The input column that each of `names` is, by exact name; inputs that are not named stay missing.

    Raises LoadError with all that is wrong with the names, `where` in front of each, and the columns there are.
    """
    inputs = [column.name for column in version.input_columns]
    columns: list[Column] = []
    problems: list[str] = []
    first_at: dict[str, int] = {}
    for number, name in enumerate(names, 1):
        column = version.by_name.get(name)
        shown = f"header {number}, {shorten(name)}"
        if name in first_at:
            problems.append(f"{shown}, is the same as header {first_at[name]}")
        elif not name:
            problems.append(f"header {number} is empty")
        elif column is None or column.kind is not None:
            separated = _separator_hint(name, names)
            problems.append(f"{shown},{separated or column_hint(name, version)}")
        else:
            columns.append(column)
        first_at.setdefault(name, number)
    if not names:
        problems.append("it has no columns")
    if problems:
        there_are = ", ".join(map(repr, inputs)) or "none"
        lines = [f"{where}: {problem}" for problem in problems]
        raise LoadError("\n".join([*lines, f"columns that can be loaded: {there_are}"]))
    return columns


def column_hint(name: str, version: Version) -> str:
    """Why `name` is no column that can be loaded, and what may have been meant."""
    column = version.by_name.get(name)
    if column is not None:
        return f" is a computed column: its cells are filled in by {column.kind}, not loaded"
    return " is no column of the collection" + suggest(name, [one.name for one in version.input_columns])


def _separator_hint(name: str, names: Sequence[str]) -> str:
    """What else than a wrong name may be wrong with a header; empty where nothing is."""
    no_column = " is no column of the collection"
    if "\n" in name or "\r" in name:
        return f"{no_column}: it contains a line break; is a quote left open?"
    if "\x00" in name:
        return f"{no_column}: it contains U+0000; is the file UTF-16? Save it as UTF-8"
    separator = next((one for one in ";\t|" if one in name), None)
    if len(names) == 1 and separator:
        wanted = "They must be by commas" if separator != "\t" else "Name the file .tsv"
        return f"{no_column}; are its fields separated by {separator!r}? {wanted}"
    return ""
