"""`work` is kept small, and never taken for empty: by the janitor, since autovacuum would come too late or at rest."""

import pytest

from cell_engine.store import upkeep
from cell_engine.store.database import Connection
from cell_engine.store.upkeep import vacuum_work
from tests.engine import Claimer, Made, eventually, make
from tests.store.conftest import Opened

ROWS = 60
DEAD = "select n_dead_tup >= 50 from pg_stat_user_tables where relid = 'autofill.work'::regclass"
LIVE = "select n_live_tup >= %s from pg_stat_user_tables where relid = 'autofill.work'::regclass"
SIZE = (
    "select pg_relation_size('autofill.work'), (select reltuples from pg_class where oid = 'autofill.work'::regclass)"
)


@pytest.fixture
def made(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setattr(upkeep, "LIVE_TUPLES", 5)
    monkeypatch.setattr(upkeep, "DEAD_TUPLES", 50)
    return make(connection, rows=[{"a": str(row)} for row in range(2 * ROWS)])


def test_work_is_vacuumed_while_it_is_in_use(connection: Connection, made: Made) -> None:
    claimer = Claimer(connection)
    for visit in claimer.claim(ROWS):
        claimer.visit(visit)
    assert len(claimer.claim(10)) == 10
    eventually(connection, DEAD)
    eventually(connection, LIVE, 10)
    assert vacuum_work(connection)
    _, taken_for = connection.execute(SIZE).fetchone() or (0, 0)
    assert taken_for == 10
    assert connection.execute("select count(*) from autofill.work").fetchone() == (10,)


def test_work_is_vacuumed_in_use_whatever_the_statistics_say_of_what_is_live(
    connection: Connection, made: Made
) -> None:
    # Who claims may report what it has made a second after who stores has reported that it is gone.
    claimer = Claimer(connection)
    for visit in claimer.claim(ROWS):
        claimer.visit(visit)
    eventually(connection, DEAD)
    connection.execute("set track_counts = off")
    assert len(claimer.claim(10)) == 10
    assert connection.execute(LIVE, [5]).fetchone() == (False,)
    assert vacuum_work(connection)


def test_work_at_rest_is_emptied_and_not_taken_for_empty(connection: Connection, made: Made, opened: Opened) -> None:
    Claimer(connection).work_off()
    eventually(connection, DEAD)
    eventually(connection, f"select not ({LIVE})", 5)
    reader = opened("reader")
    with reader.transaction():
        reader.execute("select from autofill.work")
        assert not vacuum_work(connection)  # it waits for nobody
    assert vacuum_work(connection)
    assert connection.execute(SIZE).fetchone() == (0, -1)
    connection.execute("vacuum autofill.work")  # by hand, say
    assert vacuum_work(connection)
    assert connection.execute(SIZE).fetchone() == (0, -1)


def test_work_that_is_not_in_use_but_there_is_left_alone(connection: Connection, made: Made) -> None:
    claimer = Claimer(connection)
    visits = claimer.claim()
    for visit in visits[:-1]:
        claimer.visit(visit)
    eventually(connection, DEAD)
    eventually(connection, f"select not ({LIVE})", 5)
    assert not vacuum_work(connection)
    assert connection.execute("select count(*) from autofill.work").fetchone() == (1,)
