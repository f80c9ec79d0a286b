"""Parquet, typed, in bounded memory."""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cell_engine.errors import AutofillError
from cell_engine.specs.text import Json
from cell_engine.specs.types import ColumnType

if TYPE_CHECKING:  # polars takes 45 MB: only processes that export pay for it
    import polars as pl

PART_ROWS = 50_000


def write_parquet(path: Path, columns: Sequence[tuple[str, ColumnType]], rows: Iterable[Sequence[Json]]) -> None:
    """Write `rows`. What Parquet cannot hold without losing digits raises AutofillError, with its column and row."""
    import polars as pl

    schema = {name: _stored(column_type) for name, column_type in columns}
    converters = [_converter(column_type) for _, column_type in columns]
    # polars writes a frame or scans files, and appends to none: parts first, then one file of them.
    folder = Path(tempfile.mkdtemp(prefix=f"{path.name}.", dir=path.parent))
    try:
        parts: list[Path] = []
        for rows_of_part in _parts(rows):
            values = {
                name: _convert(name, [row[place] for row in rows_of_part], convert)
                for place, (name, convert) in enumerate(zip(schema, converters, strict=True))
            }
            parts.append(folder / f"{len(parts):06}.parquet")
            pl.DataFrame(values, schema=schema, strict=True).write_parquet(parts[-1])
        if len(parts) > 1:
            pl.scan_parquet(parts, glob=False, low_memory=True).sink_parquet(path)
        elif parts:
            shutil.copyfile(parts[0], path)
        else:
            pl.DataFrame(schema=schema).write_parquet(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _parts(rows: Iterable[Sequence[Json]]) -> Iterator[list[Sequence[Json]]]:
    left = iter(rows)
    while part := list(islice(left, PART_ROWS)):
        yield part


def _stored(column_type: ColumnType) -> "pl.DataType":
    import polars as pl

    match column_type.name:
        case "number":
            return pl.Float64()
        case "integer":
            return pl.Int64()
        case "boolean":
            return pl.Boolean()
        case "date":
            return pl.Date()
        case "datetime":
            return pl.Datetime("us", "UTC")
        case "list":
            return pl.List(_stored(_items(column_type)))
        case _:
            return pl.String()


def _items(column_type: ColumnType) -> ColumnType:
    assert column_type.items is not None
    return ColumnType(column_type.items, column_type.choices)


def _converter(column_type: ColumnType) -> Callable[[Any], Any] | None:
    """From JSON to what polars stores; None where that is the same."""
    match column_type.name:
        case "number":
            return _double
        case "date":
            return date.fromisoformat
        case "datetime":
            return lambda text: datetime.fromisoformat(text).astimezone(UTC)
        case "json":
            return lambda value: json.dumps(value, ensure_ascii=False)
        case "list":
            convert = _converter(_items(column_type))
            return None if convert is None else lambda items: [convert(item) for item in items]
    return None


def _double(number: float) -> float:
    if int(number) != number or int(float(number)) == int(number):
        return float(number)
    raise ValueError("a double would lose digits")


def _convert(name: str, values: list[Any], convert: Callable[[Any], Any] | None) -> list[Any]:
    if convert is None:
        return values
    try:
        return [None if value is None else convert(value) for value in values]
    except (ValueError, OverflowError):
        for value in values:
            try:
                _ = value is None or convert(value)
            except (ValueError, OverflowError) as error:
                raise AutofillError(
                    f"column {name!r}: {value} does not fit a Parquet file: {error}. A .jsonl has all as it is"
                ) from None
        raise
