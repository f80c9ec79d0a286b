"""A folder into rows: each file once, by its content, whatever is wrong with others; and rows that wait for files."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from cell_engine.errors import BadValueError
from cell_engine.load import LoadError
from cell_engine.load.folder import LoadedFolder, load_folder
from cell_engine.store.changes import edit
from cell_engine.store.database import Connection
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import page, progress
from cell_engine.worker import patience
from tests.engine import Made, eventually, make, running_worker
from tests.files.reading import ReadingKind

SPEC = """
namespace: test
name: contracts
files:
  root: contracts
  pattern: "**/*.txt"
  columns: {file: path, sha256: digest, bytes: size, at: modified, media: media_type}
columns:
  - {name: file, type: file}
  - {name: sha256, type: text}
  - {name: bytes, type: integer}
  - {name: at, type: datetime}
  - {name: media, type: text}
  - {name: note, type: text}
  - {name: content, type: text, kind: reading, deps: [file]}
  - {name: shout, type: text, kind: function, deps: [content], function: {name: "tests.files.functions:shout"}}
"""
ENDED = "select ended_at is not null from autofill.dispatch where id = %s"
CONTENT = "select ai_value = to_jsonb(%s::text) from autofill.cell where row_id = %s and column_id = %s"
FAILED = "select error_class, count(*) from autofill.attempt where error_class is not null group by 1 order by 1"
STATUS = "select string_agg(distinct status, ',' order by status) = %s from autofill.cell_status where row_id = %s"


def load(connection: Connection, made: Made, folder: Path, **how: bool) -> LoadedFolder:
    return load_folder(connection, made.collection, str(folder), actor="me", **how)


def cells(connection: Connection, made: Made) -> dict[tuple[str, str], object]:
    """By file and column: values, or what is wrong."""
    _, found = page(connection, made.collection.id)
    paths = {row_id: str(row["file"]) for row_id, row in enumerate(inputs(connection, made), 1)}
    names = {id: column.name for id, column in made.version.by_id.items()}
    return {(paths[one.row_id], names[one.column_id]): one.error_class or one.value for one in found}


def inputs(connection: Connection, made: Made) -> list[dict[str, object]]:
    """Loaded values by name, of all rows."""
    rows = connection.execute("select inputs from autofill.row order by row_id").fetchall()
    return [{made.version.by_id[int(id)].name: value for id, value in row.items()} for (row,) in rows]


def test_each_file_is_a_row_once_and_what_is_wrong_with_one_is_told(connection: Connection, files: Path) -> None:
    made = make(connection, SPEC)
    (files / "sub").mkdir()
    for name, text in (("a.txt", "one"), ("sub/b.txt", "two"), ("sub/same.txt", "one"), ("other.pdf", "x")):
        (files / name).write_text(text)
    os.utime(files / "a.txt", (1_700_000_000, 1_700_000_000))
    (files / "link.txt").symlink_to(files.parent / "elsewhere")
    (files / "back\\slash.txt").write_text("x")
    done = load(connection, made, files, apply=False)
    assert (done.synced.inserted, done.synced.batches, inputs(connection, made)) == (3, [], [])
    seen: list[int] = []
    done = load_folder(connection, made.collection, str(files), actor="me", on_files=seen.append)
    assert (done.synced.inserted, len(done.synced.batches), done.synced.rejected_lines) == (3, 1, 2)
    assert sorted(reason.partition(":")[0] for _, reason in done.synced.rejected) == ["back\\slash.txt", "link.txt"]
    assert done.same == [("a.txt", "sub/same.txt")]
    assert seen[-1] >= 3
    first = inputs(connection, made)[0]
    assert first == {
        "file": "a.txt", "bytes": 3, "at": "2023-11-14T22:13:20+00:00", "media": "text/plain",
        "sha256": "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed",
    }  # fmt: skip
    # again, and a folder in it: nothing
    for folder in (files, files / "sub"):
        again = load(connection, made, folder).synced
        assert (again.changes, again.dispatches) == (0, [])
    # a file that is gone leaves its row
    (files / "a.txt").unlink()
    assert load(connection, made, files).synced.changes == 0
    assert len(inputs(connection, made)) == 3
    assert broken_rules(connection) == {}


def test_a_folder_elsewhere_is_refused_and_so_is_a_collection_that_says_nothing_of_files(
    connection: Connection, files: Path, tmp_path: Path
) -> None:
    made = make(connection, SPEC)
    (files / "out").symlink_to(tmp_path)
    for folder in (tmp_path, files / ".." / "..", files / "out", Path("/")):
        with pytest.raises(LoadError, match="does not lie in"):
            load(connection, made, folder)
    plain = make(connection, "namespace: test\nname: plain\ncolumns: [{name: file, type: file}]")
    with pytest.raises(BadValueError, match="does not say how files become its rows"):
        load(connection, plain, files)


def test_a_changed_file_recomputes_its_row_alone(connection: Connection, database: str, files: Path) -> None:
    made = make(connection, SPEC)
    for name in ("a.txt", "b.txt"):
        (files / name).write_text(name)
    with running_worker(database, job_types=["reading", "function"]):
        for dispatch in load(connection, made, files).synced.dispatches:
            eventually(connection, ENDED, dispatch)
        assert ReadingKind.looks == ["a.txt", "b.txt"] or ReadingKind.looks == ["b.txt", "a.txt"]
        (files / "b.txt").write_text("other")
        done = load(connection, made, files).synced
        assert (done.updated, done.unchanged) == (1, 1)
        for dispatch in done.dispatches:
            eventually(connection, ENDED, dispatch)
    assert ReadingKind.looks[2:] == ["b.txt"]
    assert cells(connection, made) == {
        ("a.txt", "content"): "a.txt", ("a.txt", "shout"): "A.TXT",
        ("b.txt", "content"): "other", ("b.txt", "shout"): "OTHER",
    }  # fmt: skip
    assert broken_rules(connection) == {}


def test_all_rows_that_name_a_changed_file_are_computed_again(
    connection: Connection, database: str, files: Path
) -> None:
    rows = [{"file": "a.txt", "note": note} for note in ("1", "2", "3")]
    made = make(connection, SPEC, rows=[*rows, {"file": "b.txt"}])
    for name in ("a.txt", "b.txt"):
        (files / name).write_text(name)
    with running_worker(database, job_types=["reading", "function"]):
        for text in ("a.txt", "other"):
            (files / "a.txt").write_text(text)
            done = load(connection, made, files).synced
            for dispatch in done.dispatches:
                eventually(connection, ENDED, dispatch)
            for row in (1, 2, 3):
                eventually(connection, CONTENT, text, row, made.id("content"))
        assert (done.updated, done.unchanged, done.inserted, done.deleted) == (3, 1, 0, 0)
    assert sorted(ReadingKind.looks[-3:]) == ["a.txt"] * 3
    assert len({one["sha256"] for one in inputs(connection, made)}) == 2
    # one that is deleted does not come back beside those that are there
    connection.execute("update autofill.row set deleted_at = clock_timestamp() where row_id = 2")
    (files / "a.txt").write_text("third")
    done = load(connection, made, files).synced
    assert (done.updated, done.restored, done.unchanged) == (2, 0, 1)
    assert load(connection, made, files).synced.changes == 0
    assert broken_rules(connection) == {}


def test_a_row_waits_for_its_file_and_is_woken_by_the_load_that_brings_it_or_ends_when_its_time_is_over(
    connection: Connection, database: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "LOOK_SECONDS", (600.0, 600.0))  # nothing comes of looking again
    rows = [{"file": "late.txt"}, {"file": "late.txt", "note": "the same"}, {"file": "never.txt"}, {"file": "typo.txt"}]
    with running_worker(database, job_types=["reading", "function"]):
        made = make(connection, SPEC, rows=rows)
        dispatch = connection.execute("select id from autofill.dispatch").fetchone()[0]  # type: ignore[index]
        for row in (1, 2, 3, 4):
            eventually(connection, STATUS, "waiting", row)
        assert connection.execute("select outcome, count(*) from autofill.completion group by 1").fetchall() == []
        assert connection.execute("select distinct attempts from autofill.work").fetchall() == [({},)]
        assert progress(connection, dispatch).ended_at is None  # type: ignore[union-attr]
        (files / "late.txt").write_text("here")
        done = load(connection, made, files)
        assert (done.woken, done.synced.updated, done.synced.inserted) == (2, 2, 0)
        for row in (1, 2):
            eventually(connection, STATUS, "ready", row)
        eventually(connection, STATUS, "waiting", 3)
        # an edit does not wait either
        edit(connection, made.collection.id, 4, {made.id("file"): "late.txt"}, actor="me")
        eventually(connection, STATUS, "ready", 4)
        # its time is over
        connection.execute(
            "update autofill.work set waiting = jsonb_set(waiting, array[%s], to_jsonb(0)), state = 'queued', "
            "available_at = null where row_id = 3",
            [str(made.id("content"))],
        )
        eventually(connection, ENDED, dispatch)
        for one in done.synced.dispatches:
            eventually(connection, ENDED, one)
    found = cells(connection, made)
    assert found["late.txt", "shout"] == "HERE"
    assert (found["never.txt", "content"], found["never.txt", "shout"]) == ("bad_input", "blocked")
    (error,) = connection.execute("select error from autofill.cell where error_class = 'bad_input'").fetchall()
    assert error[0] == "never.txt: there is no such file (waited for 1h)"
    # no look counted as an attempt, and only the first of each cell is kept
    assert connection.execute(FAILED).fetchall() == [("bad_input", 1), ("waiting", 4)]
    assert broken_rules(connection) == {}


def test_a_row_looks_again_by_itself_until_its_time_is_over(connection: Connection, database: str, files: Path) -> None:
    spec = SPEC.replace("deps: [file]}", "deps: [file], wait: 1s, attempts: 1}")
    with running_worker(database, job_types=["reading", "function"]):
        began = time.monotonic()
        made = make(connection, spec, rows=[{"file": "late.txt"}, {"file": "never.txt"}])
        eventually(connection, STATUS, "waiting", 1)
        (files / "late.txt").write_text("here")
        eventually(connection, "select ended_at is not null from autofill.dispatch")
        assert time.monotonic() - began >= 1
    assert cells(connection, made) == {
        ("late.txt", "content"): "here", ("late.txt", "shout"): "HERE",
        ("never.txt", "content"): "bad_input", ("never.txt", "shout"): "blocked",
    }  # fmt: skip
    assert len(ReadingKind.looks) > 4
    assert connection.execute(FAILED).fetchall() == [("bad_input", 1), ("waiting", 2)]
    assert connection.execute("select count(*) from autofill.completion where outcome = 'waiting'").fetchone() == (0,)
    assert connection.execute("select count(*) from autofill.work").fetchone() == (0,)
    assert broken_rules(connection) == {}
