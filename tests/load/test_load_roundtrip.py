"""Random tables come back as they were, through CSV and through Parquet."""

import csv
import io
import json
from datetime import UTC
from pathlib import Path
from typing import Any
from uuid import uuid4

import polars as pl
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cell_engine.load import Loaded, load_file
from cell_engine.store.collections import Collection
from cell_engine.store.database import Connection
from tests.load.conftest import Stored

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12) | st.sampled_from(
    ["0870", "1e3", "null", " ", '"', ",", "\r\n", "\n\n", "a\rb", "\ufeff", "NaN", "#", "=1+1", "\u2028"]
)
JSON = st.recursive(
    st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e15, 1e15) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
SCHEMA: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "code": (pl.String, TEXT),
    "title": (pl.String, TEXT),
    "price": (pl.Float64, st.floats(allow_nan=False, allow_infinity=False)),
    "count": (pl.Int64, st.integers(-(2**63), 2**63 - 1)),
    "sold": (pl.Boolean, st.booleans()),
    "day": (pl.Date, st.dates()),
    "moment": (pl.Datetime("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "colour": (pl.String, st.sampled_from(["red", "green"])),
    "tags": (pl.List(pl.String), st.lists(TEXT, max_size=3)),
}
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | values for name, (_, values) in SCHEMA.items()}), max_size=8)
EXAMPLES = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def expected(row: dict[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in row.items() if value is not None}
    if "day" in shown:
        shown["day"] = shown["day"].isoformat()
    if "moment" in shown:
        shown["moment"] = shown["moment"].isoformat()
    return shown


def read_back(stored: Stored, loaded: Loaded) -> list[dict[str, Any]]:
    rows = [row for batch in loaded.batches for row in stored(batch)]
    for row in rows:
        if "price" in row:  # jsonb writes 1e17 as digits: the same double, another Python type
            row["price"] = float(row["price"])
    return rows


def as_csv(row: dict[str, Any]) -> dict[str, str]:
    return {
        name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for name, value in expected(row).items()
    }


@EXAMPLES
@given(rows=ROWS)
def test_parquet(
    connection: Connection, collection: Collection, stored: Stored, tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    frame = pl.DataFrame(rows, schema={name: dtype for name, (dtype, _) in SCHEMA.items()})
    path = tmp_path / f"{uuid4()}.parquet"
    frame.write_parquet(path)
    loaded = load_file(connection, collection, path, actor="ann")
    assert loaded.rejected == []
    assert read_back(stored, loaded) == [expected(row) for row in rows]


@EXAMPLES
# 2 ** -24: its shortest form is a tie that rounding to as many digits breaks the other way.
@example(rows=[{**dict.fromkeys(SCHEMA), "price": 5.960464477539063e-08}], extra=0, end="\n", mark="")
@given(rows=ROWS, extra=JSON, end=st.sampled_from(["\n", "\r\n", "\r"]), mark=st.sampled_from(["", "\ufeff"]))
def test_csv(
    connection: Connection,
    collection: Collection,
    stored: Stored,
    tmp_path: Path,
    rows: list[dict[str, Any]],
    extra: Any,
    end: str,
    mark: str,
) -> None:
    text = io.StringIO(newline="")
    # Python's writer leaves a CR bare unless it is a part of its own line end.
    writer = csv.DictWriter(
        text,
        [*SCHEMA, "extra"],
        lineterminator=end,
        quoting=csv.QUOTE_MINIMAL if end == "\r\n" else csv.QUOTE_ALL,
    )
    writer.writeheader()
    for row in rows:
        writer.writerow({**as_csv(row), "extra": json.dumps(extra)})
    path = tmp_path / f"{uuid4()}.csv"
    path.write_bytes((mark + text.getvalue()).encode())
    loaded = load_file(connection, collection, path, actor="ann")
    assert loaded.rejected == []
    # An empty field is a missing value.
    wanted = [{**{name: value for name, value in expected(row).items() if value != ""}, "extra": extra} for row in rows]
    assert read_back(stored, loaded) == wanted
