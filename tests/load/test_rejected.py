"""Rejected lines: kept with what stands in them, exported, repaired, and loaded again once."""

import csv
import io
from datetime import date
from pathlib import Path

import polars as pl
import pytest

from cell_engine.load import LoadError, load_file, load_frame, load_repaired, sync_file, write_rejected
from cell_engine.specs.compile import compile_text
from cell_engine.store import rejected as store
from cell_engine.store.applying import apply
from cell_engine.store.collections import Collection, find_collection, load_version
from cell_engine.store.database import Connection
from cell_engine.store.rejected import KeptLine, list_rejected
from tests.load.conftest import SPEC, Write

CSV = "code,title,count\nok,fine,1\na,\"=cmd('x')\n\",x\nragged\nb,-5,y\nc,\"open,3\nd,'tis,z\n"


def exported(connection: Connection, collection: Collection, path: Path) -> list[dict[str, str]]:
    with path.open("w", encoding="utf-8", newline="") as file:
        write_rejected(list_rejected(connection, collection.id), load_version(connection, collection.id), file)
    return list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))


def write_back(path: Path, lines: list[dict[str, str]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    return path


def inputs(connection: Connection, collection: Collection) -> list[tuple[str, str | None, int | None]]:
    ids = {column.name: str(column.id) for column in load_version(connection, collection.id).columns}
    found = connection.execute(
        "select inputs from autofill.row where collection_id = %s order by row_id", [collection.id]
    )
    return [tuple(one.inputs.get(ids[name]) for name in ("code", "title", "count")) for one in found]  # type: ignore[misc]


def test_lines_are_kept_repaired_and_loaded_again_once(
    connection: Connection, collection: Collection, write: Write, tmp_path: Path
) -> None:
    batch = load_file(connection, collection, write("a.csv", CSV), actor="ann").batches[0]
    kept = list_rejected(connection, collection.id)
    assert [(one.line, one.source, one.batch) for one in kept] == [(n, "a.csv", batch.key) for n in (3, 5, 6, 7, 8)]
    assert [one.raw for one in kept] == ["a,\"=cmd('x')\n\",x", "ragged", "b,-5,y", 'c,"open,3', "d,'tis,z"]
    assert list_rejected(connection, collection.id, batch="another") == []

    path = tmp_path / "rejected.csv"
    lines = exported(connection, collection, path)
    assert [line["title"] for line in lines] == ["'=cmd('x')\n", "", "'-5", "", "''tis"]
    assert "3 fields" not in lines[1]["reason"] and "1 fields, the header has 3" in lines[1]["reason"]
    assert not [cell for line in lines for cell in line.values() if cell.startswith(("=", "+", "-", "@"))]

    lines[0]["count"], lines[2]["count"], lines[4]["count"] = "3", "still wrong", "8"
    done = load_repaired(connection, collection, write_back(path, lines), actor="ann")
    assert (done.rows, done.rejected, done.passed) == (2, 1, 2)
    assert inputs(connection, collection) == [("ok", "fine", 1), ("a", "=cmd('x')\n", 3), ("d", "'tis", 8)]
    # the one that still does not fit is kept as it is now, and the two left alone as they were
    assert [one.raw for one in list_rejected(connection, collection.id)][:2] == ["ragged", 'c,"open,3']
    assert [one.fields and sorted(one.fields.values()) for one in list_rejected(connection, collection.id)][2] == [
        "-5", "b", "still wrong",
    ]  # fmt: skip
    assert len(list_rejected(connection, collection.id, repaired=True)) == 6

    # the same file again, and once more with another line put right: nothing comes twice
    assert load_repaired(connection, collection, path, actor="ann").passed == 5
    lines[1] |= {"code": "r", "count": "4"}
    assert load_repaired(connection, collection, write_back(path, lines), actor="ann").passed == 4
    assert [code for code, *_ in inputs(connection, collection)] == ["ok", "a", "d", "r"]


def test_what_is_no_text_is_kept_as_it_would_stand_in_a_csv(
    connection: Connection, collection: Collection, write: Write, tmp_path: Path
) -> None:
    cells = {
        "code": "a",
        "day": date(2026, 1, 2),
        "price": 1.5,
        "tags": ["x", "y"],
        "colour": "blue",
        "extra": {"a": 1},
    }
    bad = pl.DataFrame([cells])
    frame = pl.concat([bad, bad.with_columns(colour=pl.lit("red"))])
    load_frame(connection, collection, frame, key="f", source="f", actor="ann")
    load_file(connection, collection, write("a.jsonl", '{"code": "b"}\n{"code": "c", "count": "x"}\n{]\n'), actor="ann")
    first, second, third = list_rejected(connection, collection.id)
    lines = exported(connection, collection, tmp_path / "r.csv")
    assert (lines[0]["day"], lines[0]["price"], lines[0]["tags"]) == ("2026-01-02", "1.5", '["x", "y"]')
    assert lines[0]["extra"] == '{"a": 1}'
    assert (first.line, second.raw, second.fields and len(second.fields)) == (1, '{"code": "c", "count": "x"}', 2)
    assert (third.raw, third.fields) == ("{]", None)
    lines[0]["colour"] = "green"
    assert load_repaired(connection, collection, write_back(tmp_path / "r.csv", lines[:1]), actor="ann").rows == 1


def test_they_are_bounded_and_of_long_lines_no_half_is_loaded(
    connection: Connection, collection: Collection, write: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(store, "REJECTED_BYTES", 50_000)
    long = "".join(f"{n},{'é' * 12_000},x\n" for n in range(5))
    load_file(connection, collection, write("a.csv", "code,title,count\nok,t,1\n" + long), actor="ann")
    kept = list_rejected(connection, collection.id)
    assert [(len(one.raw), one.fields) for one in kept] == [(10_000, None)] * 2
    many = "count\n1\n" + "x\n" * 1_500
    load_file(connection, collection, write("b.csv", many), actor="ann")
    assert len(list_rejected(connection, collection.id, after=kept[-1].id, limit=5_000)) == 1_000
    connection.execute("delete from autofill.row")
    connection.execute("delete from autofill.batch")
    assert list_rejected(connection, collection.id) == []


def test_of_a_sync_they_are_those_of_the_latest_and_come_back_by_key(
    connection: Connection, write: Write, tmp_path: Path
) -> None:
    apply(connection, compile_text(SPEC.replace("name: things\n", "name: things\nkey: code\n")), actor="test")
    collection = find_collection(connection, "demo/things")
    for text in ("code,count\na,1\nb,x\na,2\n,5\n", "code,count\na,1\nb,x\nb,y\n"):
        sync_file(connection, collection, write("s.csv", text), actor="ann")
    kept: list[KeptLine] = list_rejected(connection, collection.id)
    assert [(one.line, one.sync, one.batch) for one in kept] == [(3, 2, None), (4, 2, None)]
    lines = exported(connection, collection, tmp_path / "r.csv")
    lines[0]["count"] = "7"
    done = load_repaired(connection, collection, write_back(tmp_path / "r.csv", lines), actor="ann")
    assert (done.rows, done.rejected) == (1, 1)
    assert inputs(connection, collection) == [("a", None, 1), ("b", None, 7)]


def test_another_file_is_no_repair(connection: Connection, collection: Collection, write: Write) -> None:
    with pytest.raises(LoadError, match=r"no column 'rejected'.*autofill rejected demo/things --csv"):
        load_repaired(connection, collection, write("a.csv", "code\na\n"), actor="ann")
    with pytest.raises(LoadError, match="rejected is no number of a rejected line"):
        load_repaired(connection, collection, write("a.csv", "rejected,code\n1x,a\n"), actor="ann")
    assert load_repaired(connection, collection, write("a.csv", "rejected,code\n77,a\n"), actor="ann").passed == 1


def test_what_a_spreadsheet_runs_is_defused_in_any_width(
    connection: Connection, collection: Collection, write: Write, tmp_path: Path
) -> None:
    load_file(connection, collection, write("a.csv", "code,title,count\nok,fine,1\nb,＝1+1,x\nc,＠y,x\n"), actor="ann")
    assert [line["title"] for line in exported(connection, collection, tmp_path / "r.csv")] == ["'＝1+1", "'＠y"]
