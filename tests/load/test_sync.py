"""A snapshot synced by key: what is new, what changed, what is gone; and nothing for what is as it was."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from cell_engine.errors import BadValueError, NotFoundError, SpecError
from cell_engine.load import LoadError, Synced, load_file, sync_file
from cell_engine.specs.compile import compile_text
from cell_engine.store import syncing
from cell_engine.store.applying import apply
from cell_engine.store.changes import edit, reset
from cell_engine.store.collections import Collection, find_collection, load_version
from cell_engine.store.database import Connection, connect
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import page, progress
from cell_engine.store.rejected import list_rejected
from cell_engine.store.syncing import OvertakenError, restore
from cell_engine.store.upkeep import trim_loads
from tests.engine import Claimer, wait_for_lock
from tests.load.conftest import Write

SPEC = """
namespace: demo
name: shop
key: [code]
columns:
  - {name: code, type: text}
  - {name: price, type: number}
  - {name: note, type: text}
  - {name: b, type: text, kind: function, deps: [price], function: {name: "tests.functions:shape_1"}}
  - {name: c, type: text, kind: function, deps: [note], function: {name: "tests.functions:shape_1"}}
"""
Sync = Callable[..., Synced]


@pytest.fixture
def shop(connection: Connection) -> Collection:
    apply(connection, compile_text(SPEC), actor="test")
    return find_collection(connection, "demo/shop")


@pytest.fixture
def sync(connection: Connection, shop: Collection, write: Write) -> Sync:
    def sync(text: str, **how: Any) -> Synced:
        return sync_file(connection, shop, write("shop.csv", text), actor="ann", **how)

    return sync


def shown(connection: Connection, shop: Collection) -> dict[int, tuple[object, ...]]:
    """Row id → its inputs as people see them."""
    inputs, _ = page(connection, shop.id, limit=1000)
    rows: dict[int, list[object]] = {}
    for cell in inputs:
        rows.setdefault(cell.row_id, []).append(cell.value)
    return {row_id: tuple(values) for row_id, values in rows.items()}


def counts(done: Synced) -> tuple[int, ...]:
    return done.inserted, done.updated, done.restored, done.deleted, done.unchanged


FIRST = "code,price,note\n" + "".join(f"a{n},{n},\n" for n in range(1, 9))


def test_new_changed_and_gone_rows_and_only_changed_cells_are_computed(
    connection: Connection, shop: Collection, sync: Sync
) -> None:
    first = sync(FIRST)
    assert counts(first) == (8, 0, 0, 0, 0)
    assert [batch.rows for batch in first.batches] == [8]
    assert Claimer(connection).work_off().count("b") == 8

    again = sync(FIRST)
    assert (counts(again), again.batches, again.dispatches) == ((0, 0, 0, 0, 8), [], [])
    assert Claimer(connection).work_off() == []

    # a2: another price, as a number written otherwise a3's is the same; a4: a note; a8 is gone, a9 is new
    second = FIRST.replace("a2,2,", "a2,22,").replace("a3,3,", "a3,3.0,").replace("a4,4,", "a4,4,new")
    second = second.replace("a8,8,\n", "a9,9,\n")
    assert counts(sync(second)) == (1, 2, 0, 1, 5)
    assert sorted(Claimer(connection).work_off()) == ["b", "b", "c"]
    rows = shown(connection, shop)
    assert (rows[2], rows[4], rows[9]) == (("a2", 22, None), ("a4", 4, "new"), ("a9", 9, None))
    assert 8 not in rows
    assert broken_rules(connection) == {}
    done = connection.execute(
        "select inserted, updated, deleted, ended_at from autofill.sync order by number"
    ).fetchall()
    assert [tuple(one)[:3] for one in done] == [(8, 0, 0), (0, 0, 0), (1, 2, 1)]
    assert all(one.ended_at for one in done)
    left = "select (select count(*) from autofill.incoming) + (select count(*) from autofill.difference) as rows"
    assert connection.execute(left).fetchone().rows == 0  # type: ignore[union-attr]


def test_an_empty_field_empties_and_a_column_that_is_not_there_says_nothing(
    connection: Connection, shop: Collection, sync: Sync, write: Write
) -> None:
    sync("code,price,note\na1,1,x\na2,2,y\n")
    assert counts(sync("code,note\na1,\na2,y\n")) == (0, 1, 0, 0, 1)
    assert list(shown(connection, shop).values()) == [("a1", 1, None), ("a2", 2, "y")]
    lines = write("s.jsonl", '{"code": "a1", "note": "z"}\n{"code": "a2", "note": null}\n')
    assert counts(sync_file(connection, shop, lines, actor="ann")) == (0, 2, 0, 0, 0)
    assert list(shown(connection, shop).values()) == [("a1", 1, "z"), ("a2", 2, None)]


def test_R5_a_persons_value_stays_and_is_shown(connection: Connection, shop: Collection, sync: Sync) -> None:
    sync(FIRST)
    Claimer(connection).work_off()
    price = load_version(connection, shop.id).by_name["price"].id
    edit(connection, shop.id, 1, {price: 100}, actor="me")
    Claimer(connection).work_off()
    assert counts(sync(FIRST.replace("a1,1,", "a1,5,"))) == (0, 1, 0, 0, 7)
    assert shown(connection, shop)[1] == ("a1", 100, None)
    assert Claimer(connection).work_off() == []
    reset(connection, shop.id, 1, [price], actor="me")
    assert shown(connection, shop)[1] == ("a1", 5, None)
    assert Claimer(connection).work_off() == ["b"]

    # of a cell that is computed it stays as well, and says that what it was based on has changed
    computed = load_version(connection, shop.id).by_name["b"].id
    edit(connection, shop.id, 2, {computed: "mine"}, actor="me")
    sync(FIRST.replace("a1,1,", "a1,5,").replace("a2,2,", "a2,6,"))
    assert Claimer(connection).work_off() == []
    _, cells = page(connection, shop.id, limit=1000)
    (mine,) = [cell for cell in cells if (cell.row_id, cell.column_id) == (2, computed)]
    assert (mine.value, mine.status, mine.inputs_moved) == ("mine", "overridden", True)


def test_a_deleted_row_comes_back_as_itself(connection: Connection, shop: Collection, sync: Sync) -> None:
    sync(FIRST)
    Claimer(connection).work_off()
    without = FIRST.replace("a3,3,\n", "").replace("a5,5,\n", "")
    gone = sync(without)
    assert gone.deleted == 2
    # by a snapshot that has it again: what was computed is there, and only what differs is computed
    assert counts(sync(without + "a3,3,\n")) == (0, 0, 1, 0, 6)
    assert Claimer(connection).work_off() == []
    # by hand
    version = load_version(connection, shop.id)
    assert restore(connection, version, actor="ann", sync=gone.number)[0] == 1
    assert Claimer(connection).work_off() == []
    assert sorted(shown(connection, shop)) == list(range(1, 9))
    with pytest.raises(NotFoundError, match="no sync has deleted"):
        restore(connection, version, actor="ann")
    with pytest.raises(NotFoundError, match=f"sync {gone.number} has deleted no rows"):
        restore(connection, version, actor="ann", sync=gone.number)


def test_a_snapshot_that_deletes_too_much_is_refused_unless_told(
    connection: Connection, shop: Collection, sync: Sync
) -> None:
    sync(FIRST)
    with pytest.raises(LoadError, match=r"lacks 5 of the 8 rows of demo/shop, more than 50%.*--any-deletes"):
        sync("code\na1\na2\na3\n")
    with pytest.raises(LoadError, match="lacks 8 of the 8 rows"):
        sync("code,price\n")
    assert len(shown(connection, shop)) == 8
    assert sync("code\na1\na2\na3\n", any_deletes=True, apply=False).deleted == 5
    assert len(shown(connection, shop)) == 8
    assert counts(sync("code\na1\na2\na3\na4\n")) == (0, 0, 0, 4, 4)
    apply(connection, compile_text(SPEC.replace("key: [code]", "key: code\ndelete_share: 0.1")), actor="test")
    with pytest.raises(LoadError, match="lacks 1 of the 4 rows of demo/shop, more than 10%"):
        sync("code\na1\na2\na3\n")
    assert sync("code\na1\na2\na3\n", any_deletes=True).deleted == 1


def test_lines_without_a_key_and_with_one_that_is_taken_are_rejected(
    connection: Connection, shop: Collection, sync: Sync
) -> None:
    done = sync("code,price\na1,1\n,2\na1,3\na2,4\na1,5\n")
    assert done.rejected == [
        (3, "no value in code, the key of a row"),
        (4, "its key is that of line 2, which is taken"),
        (6, "its key is that of line 2, which is taken"),
    ]
    assert (done.inserted, done.rejected_lines) == (2, 3)
    assert list(shown(connection, shop).values()) == [("a1", 1, None), ("a2", 4, None)]
    with pytest.raises(LoadError, match=r"none of its 2 rows fits.*\n.*:2: no value in code"):
        sync("price\n1\n2\n")


def test_beside_a_line_that_cannot_be_read_nothing_is_deleted(
    connection: Connection, shop: Collection, sync: Sync
) -> None:
    sync(FIRST)
    done = sync(FIRST.replace("a2,2,", "a2,x,").replace("a3,3,\n", "").replace("a4,4,", "a4,44,"))
    assert counts(done) == (0, 1, 0, 0, 5)
    assert (done.withheld, done.rejected_lines) == (2, 1)
    assert len(shown(connection, shop)) == 8


def test_rows_that_share_a_key_become_one(connection: Connection, shop: Collection, sync: Sync, write: Write) -> None:
    load_file(connection, shop, write("plain.csv", "code,price\na1,1\na2,2\na1,3\na4,4\n"), actor="ann")
    assert counts(sync("code,price\na1,5\na2,2\na4,4\n")) == (0, 1, 0, 1, 2)
    assert shown(connection, shop) == {1: ("a1", 5, None), 2: ("a2", 2, None), 4: ("a4", 4, None)}


def test_a_key_of_several_columns(connection: Connection, shop: Collection, sync: Sync) -> None:
    apply(connection, compile_text(SPEC.replace("key: [code]", "key: [code, note]")), actor="test")
    assert counts(sync("code,price,note\na,1,x\na,2,y\nb,3,x\n")) == (3, 0, 0, 0, 0)
    assert counts(sync("code,price,note\na,1,x\na,22,y\nb,3,x\n")) == (0, 1, 0, 0, 2)


def test_many_changes_are_demanded_by_sweeps(
    connection: Connection, shop: Collection, sync: Sync, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cell_engine.load.sync.NAMED_ROWS", 3)
    monkeypatch.setattr(syncing, "RANGE_ROWS", 2)
    sync(FIRST)
    Claimer(connection).work_off()
    done = sync(FIRST.replace("a", "a").replace(",\n", ",new\n", 6).replace("code,price,new", "code,price,note"))
    assert done.updated == 6
    assert connection.execute("select count(*) as rows from autofill.work").fetchone().rows == 0  # type: ignore[union-attr]
    assert sorted(Claimer(connection).work_off()) == ["c"] * 6
    ended = [progress(connection, dispatch) for dispatch in done.dispatches]
    assert [one.ended_at is not None for one in ended if one] == [True] * 3
    assert broken_rules(connection) == {}


@pytest.mark.parametrize("dies_in", ["sync_insert", "sync_update", "sync_delete", "sync_end"])
def test_a_sync_that_died_anywhere_is_finished_by_the_next(
    connection: Connection, shop: Collection, sync: Sync, monkeypatch: pytest.MonkeyPatch, dies_in: str
) -> None:
    sync(FIRST)
    Claimer(connection).work_off()
    for name in ("INSERT_ROWS", "CHANGE_ROWS", "RANGE_ROWS"):
        monkeypatch.setattr(syncing, name, 1)
    target = "code,price,note\n" + "".join(f"a{n},{n if n > 4 else -n},\n" for n in range(3, 11))
    run, passed = syncing.run, 0

    def dying(on: Connection, name: str, /, **parameters: Any) -> Any:
        nonlocal passed
        passed += name == dies_in
        if name == dies_in and (passed > 1 or name == "sync_end"):
            raise KeyboardInterrupt
        return run(on, name, **parameters)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(syncing, "run", dying)
        sync(target)
    done = sync(target)
    assert done.unchanged >= 3
    rows = sorted(map(str, shown(connection, shop).values()))
    assert rows == sorted(str((f"a{n}", n if n > 4 else -n, None)) for n in range(3, 11))
    Claimer(connection).work_off()
    assert counts(sync(target)) == (0, 0, 0, 0, 8)
    assert broken_rules(connection) == {}


def test_of_two_at_once_the_later_one_goes_on_and_no_key_comes_twice(
    database: str, connection: Connection, shop: Collection, sync: Sync, write: Write
) -> None:
    path = write("other.csv", "code,price\n" + "".join(f"a{n},{n}\n" for n in range(5, 13)))
    with (
        connect(database, application="late") as late,
        connect(database, application="holder") as holder,
        ThreadPoolExecutor(1) as pool,
    ):
        # the earlier one has staged and compared, and stands before its first chunk
        def meanwhile(_: Connection, version: Any, *args: Any, **kwargs: Any) -> Any:
            with holder.transaction():
                holder.execute("select pg_advisory_xact_lock(hashtextextended('autofill.sync ' || %s, 0))", [shop.id])
                beside = pool.submit(sync_file, late, shop, path, actor="bob")
                wait_for_lock(connection, "autofill late")
            beside.result()
            return make_batch(_, version, *args, **kwargs)

        make_batch = syncing.make_batch
        with pytest.MonkeyPatch.context() as patch:
            calls = iter([meanwhile])
            patch.setattr(syncing, "make_batch", lambda *a, **k: next(calls, make_batch)(*a, **k))
            with pytest.raises(OvertakenError, match=r"shop.csv: another sync"):
                sync(FIRST)
    assert sorted(str(code) for code, *_ in shown(connection, shop).values()) == sorted(f"a{n}" for n in range(5, 13))


def test_what_is_known_of_old_syncs_and_their_rejected_lines_goes_in_time(
    connection: Connection, shop: Collection, sync: Sync, write: Write
) -> None:
    sync(FIRST)
    sync(FIRST.replace("a8,8,\n", ""))  # deletes a row, which can be restored
    sync(FIRST.replace("a8,8,\n", "") + "a9,x,\n")
    load_file(connection, shop, write("other.csv", "code,price\nb1,1\nb2,x\n"), actor="ann")
    load_file(connection, shop, write("later.csv", "code,price\nb3,1\nb4,x\n"), actor="ann")
    connection.execute(
        "update autofill.batch set loaded_at = loaded_at - interval '91 days' where source = 'other.csv'"
    )
    assert trim_loads(connection) == 1
    old = "update autofill.sync set started_at = started_at - interval '91 days'"
    connection.execute(f"{old} where number < 3")
    assert trim_loads(connection) == 1
    assert [one[0] for one in connection.execute("select number from autofill.sync order by 1")] == [2, 3]
    connection.execute(old)
    assert trim_loads(connection) == 1, "the line; the last sync stays, or the next one would be the first again"
    assert [one.line for one in list_rejected(connection, shop.id)] == [3]
    assert restore(connection, load_version(connection, shop.id), actor="me", sync=2)[0] == 1
    assert trim_loads(connection) == 1
    assert sync(FIRST).number == 4


def test_a_collection_without_a_key_and_a_key_that_is_none(connection: Connection, write: Write) -> None:
    apply(connection, compile_text(SPEC.replace("key: [code]\n", "")), actor="test")
    shop = find_collection(connection, "demo/shop")
    with pytest.raises(BadValueError, match=r"demo/shop declares no key.*key: \[column\]"):
        sync_file(connection, shop, write("a.csv", "code\na\n"), actor="ann")
    for key, said in {
        "[cod]": "there is no column 'cod'; did you mean 'code'",
        "[b]": "column 'b' is computed",
        "[price]": "column 'price' is of type number",
        "[code, code]": "given twice",
        "[]": "key",
    }.items():
        with pytest.raises(SpecError, match=said) as refused:
            compile_text(SPEC.replace("[code]", key))
        assert ":4:" in str(refused.value)
    same = compile_text(SPEC.replace("key: [code]\n", ""))
    assert "key" not in same.normalized
    with pytest.raises(SpecError, match="declare key"):
        compile_text(SPEC.replace("key: [code]", "delete_share: 0.2"))


def test_the_server_that_lost_the_snapshot_is_noticed(
    connection: Connection, shop: Collection, sync: Sync, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare = syncing.Sync.compare

    def lose(self: syncing.Sync, **how: bool) -> Any:
        found = compare(self, **how)
        connection.execute("truncate autofill.incoming")
        return found

    monkeypatch.setattr(syncing.Sync, "compare", lose)
    with pytest.raises(Exception, match=r"the staged snapshot is gone; sync it again") as lost:
        sync(FIRST)
    assert not isinstance(lost.value, psycopg.Error)
    assert shown(connection, shop) == {}
