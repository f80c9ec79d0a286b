"""The cache with real workers and the offline model, whose calls are counted: equal calls are made once."""

import pytest

from cell_engine.offline_model import Switches
from cell_engine.store.changes import edit, undo
from cell_engine.store.database import Connection
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import progress, recent_dispatches
from tests.engine import Made, eventually, make, offline_model, running_worker, sheet

ENDED = "select ended_at is not null from autofill.dispatch where id = %s"


def load_of(connection: Connection, made: Made) -> int:
    return recent_dispatches(connection, made.collection.id)[-1].id


def test_three_distinct_inputs_make_three_calls_a_column(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 20_000
    with offline_model(monkeypatch) as model:
        model.switches = Switches(latency=0.05)
        spec = sheet("a", "b!llm: a", "c@2!llm: a", cap=500)
        made = make(connection, spec, rows=[{"a": f"x{row % 3}"} for row in range(rows)])
        load = load_of(connection, made)
        with running_worker(database), running_worker(database):
            eventually(connection, ENDED, load, seconds=100)
        assert model.stats.billed.total() == 6
        done = progress(connection, load)
    assert done is not None
    assert done.outcomes == {"ready": 6, "cached": 2 * rows - 6}
    assert done.attempts == {"succeeded": 6}
    assert connection.execute("select count(*) from autofill.cache_owner").fetchone() == (0,)
    assert broken_rules(connection) == {}
