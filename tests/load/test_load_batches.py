"""The same content once: again, under another name, after a crash, by two loaders at once, while it is written."""

import os
import signal
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from cell_engine.load import Loaded, LoadError, batch_keys, load_file
from cell_engine.specs.compile import compile_text
from cell_engine.store.applying import apply
from cell_engine.store.batches import Batch, list_batches
from cell_engine.store.collections import Collection, find_collection
from cell_engine.store.database import Connection, connect
from tests.engine import wait_for_lock
from tests.load.conftest import SPEC, Stored, Write

CSV = "code,count\n" + "".join(f"{n},{n if n % 7 else 'x'}\n" for n in range(1, 96))
GOOD = [str(n) for n in range(1, 96) if n % 7]
BAD = [n + 1 for n in range(1, 96) if n % 7 == 0]  # lines


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cell_engine.load.loader.PART_RECORDS", 10)
    monkeypatch.setattr("cell_engine.load.loader._PROGRESS_EVERY", 1)


def codes(stored: Stored, batches: list[Batch]) -> list[Any]:
    return [row["code"] for batch in batches for row in stored(batch)]


def test_parts_and_the_same_content_again(
    connection: Connection, collection: Collection, stored: Stored, write: Write
) -> None:
    passed: list[int] = []
    first = load_file(connection, collection, write("a.csv", CSV), actor="ann", on_rows=passed.append)
    prefix = batch_keys(write("b.txt", CSV))
    assert len(prefix) == 16
    assert [batch.key for batch in first.batches] == [f"{prefix}-{n:04d}" for n in range(1, 11)]
    assert [batch.rows + batch.rejected_rows for batch in first.batches] == [10] * 9 + [5]
    assert (first.new, first.rows, first.rejected_rows) == (True, len(GOOD), len(BAD))
    assert [line for line, _ in first.rejected] == BAD
    assert codes(stored, first.batches) == GOOD
    assert passed[:3] == [1, 2, 3]
    assert passed[-1] == 95

    again = load_file(connection, collection, write("b.txt", CSV), actor="bob", on_rows=passed.append)
    assert (again.new, again.batches) == (False, first.batches)
    assert passed[-1] == 95
    other = load_file(connection, collection, write("a.csv", CSV + "96,96\n"), actor="ann")
    assert other.new
    assert other.rows == len(GOOD) + 1


def test_parts_of_bounded_bytes(
    connection: Connection, collection: Collection, stored: Stored, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cell_engine.load.loader.PART_BYTES", 20_000)
    path = write("wide.csv", "code,title\n" + "".join(f"{n},{'x' * 6000}\n" for n in range(20)))
    loaded = load_file(connection, collection, path, actor="ann")
    assert [batch.rows for batch in loaded.batches] == [4] * 5
    assert codes(stored, loaded.batches) == [str(n) for n in range(20)]


def test_a_part_of_rejected_lines_only(
    connection: Connection, collection: Collection, stored: Stored, write: Write
) -> None:
    path = write("tail.csv", "count\n" + "1\n" * 10 + "x\n" * 10 + "2\n" + "x\n" * 12)
    loaded = load_file(connection, collection, path, actor="ann")
    assert [(batch.rows, batch.rejected_rows) for batch in loaded.batches] == [(10, 0), (0, 10), (1, 9), (0, 3)]
    assert load_file(connection, collection, path, actor="ann").batches == loaded.batches
    assert [row["count"] for batch in loaded.batches for row in stored(batch)] == [1] * 10 + [2]


CRASH = """
import os, signal, sys
from pathlib import Path
from typing import Any
from cell_engine.load import load_file, loader
from cell_engine.store.collections import find_collection
from cell_engine.store.database import connect

loader.PART_RECORDS, loader._PROGRESS_EVERY = 10, 1
def die(passed):
    if passed == 35:
        os.kill(os.getpid(), signal.SIGKILL)
with connect(sys.argv[1], application="test") as connection:
    load_file(connection, find_collection(connection, "demo/things"), Path(sys.argv[2]), actor="ann", on_rows=die)
"""


@pytest.mark.parametrize("part", [10, 8])
def test_a_load_that_died_goes_on(
    database: str,
    connection: Connection,
    collection: Collection,
    stored: Stored,
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
    part: int,
) -> None:
    path = write("a.csv", CSV)
    died = subprocess.run([sys.executable, "-c", CRASH, database, str(path)], check=False)
    assert died.returncode == -signal.SIGKILL
    before = list_batches(connection, collection.id)
    assert [batch.rows + batch.rejected_rows for batch in before] == [10, 10, 10]
    # A later release may make parts of another size: what is in is still in, and nothing twice.
    monkeypatch.setattr("cell_engine.load.loader.PART_RECORDS", part)
    after = load_file(connection, collection, path, actor="bob")
    assert after.new
    assert after.batches[:3] == before
    assert codes(stored, after.batches) == GOOD
    assert [line for line, _ in after.rejected] == BAD


def test_a_connection_that_is_lost_between_batches(
    database: str, connection: Connection, collection: Collection, stored: Stored, write: Write
) -> None:
    path = write("a.csv", CSV)
    loader = connect(database, application="test")

    def cut(passed: int) -> None:
        if passed == 25:
            connection.execute("select pg_terminate_backend(%s)", [loader.info.backend_pid])

    with pytest.raises(psycopg.OperationalError) as caught:
        load_file(loader, collection, path, actor="ann", on_rows=cut)
    assert "18 rows are in, in 2 batches" in caught.value.__notes__[0]
    assert codes(stored, load_file(connection, collection, path, actor="ann").batches) == GOOD


def wait_until_both_wait(connection: Connection, loaders: list[Connection], running: list[Future[Loaded]]) -> None:
    """Until both loaders are stopped by a lock: the interleaving is forced, not hoped for."""
    pids = [loader.info.backend_pid for loader in loaders]
    waiting = 0
    while waiting < len(pids):
        assert not any(one.done() for one in running)
        found = connection.execute(
            "select count(*) as waiting from pg_locks where not granted and pid = any(%s)", [pids]
        ).fetchone()
        assert found is not None
        waiting = found.waiting


@pytest.mark.parametrize(
    "lock",
    [
        # Both have seen that the key is unknown, neither has taken its range of rows.
        "select from autofill.collection for update",
        # One has inserted its batch and not its rows, the other waits for how that ends.
        "lock table autofill.row in exclusive mode",
    ],
)
def test_two_loaders_of_one_file_make_one_set(
    database: str, connection: Connection, collection: Collection, stored: Stored, write: Write, lock: str
) -> None:
    paths = [write("a.csv", CSV), write("b.csv", CSV)]
    with (
        connect(database, application="test") as one,
        connect(database, application="test") as two,
        connect(database, application="test") as holder,
        ThreadPoolExecutor(2) as threads,
    ):
        holder.execute("begin")
        holder.execute(lock)
        running = [
            threads.submit(load_file, loader, collection, path, actor="ann")
            for loader, path in zip([one, two], paths, strict=True)
        ]
        wait_until_both_wait(connection, [one, two], running)
        holder.execute("commit")
        loaded = [future.result() for future in running]
    assert loaded[0].batches == loaded[1].batches
    assert any(one.new for one in loaded)
    assert codes(stored, list_batches(connection, collection.id)) == GOOD
    dispatches = connection.execute("select count(*) as dispatches from autofill.dispatch").fetchone()
    assert dispatches is not None
    assert dispatches.dispatches == 10


def test_another_loader_with_other_parts_is_not_mixed_in(
    database: str, connection: Connection, collection: Collection, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("a.csv", CSV)

    def meanwhile(passed: int) -> None:
        if passed == 5:
            monkeypatch.setattr("cell_engine.load.loader.PART_RECORDS", 50)
            with connect(database, application="test") as other:
                load_file(other, collection, path, actor="bob")
            monkeypatch.setattr("cell_engine.load.loader.PART_RECORDS", 10)

    with pytest.raises(LoadError, match="another process loads it at this moment"):
        load_file(connection, collection, path, actor="ann", on_rows=meanwhile)
    assert load_file(connection, collection, path, actor="ann").rows == len(GOOD)


@pytest.mark.parametrize("at", [5, 25])
@pytest.mark.parametrize("how", ["append", "replace", "touch"])
def test_a_file_that_changes_while_it_is_read(
    connection: Connection, collection: Collection, write: Write, at: int, how: str
) -> None:
    path = write("a.csv", CSV)

    def change(passed: int) -> None:
        if passed == at:
            if how == "append":
                with path.open("a") as file:
                    file.write("96,96\n")
            elif how == "replace":
                write("new.csv", CSV).rename(path)
            else:
                os.utime(path)

    with pytest.raises(LoadError, match="is it still being written") as caught:
        load_file(connection, collection, path, actor="ann", on_rows=change)
    assert len(list_batches(connection, collection.id)) == at // 10
    assert ("a.csv: 18 rows are in, in 2 batches" in str(caught.value)) == (at == 25)


def test_a_file_that_changes_while_it_is_hashed(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("a.csv", CSV)
    from cell_engine.load import content

    def growing(where: Path, head: bytes) -> str:
        with path.open("a") as file:
            file.write("96,96\n")
        return "csv"

    monkeypatch.setattr(content, "_format", growing)
    with pytest.raises(LoadError, match="is it still being written"):
        batch_keys(path)


def test_without_demand_nothing_is_dispatched(connection: Connection, collection: Collection, write: Write) -> None:
    assert load_file(connection, collection, write("a.csv", CSV), actor="ann", demand=False).rows == len(GOOD)
    assert connection.execute("select 1 from autofill.dispatch").fetchone() is None
    assert find_collection(connection, "demo/things").next_row == len(GOOD) + 1


def test_what_an_apply_overtakes_is_checked_again(
    connection: Connection, collection: Collection, database: str, stored: Stored, write: Write
) -> None:
    """`code` becomes an integer while the second part, checked as text, waits to be stored."""
    path = write("a.csv", "code\n" + "".join(f"{n}\n" for n in range(15)) + "x\n17\n")
    key = f"{batch_keys(path)}-0002"
    with (
        connect(database, application="holder") as holder,
        connect(database, application="loader", statement_timeout=20) as loader,
        ThreadPoolExecutor(1) as pool,
    ):
        with holder.transaction(force_rollback=True):
            holder.execute(
                "insert into autofill.batch (collection_id, id, key, source, first_row, last_row, actor) "
                "values (%s, 1000, %s, 's', 1, 0, 'me')",
                [collection.id, key],
            )
            loading = pool.submit(load_file, loader, collection, path, actor="me")
            wait_for_lock(connection, "autofill loader")
            apply(
                connection,
                compile_text(SPEC.replace("name: code, type: text", "name: code, type: integer")),
                actor="me",
            )
        loaded = loading.result()
    assert codes(stored, loaded.batches) == [*map(str, range(10)), *range(10, 15), 17]
    assert [line for line, _ in loaded.rejected] == [17]
