"""A collection with `files`: what is put into their folder becomes rows, a batch and a run, and so cells."""

import os
import time
from pathlib import Path

import dagster as dg
import pytest

from autofill_defs import arrivals
from autofill_defs.inbox import Memory
from cell_engine.files import FileError, FileFacts, Growing, Place
from tests.dagster.conftest import Locate, Location
from tests.dagster.test_sensors import reason
from tests.engine import running_worker

SPEC = """
namespace: test
name: table
files:
  root: contracts
  pattern: "**/*.txt"
  columns: {file: path, a: digest}
columns:
  - {name: file, type: file}
  - {name: a, type: text}
  - {name: b, type: text, kind: function, deps: [a], function: {name: "tests.functions:upper"}}
"""

pytestmark = pytest.mark.usefixtures("settled_files")


@pytest.fixture
def location(locate: Locate, monkeypatch: pytest.MonkeyPatch) -> Location:
    monkeypatch.setattr(arrivals, "_LOOKING_SHARE", 1e9)  # looks follow each other at once
    return locate(SPEC)


def put(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / "files" / "contracts" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def rows(location: Location) -> list[str]:
    return [str(one.path) for one in location.connection.execute(
        "select inputs ->> '1' as path from autofill.row order by row_id"
    )]  # fmt: skip


def settle(location: Location, cursor: str | None) -> "tuple[list[object], str | None]":
    """Two looks; the requests of the second, and its cursor."""
    result = location.tick(location.land(location.tick(cursor)))
    return list(result.run_requests or ()), location.land(result)


def test_a_file_becomes_a_row_a_run_and_a_cell(location: Location, tmp_path: Path, database: str) -> None:
    first = location.tick(None)
    assert "there is no such folder yet" in reason(first)
    put(tmp_path, "a.txt", "a")
    put(tmp_path, "below/b.txt", "b")
    put(tmp_path, "c.doc", "not of the pattern")
    requests, cursor = settle(location, first.cursor)
    assert rows(location) == ["a.txt", "below/b.txt"]
    [key] = location.instance.get_dynamic_partitions("test/table")
    assert len(requests) == 1
    # nothing is asked for but by the run
    assert location.connection.execute("select from autofill.dispatch").rowcount == 0
    with running_worker(database):
        _, success = location.run(key, key, columns=["b"])
    assert success
    assert location.materialized["b", key]["ready"] == 2
    assert settle(location, cursor)[0] == []

    # One more file reads that one file; a changed one changes its row and has its demand with it.
    put(tmp_path, "d.txt", "d")
    requests, cursor = settle(location, cursor)
    assert len(requests) == 1
    assert rows(location) == ["a.txt", "below/b.txt", "d.txt"]
    put(tmp_path, "a.txt", "other")
    requests, cursor = settle(location, cursor)
    assert requests == []
    assert location.connection.execute("select from autofill.dispatch where reason = 'load'").rowcount == 1
    assert len(location.instance.get_dynamic_partitions("test/table")) == 2


def test_only_what_is_new_is_read(location: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "a.txt", "a")
    _, cursor = settle(location, None)
    read: list[str] = []
    facts = Place.facts
    monkeypatch.setattr(
        "cell_engine.files.place.Place.facts", lambda place, path: (read.append(path), facts(place, path))[1]
    )
    put(tmp_path, "b.txt", "b")
    _, cursor = settle(location, cursor)
    assert read == ["b.txt"]
    (tmp_path / "files" / "contracts" / "a.txt").unlink()
    _, cursor = settle(location, cursor)
    assert rows(location) == ["a.txt", "b.txt"]  # one that is gone leaves its row
    assert len(Memory.parse(cursor).files.loaded) == 1


def test_a_tick_killed_after_its_load_requests_the_run_all_the_same(location: Location, tmp_path: Path) -> None:
    put(tmp_path, "a.txt", "a")
    cursor = location.tick(None).cursor
    location.tick(cursor)  # killed before the daemon heard of it
    again = location.tick(cursor)
    assert rows(location) == ["a.txt"]
    assert len(again.run_requests or ()) == len(again.asset_events) == 1


def test_what_cannot_be_read_is_told_once_and_stops_no_other(
    location: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "good.txt", "a")
    put(tmp_path, "bad.txt", "b")
    put(tmp_path, "later.txt", "c")
    os.mkfifo(tmp_path / "files" / "contracts" / "pipe.txt")
    facts = Place.facts

    def read(place: Place, path: str) -> FileFacts:
        if path == "bad.txt":
            raise FileError(path, "cannot be opened: Permission denied")
        if path == "later.txt":
            raise Growing(path, "it was written to while it was read", 2.0)
        return facts(place, path)

    monkeypatch.setattr(Place, "facts", read)
    first = location.tick(None)
    assert "pipe.txt: it is no regular file" in reason(first)
    result = location.tick(first.cursor)
    assert rows(location) == ["good.txt"]
    assert [event.description for event in result.asset_events if isinstance(event, dg.AssetObservation)] == [
        "bad.txt was not loaded: bad.txt: cannot be opened: Permission denied"
    ]
    again = location.tick(location.land(result))
    assert again.asset_events == []
    assert "Permission denied" in reason(again)
    monkeypatch.setattr(Place, "facts", facts)
    location.tick(again.cursor)
    assert rows(location) == ["good.txt", "later.txt"]


def test_a_place_that_is_not_allowed_is_said_and_stops_no_inbox(
    locate: Locate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOFILL_FILES", str(tmp_path / "allowed"))
    location = locate(SPEC.replace("root: contracts", "root: /elsewhere"))
    assert "are not allowed" in reason(location.tick(None))


def test_a_large_folder_is_looked_at_less_often(
    location: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a.txt", "a")
    monkeypatch.setattr(arrivals, "_LOOKING_SHARE", 1e-9)
    cursor = location.tick(None).cursor
    assert Memory.parse(cursor).files_next > time.time() + 60
    assert rows(location) == []
    location.tick(cursor)
    assert rows(location) == []
