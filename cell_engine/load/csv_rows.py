"""CSV, or TSV by its name, into records: RFC 4180 with any line end, an empty field (quoted or not) is a missing value.

Lines are physical ones, as an editor counts them. A line that begins no proper record is rejected alone and reading
goes on at the next one, so that a quote left open costs its own line and not all those up to the next quote.
"""

import csv
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TextIO, TypeAlias

from cell_engine.errors import BadValueError
from cell_engine.load.content import Content
from cell_engine.load.errors import LoadError
from cell_engine.load.rows import Record, match_columns, record, rejection
from cell_engine.specs.text import Json
from cell_engine.specs.version import Column, Version

CsvRecord: TypeAlias = tuple[int, list[str] | str, Callable[[], str]]
"""Its first line; its fields, or what is wrong with it; and what gives its text, until the next one is read."""

RECORD_LIMIT = 16 * 2**20
"""The most characters in one record: what a quote left open makes the reader hold before it gives up."""


def csv_rows(content: Content, version: Version, skip: int) -> Iterator[Record]:
    """The records after the first `skip`. Raises LoadError about its header."""
    # The module's own limit is for a whole process; here records are bounded before fields can be.
    csv.field_size_limit(max(csv.field_size_limit(), RECORD_LIMIT + 1))
    path = content.path
    with content.open(newline="") as file:
        records = csv_records(file, "\t" if is_tsv(path) else ",")
        columns = _header(path, records, version)
        for line, fields, raw in islice(records, skip, None):
            if isinstance(fields, str):
                yield rejection(line, fields, raw())
            elif len(fields) != len(columns):
                yield rejection(line, f"{len(fields)} fields, the header has {len(columns)}", raw())
            else:
                yield row_of(line, fields, columns, raw)


def is_tsv(path: Path) -> bool:
    """Whether fields are separated by tabs. By the name: a header of one column holds neither comma nor tab."""
    return path.suffix.lower() in (".tsv", ".tab")


def _header(path: Path, records: Iterator[CsvRecord], version: Version) -> list[Column]:
    line, names = read_header(records)
    if isinstance(names, str):
        raise LoadError(f"{path}:{line}: {names}")
    return match_columns(names, version, f"{path}:{line}")


def read_header(records: Iterator[CsvRecord]) -> tuple[int, list[str] | str]:
    """The line of the column names and the names, or what is wrong with it."""
    for line, names, _ in records:
        return line, names
    return 1, "there is no header line: a CSV file begins with a line of column names"


def row_of(line: int, fields: list[str], columns: list[Column], raw: Callable[[], str]) -> Record:
    """The record that as many fields as columns make."""
    row: dict[int, Json] = {}
    faults: list[str] = []
    missing: list[int] = []
    for column, text in zip(columns, fields, strict=True):
        if not text:  # an empty field is a missing value
            missing.append(column.id)
            continue
        try:
            row[column.id] = column.type.parse(text)
        except BadValueError as error:
            faults.append(f"column {column.name!r}: {error}")
    return record(line, row, faults, missing, lambda: (raw(), _by_column(columns, fields)))


def _by_column(columns: list[Column], fields: list[str]) -> dict[int, str]:
    return {column.id: text for column, text in zip(columns, fields, strict=True) if text}


def csv_records(file: TextIO, delimiter: str) -> Iterator[CsvRecord]:
    """Each record's first line and its fields, or what is wrong with that line. Blank lines are no records."""
    lines = _Lines(file)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        line = lines.begin()
        try:
            fields: list[str] | str = next(reader)
        except StopIteration:
            return
        except _TooLongError:
            fields = f"longer than {RECORD_LIMIT:,} characters; is a quote left open?"
            lines.give_back()
        except csv.Error as error:
            fields = _explain(error)
            lines.give_back()
        if fields:
            yield line, fields, lines.raw


def _explain(error: csv.Error) -> str:
    match str(error):
        case "unexpected end of data":
            return "a quote is opened and never closed"
        case "',' expected after '\"'" | "'\t' expected after '\"'":
            return "a quoted field goes on after its closing quote: is a quote inside it not doubled, or left open?"
        case other:
            return other


class _TooLongError(Exception):
    pass


class _Lines:
    """The physical lines of a file, counted; those of the record being read are kept, to be read again."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._number = 0
        self._again: deque[str] = deque()
        self._record: list[str] = []
        self._size = 0

    def begin(self) -> int:
        """A record begins with the next line, whose number this is."""
        self._record.clear()
        self._size = 0
        return self._number + 1

    def raw(self) -> str:
        """The text of the record that was read, until the next one begins."""
        return "".join(self._record).rstrip("\r\n")

    def give_back(self) -> None:
        """All lines of the record but its first will be read again."""
        first, *rest = self._record
        del self._record[1:]
        self._again.extendleft(reversed(rest))
        self._number -= len(rest)
        if len(first) > RECORD_LIMIT and not self._again:
            # No more of this line was read than that.
            while first and not first.endswith(("\n", "\r")):
                first = self._file.readline(RECORD_LIMIT)

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else self._file.readline(RECORD_LIMIT + 1)
        if not line:
            raise StopIteration
        self._number += 1
        self._record.append(line)
        self._size += len(line)
        if self._size > RECORD_LIMIT:
            raise _TooLongError
        return line
