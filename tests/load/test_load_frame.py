"""Parquet and frames: JSON forms, and cells that do not fit."""

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

from cell_engine.load import LoadError, frame_rows, load_file, load_frame
from cell_engine.store.collections import Collection
from cell_engine.store.database import Connection
from tests.load.conftest import Stored, Write

GOOD = pl.DataFrame(
    {
        "code": ["0870", "", None],
        "title": pl.Series(["a", "b", "a"], dtype=pl.Categorical),
        "price": pl.Series([Decimal("1.50"), Decimal("2.00"), None], dtype=pl.Decimal(10, 2)),
        "count": pl.Series([Decimal(7), Decimal(-1), None], dtype=pl.Decimal(10, 0)),
        "sold": [True, False, None],
        "day": [date(2026, 2, 28), None, None],
        "moment": [datetime(2026, 11, 29, 13, tzinfo=UTC), None, None],
        "colour": pl.Series(["red", None, "green"], dtype=pl.Enum(["red", "green"])),
        "tags": [["x", "y"], [], None],
        "days": pl.Series([[date(2026, 1, 1)], [], None], dtype=pl.List(pl.Date)),
        "extra": [
            {"n": 1, "d": date(2026, 1, 1), "p": Decimal("0.5"), "l": [datetime(2026, 1, 1)]},
            {"n": None, "d": None, "p": None, "l": []},
            None,
        ],
        "page": ["https://example.org/", None, None],
    }
)
GOOD_ROWS = [
    {
        "code": "0870",
        "title": "a",
        "price": 1.5,
        "count": 7,
        "sold": True,
        "day": "2026-02-28",
        "moment": "2026-11-29T13:00:00+00:00",
        "colour": "red",
        "tags": ["x", "y"],
        "days": ["2026-01-01"],
        "extra": {"n": 1, "d": "2026-01-01", "p": 0.5, "l": ["2026-01-01T00:00:00"]},
        "page": "https://example.org/",
    },
    {
        "code": "",
        "title": "b",
        "price": 2,
        "count": -1,
        "sold": False,
        "tags": [],
        "days": [],
        "extra": {"n": None, "d": None, "p": None, "l": []},
    },
    {"title": "a", "colour": "green"},
]


@pytest.mark.parametrize("how", ["frame", "lazy", "parquet"])
def test_every_type(connection: Connection, collection: Collection, stored: Stored, tmp_path: Path, how: str) -> None:
    if how == "parquet":
        # A pattern, and a folder that looks like a partition: to us both are only names.
        path = tmp_path / "code=x" / "th*ngs[1].parquet"
        path.parent.mkdir()
        GOOD.write_parquet(path)
        loaded = load_file(connection, collection, path, actor="ann")
        assert loaded.batches[0].source == "th*ngs[1].parquet"
    else:
        frame = GOOD if how == "frame" else GOOD.lazy()
        loaded = load_frame(connection, collection, frame, key="k", source="upstream", actor="ann")
        assert (loaded.batches[0].key, loaded.batches[0].source) == ("k-0001", "upstream")
        again = load_frame(connection, collection, frame, key="k", source="upstream", actor="ann")
        assert (again.new, again.batches) == (False, loaded.batches)
    assert (loaded.new, loaded.rejected) == (True, [])
    assert stored(loaded.batches[0]) == GOOD_ROWS


NANO = pl.Datetime("ns", "UTC")


@pytest.mark.parametrize(
    ("column", "values", "rejected"),
    [
        ("code", pl.Series([870, None]), {1: "expected text, not an integer"}),
        ("code", pl.Series([date(2026, 1, 1), None]), {1: "expected text, not date"}),
        ("code", pl.Series([b"raw", None]), {1: "expected text, not bytes"}),
        ("code", pl.Series([timedelta(1), None]), {1: "Duration(time_unit='us') fits no type"}),
        ("code", pl.Series([time(1), None]), {1: "Time fits no type"}),
        ("code", pl.Series([object(), None], dtype=pl.Object), {1: "expected text, not object"}),
        ("count", pl.Series([1.0, None]), {1: "expected an integer, not a number"}),
        ("count", pl.Series([2**63, 5], dtype=pl.UInt64), {1: "beyond 64 bits"}),
        ("count", pl.Series([True, None]), {1: "expected an integer, not a boolean"}),
        ("count", pl.Series([Decimal("1.0"), None]), {1: "expected an integer, not a number"}),
        ("price", pl.Series([float("nan"), float("inf"), 1.5]), {1: "not a finite", 2: "not a finite"}),
        ("price", pl.Series(["1.5", None]), {1: "expected a number, not text"}),
        ("price", pl.Series([Decimal("0.12345678901234567890"), None]), {1: "a double would lose digits"}),
        ("day", pl.Series([3_000_000, 0], dtype=pl.Int32).cast(pl.Date), {1: "outside the years 1 to 9999"}),
        (
            "days",
            pl.Series([[3_000_000], [0]], dtype=pl.List(pl.Int32)).cast(pl.List(pl.Date)),
            {1: "outside the years"},
        ),
        ("day", pl.Series([datetime(2026, 1, 1), None]), {1: "expected a date, not datetime"}),
        ("moment", pl.Series([datetime(2026, 1, 1), None]), {1: "carries no offset"}),
        ("moment", pl.Series([1_500_000_001, 1_500_000_000, None]).cast(NANO), {1: "nanoseconds would be lost"}),
        ("extra", pl.Series([[1], [1000]]).cast(pl.List(NANO)), {1: "nanoseconds would be lost"}),
        ("extra", pl.Series([b"raw", None]), {1: "is not JSON"}),
        ("extra", pl.Series([[1.0], [float("nan")]]), {2: "not a JSON number"}),
        ("colour", pl.Series(["blue", "green"]), {1: "not one of the choices"}),
        ("tags", pl.Series([["x", None], []], dtype=pl.List(pl.String)), {1: "item 2: type text: None: null is not"}),
    ],
)
def test_a_cell_that_does_not_fit_is_its_rows_rejection(
    connection: Connection, collection: Collection, column: str, values: pl.Series, rejected: dict[int, str]
) -> None:
    frame = pl.DataFrame({column: values})
    loaded = load_frame(connection, collection, frame, key="k", source="upstream", actor="ann")
    assert [line for line, _ in loaded.rejected] == list(rejected)
    for (_, reason), said in zip(loaded.rejected, rejected.values(), strict=True):
        assert reason.startswith(f"column {column!r}: ")
        assert said in reason
    assert loaded.rows == len(values) - len(rejected)


def test_times_keep_their_zone(connection: Connection, collection: Collection, stored: Stored) -> None:
    moment = (
        pl.Series([datetime(2026, 7, 1, 12, tzinfo=UTC)]).dt.cast_time_unit("ms").dt.convert_time_zone("Europe/Paris")
    )
    frame = pl.DataFrame({"moment": moment, "extra": [[{"at": moment[0]}]]})
    loaded = load_frame(connection, collection, frame, key="k", source="upstream", actor="ann")
    shown = "2026-07-01T14:00:00+02:00"
    assert stored(loaded.batches[0]) == [{"moment": shown, "extra": [{"at": shown}]}]


EDGES = [-(2**63), -(2**62), -1, 0, 2**62, 2**63 - 1]


@pytest.mark.parametrize("column", ["moment", "extra", "code", "days"])
@pytest.mark.parametrize(
    "dtype", [*(pl.Datetime(unit, "UTC") for unit in ("ns", "us", "ms")), pl.Duration("ms"), pl.Date]
)
def test_times_out_of_range_stop_nothing(
    connection: Connection, collection: Collection, column: str, dtype: pl.DataType
) -> None:
    values = pl.Series([edge >> 32 for edge in EDGES] if dtype == pl.Date else EDGES)
    series = values.cast(pl.Int32 if dtype == pl.Date else pl.Int64).cast(dtype)
    frame = pl.DataFrame({"price": [1.0] * 7, column: pl.concat([series, series.clear(1)])})
    loaded = load_frame(connection, collection, frame, key="k", source="upstream", actor="ann")
    assert loaded.rows + loaded.rejected_rows == 7
    assert loaded.rows >= 1


def test_rows_too_large_for_a_batch(
    connection: Connection, collection: Collection, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cell_engine.load.rows.ROW_BYTES", 2**20)
    frame = pl.DataFrame({"code": ["a", "b"], "title": ["x" * (2**20 + 1), "y"]})
    loaded = load_frame(connection, collection, frame, key="k", source="upstream", actor="ann")
    assert stored(loaded.batches[0]) == [{"code": "b", "title": "y"}]
    assert loaded.rejected == [(1, "the row takes 1 MB; 1 MB is the most")]


def test_columns_that_are_none(connection: Connection, collection: Collection, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"upstream: header 1, 'cod', is no column .* did you mean 'code'\?"):
        load_frame(connection, collection, pl.DataFrame({"cod": [1]}), key="k", source="upstream", actor="ann")
    with pytest.raises(LoadError, match="it has no columns"):
        load_frame(connection, collection, pl.DataFrame(), key="k", source="upstream", actor="ann")
    pl.DataFrame({"words": [1]}).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(LoadError, match=r"a\.parquet: header 1, 'words', is a computed column"):
        load_file(connection, collection, tmp_path / "a.parquet", actor="ann")
    assert (
        load_frame(connection, collection, pl.DataFrame({"code": []}), key="k", source="upstream", actor="ann").batches
        == []
    )


def test_parquet_that_breaks_off_says_what_is_in(
    connection: Connection, collection: Collection, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cell_engine.load.loader.PART_RECORDS", 100)
    frame = pl.DataFrame({"code": [str(n) for n in range(2000)], "title": [f"{n:0100d}" for n in range(2000)]})
    path = tmp_path / "broken.parquet"
    frame.write_parquet(path, row_group_size=500, compression="zstd")
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 200] = bytes(200)
    path.write_bytes(content)
    with pytest.raises(LoadError) as caught:
        load_file(connection, collection, path, actor="ann")
    said = str(caught.value)
    loaded = connection.execute("select count(*) as rows from autofill.row").fetchone()
    assert loaded is not None
    assert loaded.rows >= 100
    assert "not readable as Parquet after row" in said
    assert f"broken.parquet: {loaded.rows:,} rows are in, in {loaded.rows // 100} batches" in said


def test_frames_are_read_in_slices(
    connection: Connection, collection: Collection, stored: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_rows, "SLICE_BYTES", 2_000)
    frame = pl.DataFrame({"code": [str(n) for n in range(3000)], "title": ["x" * (n % 700) for n in range(3000)]})
    frame.write_parquet(tmp_path / "a.parquet", row_group_size=700)
    for number, loaded in enumerate(
        [
            load_file(connection, collection, tmp_path / "a.parquet", actor="ann"),
            load_frame(connection, collection, frame, key="a", source="upstream", actor="ann"),
            load_frame(connection, collection, frame.lazy(), key="b", source="upstream", actor="ann"),
        ],
        1,
    ):
        assert loaded.batches[0].id == number
        assert stored(loaded.batches[0]) == frame.to_dicts()
