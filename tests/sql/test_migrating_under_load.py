"""Old workers and new run side by side across a migration while they work, and nobody notices it."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest

from cell_engine.store import migrating, schema
from cell_engine.store.changes import edit
from cell_engine.store.database import SQL, Connection, connect
from cell_engine.store.demands import RangeScope, dispatch
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import progress, status_counts
from cell_engine.worker.watch import Watch
from tests.engine import eventually, make, running_worker

ROWS = 1000
# What a release may bring that expands: columns with and without a default on every table that is in use, an index on
# one, and a table.
EXPANSION = (
    "".join(
        f"alter table autofill.{table} add column later int;\n"
        f"alter table autofill.{table} add column sooner text not null default 'x';\n"
        for table in (
            "dispatch",
            "sweep",
            "work",
            "row",
            "cell",
            "slot",
            "worker",
            "completion",
            "attempt",
            "collection",
        )
    )
    + "create index work_later on autofill.work (later);\ncreate table autofill.later (id int primary key);\n"
)


@pytest.fixture
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The next release has one more migration; comes to its number."""
    number = schema.newest() + 1
    folder = tmp_path / "sql" / "migrations"
    folder.mkdir(parents=True)
    for path in (SQL / "migrations").glob("[0-9]*.sql"):
        (folder / path.name).symlink_to(path)
    (folder / f"{number:04}_later.sql").write_text(EXPANSION)
    monkeypatch.setattr(migrating, "SQL", folder.parent)
    monkeypatch.setattr(migrating, "newest", lambda: number)
    yield number


def test_workers_before_and_after_a_migration_work_on_beside_it_and_nothing_fails_or_waits(
    connection: Connection, database: str, release: int
) -> None:
    made = make(connection, rows=[{"a": f"x{number}"} for number in range(ROWS)])
    old, new = Watch(), Watch()
    edits: list[int] = []
    over = threading.Event()

    def edit_all_the_time() -> None:
        with connect(database, application="editor") as editor:
            while not over.wait(0.02):
                text = f"edit {len(edits)}"
                edits.append(edit(editor, made.collection.id, 1 + len(edits) % 50, {made.id("a"): text}, actor="me"))

    with ExitStack() as stack, psycopg.connect(database) as someone:
        stack.enter_context(running_worker(database, watch=old))
        editing = threading.Thread(target=edit_all_the_time)
        editing.start()
        eventually(connection, "select count(*) > 200 from autofill.cell")
        # Somebody's report is open: the migration may not keep others waiting behind itself for its end.
        someone.execute("select count(*) from autofill.cell")
        migration = threading.Thread(target=migrating.migrate, args=(database,))
        migration.start()
        eventually(
            connection,
            "select exists (select from pg_stat_activity where wait_event_type = 'Lock' and query ~ 'alter table' "
            "and datname = current_database())",
        )
        done_before, deadline = len(edits), time.monotonic() + 30
        while len(edits) < done_before + 20:
            assert time.monotonic() < deadline, "edits wait behind the migration"
            time.sleep(0.02)
        before = connection.execute("select version_num::int from public.autofill_schema").fetchone()
        someone.rollback()
        migration.join(60)
        assert before == (release - 1,)
        assert connection.execute("select version_num::int from public.autofill_schema").fetchone() == (release,)
        stack.enter_context(running_worker(database, watch=new))
        deadline = time.monotonic() + 60
        while not new.claimed:  # the old one may have done all before the new one looks
            assert time.monotonic() < deadline, "the new worker claims nothing"
            again = dispatch(
                connection, made.collection.id, RangeScope(((1, ROWS),)), force=True, reason="reprocess", actor="me"
            )
            ended = "select ended_at is not null from autofill.dispatch where id = %s"
            eventually(connection, ended, again, seconds=60)
        over.set()
        editing.join(30)
        eventually(connection, "select not exists (select from autofill.dispatch where ended_at is null)", seconds=60)
    assert (old.failures, new.failures) == ({}, {})
    assert old.claimed > 0
    assert new.claimed > 0
    ready = {made.id("b"): {"ready": ROWS}, made.id("c"): {"ready": ROWS}}
    assert status_counts(connection, made.collection.id) == ready
    wrong = connection.execute(
        'select count(*) from autofill_views."test__chain" where b is distinct from upper(a) or c is distinct from b'
    ).fetchone()
    assert wrong == (0,)
    assert all((done := progress(connection, one)) is not None and not done.failed for one in edits)
    assert broken_rules(connection) == {}
