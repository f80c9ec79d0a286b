"""Rejected lines on their way out as a CSV, and back in once a person has repaired them.

The file has a line for each: its number (by which it is marked as repaired), where it came from, why it was rejected,
its cells, and its text as it stood there. What a spreadsheet would take for a formula is written behind an apostrophe,
which is taken off again on the way in.
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TextIO

from cell_engine.load.csv_rows import csv_records, read_header, row_of
from cell_engine.load.errors import LoadError
from cell_engine.load.rows import Record, match_columns, rejection
from cell_engine.load.source import FileSource, open_file
from cell_engine.specs.text import FORMULA_STARTS
from cell_engine.specs.version import Version
from cell_engine.store.collections import Collection
from cell_engine.store.database import Connection
from cell_engine.store.rejected import KeptLine, open_rejected

NUMBER = "rejected"
_TOLD = ("source", "line", "reason")
_RAW = "raw"
# What a spreadsheet runs, and the apostrophe itself, so that what is taken off again is what was put on.
_FORMULA = (*FORMULA_STARTS, "'")


def write_rejected(lines: Iterable[KeptLine], version: Version, file: TextIO) -> int:
    """Write them as CSV; returns how many there were."""
    columns = version.input_columns
    names = {column.name for column in columns}
    told = [_apart(name, names) for name in (NUMBER, *_TOLD)]
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*told, *(column.name for column in columns), _apart(_RAW, names)])
    count = 0
    for one in lines:
        fields = one.fields or {}
        texts = [one.source, str(one.line), one.reason, *(fields.get(column.id, "") for column in columns), one.raw]
        writer.writerow([one.id, *map(_defused, texts)])
        count += 1
    return count


@dataclass(slots=True)
class Repair:
    """A file of repaired lines. `numbers`: by line, the rejected lines that its records are; `passed` is how many lines
    were left as they were, with no cell filled in, or had been repaired before."""

    file: FileSource
    connection: Connection
    collection: Collection
    numbers: dict[int, int] = field(default_factory=dict)
    passed: int = 0

    def records(self, version: Version, skip: int) -> Iterator[Record]:
        """Those after the first `skip`. Raises LoadError."""
        self.passed = 0
        return islice(self._records(version), skip, None)

    def _records(self, version: Version) -> Iterator[Record]:
        path = self.file.content.path
        with self.file.content.open(newline="") as file:
            records = csv_records(file, ",")
            line, names = read_header(records)
            if isinstance(names, str):
                raise LoadError(f"{path}:{line}: {names}")
            inputs = {column.name for column in version.input_columns}
            number = _apart(NUMBER, inputs)
            if number not in names:
                raise LoadError(
                    f"{path}:{line}: there is no column {number!r}, so these are no rejected lines: "
                    f"`autofill rejected {self.collection.full_name} --csv FILE` writes them"
                )
            told = {_apart(name, inputs) for name in (NUMBER, *_TOLD, _RAW)}
            places = [place for place, name in enumerate(names) if name not in told]
            columns = match_columns([names[place] for place in places], version, f"{path}:{line}")
            for at, fields, raw in records:
                if isinstance(fields, str):
                    yield rejection(at, fields, raw())
                elif len(fields) != len(names):
                    yield rejection(at, f"{len(fields)} fields, the header has {len(names)}", raw())
                else:
                    cells = [_bare(fields[place]) for place in places]
                    known = self._number(fields[names.index(number)])
                    if known is None:
                        yield rejection(at, f"{number} is no number of a rejected line of this collection", raw())
                    elif not any(cells) or known not in self._open([known]):
                        self.passed += 1
                    else:
                        self.numbers[at] = known
                        yield row_of(at, cells, columns, raw)

    def _number(self, text: str) -> int | None:
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None

    def _open(self, numbers: list[int]) -> set[int]:
        return open_rejected(self.connection, self.collection.id, numbers)


def open_repair(connection: Connection, collection: Collection, path: Path) -> Repair:
    """Raises LoadError for what is no CSV in UTF-8."""
    file = open_file(path)
    if file.content.format != "csv":
        raise LoadError(f"{path}: rejected lines come back as the CSV that `autofill rejected --csv` wrote")
    return Repair(file, connection, collection)


def _defused(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text


def _bare(text: str) -> str:
    return text[1:] if text.startswith("'") and text[1:].startswith(_FORMULA) else text


def _apart(name: str, inputs: set[str]) -> str:
    """A name for what is told of a line that no column has."""
    return name if name not in inputs else _apart(f"{name}_", inputs)
