"""A collection into a file: what is shown now, streamed, and what `load` makes of it."""

from __future__ import annotations

import csv
import json
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest

from cell_engine.store.collections import find_collection, load_version
from cell_engine.store.database import Connection
from cell_engine.store.wide_rows import wide_rows
from tests.cli.conftest import Run

ALL = """\
namespace: test
name: NAME
columns:
  - {name: title, type: text}
  - {name: price, type: number}
  - {name: count, type: integer}
  - {name: sold, type: boolean}
  - {name: day, type: date}
  - {name: moment, type: datetime}
  - {name: level, type: choice, choices: [low, high]}
  - {name: tags, type: list}
  - {name: home, type: url}
  - {name: data, type: json}
  - {name: words, type: integer, kind: function, deps: [title], function: {name: "tests.cli.functions:count"}}
"""
ROWS = [
    {"title": "0870", "price": -0.5, "count": 2**62, "sold": False, "day": "2026-11-30", "tags": ["a,b", "=1"]},
    {"moment": "2026-11-30T09:00:00+02:00", "level": "high", "home": "https://a.b/c", "data": {"k": [1, None]}},
    {"title": 'two\nlines, "quoted"', "price": 12, "count": -7, "data": "=text"},
]


@pytest.fixture
def loaded(run: Run, tmp_path: Path) -> Run:
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(ALL.replace("NAME", name))
        assert run("apply", str(tmp_path / f"{name}.yaml")).exit_code == 0
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    assert run("load", "test/one", str(tmp_path / "rows.jsonl")).exit_code == 0
    return run


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_input_columns_come_back_as_they_were(loaded: Run, tmp_path: Path, ending: str) -> None:
    names = ["title", "price", "count", "sold", "day", "moment", "level", "tags", "home", "data"]
    if ending == "parquet":  # where json is its text
        names.remove("data")
    chosen = [word for name in names for word in ("--column", name)]
    first, second = tmp_path / f"first.{ending}", tmp_path / f"second.{ending}"
    done = loaded("export", "test/one", str(first), *chosen)
    assert (done.exit_code, done.stdout) == (0, f"test/one: 3 rows to {first}\n")
    assert loaded("load", "test/two", str(first)).exit_code == 0
    assert loaded("export", "test/two", str(second), *chosen).exit_code == 0
    if ending == "parquet":
        assert pl.read_parquet(first).equals(pl.read_parquet(second))
    else:
        assert first.read_bytes() == second.read_bytes()
    if ending == "jsonl":
        assert [json.loads(line) for line in first.read_text().splitlines()] == [
            {name: row.get(name) for name in names} for row in ROWS
        ]


def test_all_that_is_shown_is_in_it_and_formulas_are_defused(loaded: Run, tmp_path: Path) -> None:
    assert loaded("edit", "test/one", "1", "title==HYPERLINK(A1)", "words=7").exit_code == 0
    file = tmp_path / "out.csv"
    done = loaded("export", "test/one", str(file))
    assert done.exit_code == 0
    assert "1 text that begins like a formula got an apostrophe in front" in done.stderr
    with file.open(newline="") as written:
        header, first, second, _ = csv.reader(written)
    assert header[:3] == ["row_id", "batch", "title"]
    assert header[-1] == "words"
    assert (first[0], first[2], first[-1]) == ("1", "'=HYPERLINK(A1)", "7")
    assert second[-1] == ""  # nothing has been computed
    again = loaded("load", "test/two", str(file))
    assert "'row_id'" in again.stderr + again.stdout


def test_wrong_names_change_nothing(loaded: Run, tmp_path: Path) -> None:
    assert loaded("export", "test/one", str(tmp_path / "out.xlsx")).exit_code == 2
    assert loaded("export", "test/none", str(tmp_path / "out.csv")).exit_code == 2
    assert loaded("export", "test/one", str(tmp_path / "out.csv"), "--column", "titel").exit_code == 2
    gone = loaded("export", "test/one", str(tmp_path / "gone" / "out.csv"))
    assert (gone.exit_code, "No such file or directory" in gone.stderr) == (1, True)
    assert not list(tmp_path.glob("out*")) and not list(tmp_path.glob(".out*"))


def test_rows_are_streamed_from_one_snapshot(loaded: Run, connection: Connection) -> None:
    found = find_collection(connection, "test/one")
    with closing(wide_rows(connection, found.id, load_version(connection, found.id))) as rows:
        first = next(rows)
        assert (first[0], first[2]) == (1, "0870")
        assert connection.execute("select count(*) from pg_cursors where name = 'export'").fetchone() == (1,)
        loaded("edit", "test/one", "2", "title=new")
        assert [row[2] for row in rows] == [None, 'two\nlines, "quoted"']
