"""The reader of CSV by itself: whatever the text, it ends, numbers truly, and takes what is well-formed as it is."""

import csv
import io
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cell_engine.load.content import Content
from cell_engine.load.csv_rows import csv_rows
from cell_engine.load.rows import Record
from cell_engine.specs.compile import compile_text
from cell_engine.specs.version import Version

SPEC = compile_text("{namespace: demo, name: pairs, columns: [{name: a, type: text}, {name: b, type: text}]}")
PAIRS = Version(1, 1, SPEC.bind({"a": 1, "b": 2}))
EXAMPLES = settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
_files = count()


def read(folder: Path, body: str, skip: int = 0) -> list[Record]:
    path = folder / f"{next(_files)}.csv"
    path.write_text("a,b\n" + body, encoding="utf-8", newline="")
    return list(csv_rows(Content(path, "", "csv", (0, 0, 0, 0)), PAIRS, skip))


@EXAMPLES
@given(body=st.lists(st.sampled_from(['"', '""', ",", "\n", "\r", "\r\n", "x", "x,y\n"]), max_size=30).map("".join))
def test_any_text(tmp_path: Path, body: str) -> None:
    records = read(tmp_path, body)
    lines = [record.line for record in records]
    assert lines == sorted(set(lines))
    assert all(2 <= line <= 1 + len(io.StringIO(body, newline="").readlines()) for line in lines)
    for skip in range(len(records) + 1):
        assert read(tmp_path, body, skip) == records[skip:]
    try:
        well_formed = [fields for fields in csv.reader(io.StringIO(body, newline=""), strict=True) if fields]
    except csv.Error:
        assert any(record.row is None for record in records)
        return
    assert [record.row for record in records] == [
        {id_: text for id_, text in enumerate(fields, 1) if text} if len(fields) == 2 else None
        for fields in well_formed
    ]


@EXAMPLES
@given(
    lines=st.lists(st.sampled_from(["x,y", "1,", ",2"]), max_size=20),
    at=st.integers(0, 20),
    open_=st.sampled_from(['"', '1,"', '"x', '1,"x,y', '"a"b,c']),
)
def test_a_broken_line_costs_no_other(tmp_path: Path, lines: list[str], at: int, open_: str) -> None:
    at = min(at, len(lines))
    records = read(tmp_path, "\n".join([*lines[:at], open_, *lines[at:]]))
    assert [record.line for record in records if record.row is None] == [at + 2]
    assert len(records) == len(lines) + 1


@pytest.mark.parametrize("line", ['1,"abc', '1,"a""', '1,"""', '"'])
def test_a_file_of_broken_lines_takes_no_longer_than_its_length(tmp_path: Path, line: str) -> None:
    records = read(tmp_path, f"{line}\n" * 50_000)
    assert len(records) >= 25_000
