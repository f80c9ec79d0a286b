"""A collection's rows as they are shown now, into a file of the format that its name says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from cell_engine.errors import BadValueError
from cell_engine.export.parquet_file import write_parquet
from cell_engine.export.text_files import write_csv, write_jsonl
from cell_engine.export.whole import whole_file
from cell_engine.specs.text import Json
from cell_engine.specs.types import ColumnType
from cell_engine.specs.version import Column, Version
from cell_engine.store.collections import Collection
from cell_engine.store.database import Connection
from cell_engine.store.wide_rows import wide_rows

FORMATS = {
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet",
}  # fmt: skip

_TOLD_ROWS = 1_000


@dataclass(frozen=True)
class Exported:
    """`defused` cells begin like a formula, and stand behind an apostrophe in a CSV."""

    rows: int
    defused: int = 0


def export_file(
    connection: Connection,
    collection: Collection,
    version: Version,
    path: Path,
    *,
    columns: Sequence[Column] = (),
    numbered: bool | None = None,
    rows: tuple[int, int] | None = None,
    on_rows: Callable[[int], object] = lambda rows: None,
) -> Exported:
    """Write all rows to `path`, or those from one row id to another, `rows`: every column, or `columns`. Row id and
    batch stand in front if `numbered`: by default, of all columns, and not of some, which `load` reads back.

    A cell without a value, in error, blocked, or answered under another definition is empty, as in the typed view.
    `on_rows` is told how many were written. Raises BadValueError for a name of no format, OSError, AutofillError for
    a value that the format cannot hold; then the file is as it was.
    """
    kind = FORMATS.get(path.suffix.lower())
    if kind is None:
        raise BadValueError(f"{path}: what format? Name it .csv, .tsv, .jsonl or .parquet")
    chosen = list(columns or version.columns)
    numbered = not columns if numbered is None else numbered
    heads = [("row_id", ColumnType("integer")), ("batch", ColumnType("text"))] if numbered else []
    taken = {column.name.casefold() for column in version.columns}
    typed = [(f"_{name}" if name in taken else name, column_type) for name, column_type in heads]
    typed += [(column.name, column.type) for column in chosen]
    names = [name for name, _ in typed]
    count = 0

    def found() -> Iterator[list[Json]]:
        nonlocal count
        with closing(wide_rows(connection, collection.id, replace(version, columns=tuple(chosen)), rows)) as wide:
            for row_id, batch, *values in wide:
                cells = [_fitting(column, value) for column, value in zip(chosen, values, strict=True)]
                yield [row_id, batch, *cells] if numbered else cells
                count += 1
                if count % _TOLD_ROWS == 0:
                    on_rows(count)

    defused = 0
    with whole_file(path) as partial:
        if kind == "parquet":
            write_parquet(partial, typed, found())
        elif kind == "jsonl":
            write_jsonl(partial, names, found())
        else:
            defused = write_csv(partial, typed, found(), "\t" if kind == "tsv" else ",")
    return Exported(count, defused)


def _fitting(column: Column, value: Json) -> Json:
    """`value` if it is of the column's type now: one that was loaded under another type may not be."""
    if value is None:
        return None
    try:
        return column.type.accept(value)
    except BadValueError:
        return None
