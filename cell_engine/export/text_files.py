"""CSV, TSV and JSON Lines, as `load` reads them."""

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cell_engine.specs.text import FORMULA_STARTS, Json
from cell_engine.specs.types import ColumnType

_DEFUSED = "'"

Row = Sequence[Json]


def write_csv(path: Path, columns: Sequence[tuple[str, ColumnType]], rows: Iterable[Row], delimiter: str) -> int:
    """Write `rows` under a header; returns how many cells were defused: texts that begin like a formula, behind an
    apostrophe. Numbers are numbers, and left alone. An absent value is an empty field."""
    defused = 0
    # A text of a json column is written as JSON, in quotes, which begin no formula.
    texts = [place for place, (_, column_type) in enumerate(columns) if column_type.name not in ("json", "list")]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow([name for name, _ in columns])
        for row in rows:
            fields = ["" if value is None else json.dumps(value, ensure_ascii=False) for value in row]
            for place in texts:
                value = row[place]
                if not isinstance(value, str):
                    continue
                fields[place] = value
                if value.startswith(FORMULA_STARTS):
                    fields[place] = _DEFUSED + value
                    defused += 1
            writer.writerow(fields)
    return defused


def write_jsonl(path: Path, names: Sequence[str], rows: Iterable[Row]) -> None:
    """Write each row as an object on a line of its own, with a null for an absent value."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(_lines(names, rows))


def _lines(names: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    for row in rows:
        yield json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) + "\n"
