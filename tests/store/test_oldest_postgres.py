"""PostgreSQL 15, the oldest that is supported, beside the embedded one that all other tests run on.

It is the system's: where there is none these are skipped. `.ci/run` installs it, and where it is there says so
(AUTOFILL_TEST_OLDEST=1): then it is not skipped for want of it.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from cell_engine.embedded import ensure, server, stop
from cell_engine.embedded.binaries import OLDEST_MAJOR, find_binaries
from cell_engine.errors import AutofillError
from cell_engine.store.changes import edit
from cell_engine.store.database import SQL, connect, numbered
from cell_engine.store.figures import lanes_and_spend
from cell_engine.store.migrating import migrate
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import status_counts
from cell_engine.store.schema import newest
from cell_engine.store.upkeep import keep_partitions, keep_up, vacuum_work
from cell_engine.store.wide_view import refresh_views
from tests.engine import eventually, make, running_worker
from tests.store import sequences


@pytest.fixture
def oldest(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A migrated database of the oldest server."""
    try:
        binaries = find_binaries(OLDEST_MAJOR)
    except AutofillError as error:
        if os.environ.get("AUTOFILL_TEST_OLDEST"):
            raise
        pytest.skip(str(error))
    monkeypatch.setattr(server, "find_binaries", lambda _=None: binaries)
    home = Path(tempfile.mkdtemp(prefix="autofill-test-"))
    home.chmod(0o755)
    try:
        url = ensure(home).dsn("postgres")
        assert migrate(url) == (0, newest())
        yield url
    finally:
        stop(home)
        shutil.rmtree(home)


def unprepared(connection: psycopg.Connection[object]) -> dict[str, str]:
    """Why the server takes a statement file not, by name: it parses each and resolves every function and type. Of
    parameters it has to guess the types, and of a few it cannot."""
    refused = {}
    for path in (SQL / "statements").glob("*.sql"):
        prepared = connection.pgconn.prepare(b"", numbered(path.stem)[0])
        if prepared.status != psycopg.pq.ExecStatus.COMMAND_OK:
            refused[path.stem] = prepared.error_message.decode()
    return refused


def test_the_oldest_server_takes_all_statements_and_keeps_the_rules(
    oldest: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect(database, application="test") as connection:
        guessed_wrong = unprepared(connection).keys()
    assert len(guessed_wrong) < 10
    with connect(oldest, application="test") as connection:
        assert connection.info.server_version // 10_000 == OLDEST_MAJOR
        refused = {name: why for name, why in unprepared(connection).items() if name not in guessed_wrong}
        assert refused == {}
        made = make(connection, rows=[{"a": f"x{number}"} for number in range(200)] + [{}])
        with running_worker(oldest):
            eventually(connection, "select not exists (select from autofill.sweep where closed_at is null)")
            dispatch = edit(connection, made.collection.id, 7, {made.id("a"): "new"}, actor="me")
            eventually(connection, "select ended_at is not null from autofill.dispatch where id = %s", dispatch)
        counts = {"ready": 200, "blocked": 1}
        assert status_counts(connection, made.collection.id) == {made.id("b"): counts, made.id("c"): counts}
        keep_partitions(connection)
        keep_up(connection)
        vacuum_work(connection)
        refresh_views(connection)
        assert connection.execute('select c from autofill_views."test__chain" where row_id = 7').fetchone() == ("NEW",)
        lanes_and_spend(connection)
        assert broken_rules(connection) == {}
    # Few of the random sequences that the embedded server runs many of.
    monkeypatch.setattr(sequences, "SEQUENCES", 5)
    sequences.run_sequences(oldest, 15)
