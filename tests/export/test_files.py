"""Files that are written: whole or not at all, harmless to a spreadsheet, typed in Parquet."""

from __future__ import annotations

import csv
import json
import os
import stat
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cell_engine.errors import AutofillError, BadValueError
from cell_engine.export import parquet_file
from cell_engine.export.parquet_file import write_parquet
from cell_engine.export.text_files import write_csv, write_jsonl
from cell_engine.export.whole import whole_file
from cell_engine.specs.types import ColumnType

TEXT = ColumnType("text")


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", '=cmd|" /C calc"!A0', "＝1", "＋1", "－1", "＠x"]
)
@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_a_text_that_begins_like_a_formula_is_defused(tmp_path: Path, text: str, delimiter: str) -> None:
    file = tmp_path / "out.csv"
    assert write_csv(file, [("a", TEXT), ("b", TEXT)], [[text, "x" + text]], delimiter) == 1
    with file.open(encoding="utf-8", newline="") as written:
        assert list(csv.reader(written, delimiter=delimiter)) == [["a", "b"], ["'" + text, "x" + text]]


def test_what_is_no_text_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    json_type = ColumnType("json")
    types = [ColumnType("integer"), ColumnType("number"), ColumnType("boolean"), TEXT, ColumnType("list", items="text")]
    row = [-5, -0.5, True, None, ["=1", "-2"], {"=": "+"}, "=1", -3, 'a "b", c', "", "'quoted"]
    columns = list(zip("abcdefghijk", [*types, *[json_type] * 3, *[TEXT] * 3], strict=True))
    assert write_csv(file, columns, [row], ",") == 0
    with file.open(encoding="utf-8", newline="") as written:
        assert list(csv.reader(written))[1] == [
            "-5", "-0.5", "true", "", '["=1", "-2"]', '{"=": "+"}', '"=1"', "-3", 'a "b", c', "", "'quoted",
        ]  # fmt: skip


def test_json_lines_have_all_as_it_is(tmp_path: Path) -> None:
    rows: list[list[Any]] = [["=1\u2028", None, 2**60 + 1], ["é", [1, None], -0.5]]
    write_jsonl(tmp_path / "out.jsonl", ["a", "b", "c"], rows)
    lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").split("\n")
    assert [list(json.loads(line).values()) for line in lines[:-1]] == rows
    assert lines[-1] == ""


COLUMNS = [
    ("text", ColumnType("text")),
    ("number", ColumnType("number")),
    ("integer", ColumnType("integer")),
    ("boolean", ColumnType("boolean")),
    ("date", ColumnType("date")),
    ("datetime", ColumnType("datetime")),
    ("list", ColumnType("list", items="number")),
    ("json", ColumnType("json")),
]
ROW: list[Any] = ["=1", 2, 2**60 + 1, True, "2026-11-30", "2026-11-30T09:00:00+02:00", [1, 2.5], {"a": [None]}]


@pytest.mark.parametrize("rows", [0, 1, 3, 4, 7])
def test_parquet_is_typed_whatever_number_of_parts_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(parquet_file, "PART_ROWS", 3)
    file = tmp_path / "out.parquet"
    nothing: list[Any] = [None] * len(ROW)
    write_parquet(file, COLUMNS, ([*nothing] if number == 1 else [f"{number}", *ROW[1:]] for number in range(rows)))
    frame = pl.read_parquet(file)
    assert frame.schema == {
        "text": pl.String, "number": pl.Float64, "integer": pl.Int64, "boolean": pl.Boolean, "date": pl.Date,
        "datetime": pl.Datetime("us", "UTC"), "list": pl.List(pl.Float64), "json": pl.String,
    }  # fmt: skip
    moment = datetime(2026, 11, 30, 7, tzinfo=UTC)
    typed = (2.0, 2**60 + 1, True, date(2026, 11, 30), moment, [1.0, 2.5], '{"a": [null]}')
    assert frame.rows() == [tuple(nothing) if number == 1 else (f"{number}", *typed) for number in range(rows)]
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (1, 2**60 + 1, r"column 'number': 1152921504606846977 does not fit a Parquet file: a double would lose digits"),
        (5, "0001-01-01T00:00:00+02:00", "column 'datetime': 0001-01-01T00:00:00"),
        (6, [0.5, 2**60 + 1], "column 'list': "),
    ],
)
def test_what_parquet_cannot_hold_is_named(tmp_path: Path, place: int, value: Any, said: str) -> None:
    row = [*ROW[:place], value, *ROW[place + 1 :]]
    with pytest.raises(AutofillError, match=said):
        write_parquet(tmp_path / "out.parquet", COLUMNS, [ROW, row])
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_there_when_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    file.write_text("before")
    file.chmod(0o640)
    with pytest.raises(RuntimeError), whole_file(file) as partial:
        partial.write_text("half")
        raise RuntimeError
    assert file.read_text() == "before"
    with whole_file(file) as partial:
        partial.write_text("whole")
        assert file.read_text() == "before"
    assert file.read_text() == "whole"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert list(tmp_path.iterdir()) == [file]


def test_a_new_file_has_the_mode_that_the_umask_leaves_it(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with whole_file(tmp_path / "new") as partial:
            partial.write_text("x")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_a_link_is_followed_and_what_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.csv"
    link.symlink_to(tmp_path / "real" / "out.csv")
    with whole_file(link) as partial:
        partial.write_text("x")
    assert link.is_symlink()
    assert (tmp_path / "real" / "out.csv").read_text() == "x"
    with pytest.raises(BadValueError, match="is no file"), whole_file(tmp_path / "real"):
        pass
