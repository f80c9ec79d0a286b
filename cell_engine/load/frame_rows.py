"""Parquet and polars frames into records. A cell that does not fit its column is that row's rejection, never a cast:
whole decimals are integers, times become text only inside json; an empty string is a value, null is missing.
"""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cell_engine.errors import BadValueError
from cell_engine.load.errors import LoadError
from cell_engine.load.rows import Record, match_columns, record, told_of
from cell_engine.specs.text import Json, shorten
from cell_engine.specs.types import ColumnType
from cell_engine.specs.version import Column, Version

if TYPE_CHECKING:  # polars takes 45 MB: only processes that load pay for it
    import polars as pl
    from polars.datatypes import DataTypeClass

SLICE_BYTES = 16 * 2**20
"""About what of a frame is turned into Python values at once."""

_SLICE_ROWS = 10_000
_FIRST_SLICE_ROWS = 100
_NUMBER = ColumnType("number")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_YEAR = "it is outside the years 1 to 9999"


def parquet_rows(path: Path, version: Version, skip: int) -> Iterator[Record]:
    """The records after the first `skip`. Memory: a slice, and what polars needs to read it, one row group.

    Raises LoadError about its columns, and where it cannot be read on.
    """
    import polars as pl

    # A path is a name here, not a pattern, and folder names are no columns.
    scan = pl.scan_parquet(path, glob=False, hive_partitioning=False, low_memory=True, cache=False)
    read = skip
    try:
        columns = match_columns(scan.collect_schema().names(), version, str(path))
        # Slices, each read anew, take half of the memory that the streaming engine's batches do.
        for part in _slices(lambda offset, rows: scan.slice(offset, rows).collect(), skip):
            yield from _rows(part, columns, read)
            read += part.height
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise LoadError(f"{path}: not readable as Parquet after row {read:,}: {shorten(str(error), 300)}") from error


def frame_rows(frame: "pl.DataFrame | pl.LazyFrame", version: Version, source: str, skip: int) -> Iterator[Record]:
    """The records after the first `skip`. A lazy frame is streamed; it must give its rows in the same order each time.

    Raises LoadError about its columns.
    """
    import polars as pl

    columns = match_columns(frame.collect_schema().names(), version, source)
    if isinstance(frame, pl.DataFrame):
        parts = _slices(frame.slice, skip)
    else:
        parts = iter(frame.slice(skip).collect_batches(chunk_size=1_000, lazy=True, engine="streaming"))
    for part in parts:
        yield from _rows(part, columns, skip)
        skip += part.height


def frame_digest(frame: "pl.DataFrame | pl.LazyFrame", version: Version, source: str) -> str:
    """16 digits of what the frame holds, row by row, as `version` takes it: equal for equal rows, whatever polars or
    Parquet make of them. Reads all of it. Raises LoadError about its columns."""
    digest = blake2b(digest_size=8)
    for one in frame_rows(frame, version, source, 0):
        held: object = one.raw if one.row is None else sorted(one.row.items())
        digest.update(json.dumps(held, ensure_ascii=True).encode() + b"\n")
    return digest.hexdigest()


def _slices(read: "Callable[[int, int], pl.DataFrame]", offset: int) -> "Iterator[pl.DataFrame]":
    """What `read(offset, rows)` gives, one slice after the other, sized by what the last one took."""
    rows = _FIRST_SLICE_ROWS
    while (part := read(offset, rows)).height:
        yield part
        offset += part.height
        fitting = SLICE_BYTES * part.height // max(1, int(part.estimated_size()))
        rows = max(1, min(fitting, 4 * rows, _SLICE_ROWS))


def _rows(part: "pl.DataFrame", columns: list[Column], before: int) -> Iterator[Record]:
    readers = [
        _reader(series.dtype, "json" in (column.type.name, column.type.items))
        for series, column in zip(part.iter_columns(), columns, strict=True)
    ]
    values = [
        (series.cast(reader.stored) if reader else series).to_list()
        for series, reader in zip(part.iter_columns(), readers, strict=True)
    ]
    for number, cells in enumerate(zip(*values, strict=True), before + 1):
        row: dict[int, Json] = {}
        faults: list[str] = []
        missing: list[int] = []
        for column, reader, cell in zip(columns, readers, cells, strict=True):
            if cell is None:
                missing.append(column.id)
                continue
            try:
                row[column.id] = column.type.accept(reader.read(cell) if reader else cell)
            except BadValueError as error:
                faults.append(f"column {column.name!r}: {error}")
        yield record(number, row, faults, missing, partial(_told, columns, readers, cells))


def _told(
    columns: "list[Column]", readers: "list[_Reader | None]", cells: tuple[Any, ...]
) -> tuple[str, dict[int, str]]:
    """What is kept of a row that is rejected."""

    def read(reader: "_Reader | None", cell: Any) -> object:
        try:
            return cell if reader is None or cell is None else reader.read(cell)
        except BadValueError:
            return str(cell)

    return told_of((column, read(reader, cell)) for column, reader, cell in zip(columns, readers, cells, strict=True))


class _Reader(NamedTuple):
    """How the values of a polars type become Python's: cast to `stored`, then `read` one by one. polars' own way to
    Python panics at a year Python cannot hold, and drops nanoseconds. `read` raises BadValueError."""

    stored: "pl.DataType"
    read: Callable[[Any], Any]


def _reader(dtype: "DataTypeClass | pl.DataType", as_text: bool) -> _Reader | None:
    """None where polars' values are right as they are. `as_text`: times in their JSON form, for type json."""
    import polars as pl

    match dtype:
        case pl.Date():
            return _Reader(pl.Int32(), partial(_date, as_text=as_text))
        case pl.Datetime():
            nanoseconds = {"ns": 1, "us": 1_000, "ms": 1_000_000}[dtype.time_unit]
            read = partial(_datetime, nanoseconds=nanoseconds, zone=dtype.time_zone, as_text=as_text)
            return _Reader(pl.Int64(), read)
        case pl.Time() | pl.Duration():
            return _Reader(pl.Int64(), partial(_refuse, what=str(dtype)))
        case pl.Decimal():
            return _Reader(dtype, partial(_decimal, as_text=as_text))
        case pl.List() | pl.Array():
            inner = _reader(dtype.inner, as_text)
            if inner is None:
                return None
            stored = pl.List(inner.stored) if isinstance(dtype, pl.List) else pl.Array(inner.stored, dtype.size)
            return _Reader(stored, partial(_items, reader=inner))
        case pl.Struct():
            fields = {field.name: _reader(field.dtype, as_text) for field in dtype.fields}
            if not any(fields.values()):
                return None
            stored_fields = {
                field.name: reader.stored if (reader := fields[field.name]) else field.dtype for field in dtype.fields
            }
            return _Reader(pl.Struct(stored_fields), partial(_fields, readers=fields))
    return None


def _date(days: int, *, as_text: bool) -> date | str:
    try:
        value = _EPOCH.date() + timedelta(days)
    except OverflowError:
        raise BadValueError(_NO_YEAR) from None
    return value.isoformat() if as_text else value


def _datetime(number: int, *, nanoseconds: int, zone: str | None, as_text: bool) -> datetime | str:
    """`number` of units since 1970, each so many `nanoseconds` long."""
    microseconds, lost = divmod(number * nanoseconds, 1_000)
    if lost:
        raise BadValueError("its nanoseconds would be lost: round it to microseconds")
    try:
        value = _EPOCH + timedelta(microseconds=microseconds)
        if zone is None:
            value = value.replace(tzinfo=None)
        elif zone != "UTC":
            value = value.astimezone(ZoneInfo(zone))
    except (OverflowError, ValueError):
        raise BadValueError(_NO_YEAR) from None
    except ZoneInfoNotFoundError:
        raise BadValueError(f"the time zone {zone!r} is not known here: convert it to UTC") from None
    return value.isoformat() if as_text else value


def _refuse(_: int, *, what: str) -> Any:
    raise BadValueError(f"{what} fits no type of column")


def _decimal(value: Decimal, *, as_text: bool) -> "Decimal | Json":
    """A whole decimal as an integer; `as_text` another one as the double that loses no digit."""
    if value.as_tuple().exponent == 0:
        return int(value)
    return _NUMBER.accept(value) if as_text else value


def _items(items: list[Any], *, reader: _Reader) -> list[Any]:
    return [None if item is None else reader.read(item) for item in items]


def _fields(fields: dict[str, Any], *, readers: dict[str, _Reader | None]) -> dict[str, Any]:
    return {
        name: value if value is None or (reader := readers[name]) is None else reader.read(value)
        for name, value in fields.items()
    }
