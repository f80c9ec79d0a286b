"""Many small files as few batches: each content once, whichever others it comes with, and by whom."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cell_engine.load import LoadedTogether, load_file, load_together
from cell_engine.specs.compile import compile_text
from cell_engine.store.applying import apply
from cell_engine.store.batches import list_batches, list_files
from cell_engine.store.collections import Collection, find_collection
from cell_engine.store.database import Connection, connect
from cell_engine.store.rejected import list_rejected
from tests.engine import wait_for_lock
from tests.load.conftest import SPEC, Stored, Write


def together(connection: Connection, collection: Collection, *paths: Path) -> LoadedTogether:
    return load_together(connection, collection, paths, actor="test")


def rows(connection: Connection, collection: Collection) -> int:
    return sum(batch.rows for batch in list_batches(connection, collection.id))


def test_small_files_are_one_batch_that_knows_its_files(
    connection: Connection, collection: Collection, stored: Stored, write: Write
) -> None:
    paths = [write(f"{name}.csv", f"code,count\n{name}1,1\n{name}2,{number}\n") for name, number in
             (("a", "x"), ("b", "2"), ("c", "y"))]  # fmt: skip
    same = write("same.csv", paths[0].read_text())
    done = together(connection, collection, *paths, same)
    [batch] = done.batches
    assert [row["code"] for row in stored(batch)] == ["a1", "b1", "b2", "c1"]
    assert batch.source == "a.csv and 2 more"
    files = list_files(connection, collection.id, batch.id)
    assert [(one.name, one.rows, one.rejected_rows) for one in files] == [
        ("a.csv", 1, 1), ("b.csv", 2, 0), ("c.csv", 1, 1)
    ]  # fmt: skip
    assert {path.name: loaded.rows for path, loaded in done.loaded.items()} == {
        "a.csv": 1, "b.csv": 2, "c.csv": 1, "same.csv": 1
    }  # fmt: skip
    # a rejected line is kept with its file
    kept = list_rejected(connection, collection.id)
    assert [(one.source, one.line) for one in kept] == [("a.csv", 3), ("c.csv", 3)]
    assert batch.rejected[1][1].startswith("c.csv: ")
    assert done.loaded[paths[2]].rejected[0][0] == 3
    assert not done.loaded[paths[2]].rejected[0][1].startswith("c.csv")


def test_a_content_is_in_once_whichever_others_it_comes_with(
    connection: Connection, collection: Collection, write: Write
) -> None:
    a, b, c, d = (write(f"{name}.csv", f"code\n{name}\n") for name in "abcd")
    first = together(connection, collection, a, b)
    alone = load_file(connection, collection, c, actor="test")
    assert together(connection, collection, b, c, a).batches == [*first.batches, *alone.batches]
    again = load_file(connection, collection, write("other.csv", b.read_text()), actor="test")
    assert (again.new, again.batches, again.rows) == (False, first.batches, 1)
    last = together(connection, collection, a, b, c, d)  # one new file is a batch as one that comes alone
    assert last.batches[-1].source == "d.csv"
    assert rows(connection, collection) == 4


def test_one_that_cannot_be_loaded_stops_no_other(connection: Connection, collection: Collection, write: Write) -> None:
    good = [write(f"{name}.csv", f"code\n{name}\n") for name in "ab"]
    bad = {
        write("header.csv", "nosuch\n1\n"): "nosuch",
        write("latin.csv", b"code\n\xe9t\xe9\n"): "UTF-8",
        write("none.csv", "code,count\nx,y\n"): "no row of the first 1",
        write("empty.csv", ""): "empty",
    }
    blank = write("blank.csv", "code\n")
    done = together(connection, collection, good[0], *bad, blank, good[1])
    assert done.loaded.keys() == {*good, blank}
    assert [batch.rows for batch in done.batches] == [2]
    assert done.refused.keys() == bad.keys()
    for path, said in bad.items():
        assert said in done.refused[path]


def test_batches_are_bounded_and_files_stay_whole(
    connection: Connection, collection: Collection, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cell_engine.load.together.PART_RECORDS", 5)
    paths = [write(f"{name}.csv", f"code\n{name}1\n{name}2\n") for name in "abcde"]
    assert [batch.rows for batch in together(connection, collection, *paths).batches] == [4, 4, 2]


def test_once_it_is_late_the_others_are_left(connection: Connection, collection: Collection, write: Write) -> None:
    paths = [write(f"{name}.csv", f"code\n{name}\n") for name in "abcd"]
    looks = iter([False] * 2 + [True])  # before each but the first
    done = load_together(connection, collection, paths, actor="test", is_late=lambda: next(looks))
    assert done.loaded.keys() == set(paths[:3])
    assert done.refused == {}


def test_what_changes_while_it_is_read_goes_in_later(
    connection: Connection, collection: Collection, write: Write
) -> None:
    a, b, c = (write(f"{name}.csv", f"code\n{name}\n") for name in "abc")

    def name(path: Path) -> str:
        if path == c:  # the others have been read
            b.write_text("code\nb\nmore\n")
        return path.name

    done = load_together(connection, collection, [a, b, c], actor="test", name=name)
    assert done.loaded.keys() == {a, c}
    assert "changed while it was read" in done.refused[b]
    assert rows(connection, collection) == 2


@pytest.mark.parametrize("theirs", [("b",), ("b", "c")])
def test_two_loads_that_share_files(
    connection: Connection, collection: Collection, database: str, write: Write, theirs: tuple[str, ...]
) -> None:
    """The other one's batch is open: this one waits for it, and then goes on without what is in."""
    paths = {name: write(f"{name}.csv", f"code\n{name}\n") for name in "abcd"}
    apart = [paths[name] for name in theirs]

    def other(is_open: Connection) -> None:
        if len(apart) == 1:
            load_file(is_open, collection, apart[0], actor="other", demand=False)
        else:
            load_together(is_open, collection, apart, actor="other", demand=False)

    with (
        connect(database, application="other") as second,
        connect(database, application="own") as own,
        ThreadPoolExecutor(1) as pool,
    ):
        with second.transaction():
            other(second)
            future = pool.submit(together, own, collection, *paths.values())
            wait_for_lock(connection, "autofill own")
        done = future.result(30)
    assert done.loaded.keys() == set(paths.values())
    assert rows(connection, collection) == 4


def test_what_an_apply_overtakes_is_checked_again(connection: Connection, collection: Collection, write: Write) -> None:
    paths = [write("a.csv", "code,count\na,1\n"), write("b.csv", "code,count\nb,x\nb,2\n"), write("c.csv", "code\nc\n")]

    def name(path: Path) -> str:
        if path == paths[2]:  # the others have been read
            apply(connection, compile_text(SPEC.replace("count, type: integer", "count, type: text")), actor="test")
        return path.name

    done = load_together(connection, collection, paths, actor="test", name=name)
    assert [batch.rows for batch in done.batches] == [4]
    assert find_collection(connection, "demo/things").version == 2
