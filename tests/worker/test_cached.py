"""The cache with real workers and the offline model, whose calls are counted: equal calls are made once."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

import pytest

from cell_engine.offline_model import OfflineModel, Switches
from cell_engine.store.batches import add_batch
from cell_engine.store.changes import edit, undo
from cell_engine.store.database import Connection
from cell_engine.store.demands import RangeScope, dispatch
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import page, progress, recent_dispatches, status_counts
from cell_engine.store.upkeep import keep_up
from tests.engine import Made, eventually, make, offline_model, running_worker, sheet

ENDED = "select ended_at is not null from autofill.dispatch where id = %s"
AT_REST = "select not exists (select from autofill.dispatch where ended_at is null)"
WORKER = """
import asyncio, sys
from cell_engine.worker import run_worker
asyncio.run(run_worker(sys.argv[1], lease=1.0, stop=asyncio.Event()))
"""


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[OfflineModel]:
    with offline_model(monkeypatch) as model:
        yield model


def arrived(model: OfflineModel, calls: int, seconds: float = 30) -> None:
    """Wait until so many calls have come to the endpoint."""
    deadline = time.monotonic() + seconds
    while model.stats.arrived < calls:
        assert time.monotonic() < deadline, f"{model.stats.arrived} calls of {calls} within {seconds} s"
        time.sleep(0.02)


def same(rows: int, value: str = "x") -> list[dict[str, str]]:
    return [{"a": value} for _ in range(rows)]


def load_of(connection: Connection, made: Made) -> int:
    return recent_dispatches(connection, made.collection.id)[-1].id


def outcomes(connection: Connection, dispatch_id: int) -> dict[str, int]:
    found = progress(connection, dispatch_id)
    assert found is not None
    return found.outcomes


def values(connection: Connection, made: Made) -> list[object]:
    _, cells = page(connection, made.collection.id, limit=1000)
    return [cell.value for cell in cells]


def test_three_distinct_inputs_make_three_calls_a_column(
    connection: Connection, database: str, model: OfflineModel
) -> None:
    rows = 20_000
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


def test_an_edit_and_its_undo_give_the_old_answer_back_without_a_call(
    connection: Connection, database: str, model: OfflineModel
) -> None:
    spec = sheet("a", "b!llm: a", "c!llm: b").replace('"-"', '"{{a}}"', 1).replace('"-"', '"{{b}}"')
    made = make(connection, spec, rows=same(1))
    with running_worker(database):
        eventually(connection, AT_REST)
        before = values(connection, made)
        edit(connection, made.collection.id, 1, {made.id("a"): "edited"}, actor="me")
        eventually(connection, AT_REST)
        assert values(connection, made) != before
        calls = model.stats.billed.total()
        undone = undo(connection, made.collection.id, actor="me")
        eventually(connection, AT_REST)
    assert values(connection, made) == before
    assert model.stats.billed.total() == calls
    assert outcomes(connection, undone) == {"cached": 2}


def test_a_file_that_comes_again_in_another_version_calls_for_what_is_new_in_it(
    connection: Connection, database: str, model: OfflineModel
) -> None:
    made = make(connection, sheet("a", "b!llm: a"), rows=[{"a": f"x{row}"} for row in range(20)])
    with running_worker(database):
        eventually(connection, AT_REST)
        assert model.stats.billed.total() == 20
        again = [{made.id("a"): f"x{row}"} for row in range(19, -2, -1)]
        add_batch(connection, made.version, "again", again, source="s", actor="me")
        eventually(connection, AT_REST)
    assert model.stats.billed.total() == 21


def test_a_column_under_another_name_and_id_takes_the_answers_of_the_old_one(
    connection: Connection, database: str, model: OfflineModel
) -> None:
    made = make(connection, sheet("a", "b!llm: a"), rows=[{"a": f"x{row}"} for row in range(20)])
    with running_worker(database):
        eventually(connection, AT_REST)
        before = values(connection, made)
        renamed = make(connection, sheet("a", "other!llm: a"))
        assert renamed.id("other") != made.id("b")
        eventually(connection, AT_REST)
    assert values(connection, renamed) == before
    assert model.stats.billed.total() == 20


def test_a_second_collection_of_the_namespace_takes_the_answers_of_the_first(
    connection: Connection, database: str, model: OfflineModel
) -> None:
    rows = [{"a": f"x{row}"} for row in range(20)]
    with running_worker(database):
        first = make(connection, sheet("a", "b!llm: a"), rows=rows)
        eventually(connection, AT_REST)
        # with other columns before it, so that ids differ
        second = make(connection, sheet("k", "n", "a", "b!llm: a", name="second"), rows=rows)
        eventually(connection, AT_REST)
        assert values(connection, second) == values(connection, first)
        assert model.stats.billed.total() == 20
        make(connection, sheet("a", "b!llm: a").replace("namespace: test", "namespace: other"), rows=rows)
        eventually(connection, AT_REST)
    assert model.stats.billed.total() == 40


def test_a_forced_reprocess_calls_once_for_equal_rows_and_takes_nothing_older(
    connection: Connection, database: str, model: OfflineModel
) -> None:
    rows = 300
    made = make(connection, sheet("a", "b!llm: a"), rows=same(rows))
    with running_worker(database):
        eventually(connection, AT_REST)
        assert model.stats.billed.total() == 1
        for calls in (2, 3):
            scope = RangeScope(((1, rows),))
            forced = dispatch(
                connection, made.collection.id, scope, columns=[made.id("b")], force=True, reason="r", actor="me"
            )
            eventually(connection, ENDED, forced)
            assert model.stats.billed.total() == calls
            assert outcomes(connection, forced) == {"unchanged": 1, "cached": rows - 1}


def test_a_column_may_do_without_and_limit_the_age_of_answers(
    connection: Connection, database: str, model: OfflineModel
) -> None:
    spec = sheet("a", "b!llm: a")
    with running_worker(database):
        make(connection, spec.replace("kind: llm", "kind: llm, cache: false"), rows=same(5))
        eventually(connection, AT_REST)
        assert model.stats.billed.total() == 5
        assert connection.execute("select count(*) from autofill.cache").fetchone() == (0,)
        limited = spec.replace("name: sheet", "name: limited").replace("kind: llm", "kind: llm, cache: {ttl: 1h}")
        made = make(connection, limited, rows=same(5))
        eventually(connection, AT_REST)
        assert model.stats.billed.total() == 6
        connection.execute("update autofill.cache set computed_at = computed_at - interval '2 h'")
        add_batch(connection, made.version, "again", [{made.id("a"): "x"}] * 5, source="s", actor="me")
        eventually(connection, AT_REST)
    assert model.stats.billed.total() == 7


def test_a_function_is_cached_where_its_column_says_so(connection: Connection, database: str) -> None:
    spec = sheet("a", "b: a").replace("kind: function", "kind: function, cache: true")
    made = make(connection, spec, rows=same(50))
    with running_worker(database):
        eventually(connection, AT_REST)
    assert outcomes(connection, load_of(connection, made)) == {"ready": 1, "cached": 49}


def test_two_equal_columns_of_a_row_make_one_call(connection: Connection, database: str, model: OfflineModel) -> None:
    model.switches = Switches(latency=0.1)
    made = make(connection, sheet("a", "b!llm: a", "c!llm: a"))
    with running_worker(database):
        add_batch(connection, made.version, "one", [{made.id("a"): "x"}], source="s", actor="me")
        eventually(connection, AT_REST)
    assert model.stats.billed.total() == 1
    assert outcomes(connection, load_of(connection, made)) == {"ready": 1, "cached": 1}


def test_an_error_is_each_cells_own_and_stops_nobody(connection: Connection, database: str) -> None:
    spec = """
namespace: test
name: failing
columns:
  - {name: a, type: text}
  - {name: bad, type: text, kind: function, cache: true, deps: [a], function: {name: "tests.functions:boom"}}
"""
    made = make(connection, spec, rows=same(5))
    with running_worker(database):
        eventually(connection, AT_REST)
    assert status_counts(connection, made.collection.id)[made.id("bad")] == {"error": 5}
    found = connection.execute("select count(*), sum(cardinality(row_ids)) from autofill.attempt").fetchone()
    assert found is not None and tuple(found) == (5, 5)
    assert connection.execute("select count(*) from autofill.cache").fetchone() == (0,)


def test_a_call_that_hangs_holds_the_others_up_no_longer_than_its_timeout(
    connection: Connection, database: str, model: OfflineModel
) -> None:
    model.switches = Switches(latency=60)
    spec = sheet("a", "b!llm: a").replace("kind: llm", "timeout: 1.5, kind: llm")
    made = make(connection, spec, rows=same(50))
    with running_worker(database):
        eventually(connection, "select count(*) = 49 from autofill.work where state = 'delayed' and waits > 0")
        model.switches = Switches()
        eventually(connection, AT_REST)
    assert model.stats.billed.total() <= 2  # the one that hung may end after all
    assert outcomes(connection, load_of(connection, made)) == {"ready": 1, "cached": 49}


@pytest.mark.slow
def test_an_owner_that_is_killed_in_its_call_holds_the_others_up_no_longer_than_its_lease(
    connection: Connection, database: str, model: OfflineModel
) -> None:
    model.switches = Switches(latency=60)
    made = make(connection, sheet("a", "b!llm: a"), rows=same(50))
    load = load_of(connection, made)
    killed = subprocess.Popen([sys.executable, "-c", WORKER, database])
    try:
        eventually(connection, "select count(*) = 49 from autofill.work where state = 'delayed' and waits > 0")
        arrived(model, 1)
    finally:
        killed.kill()
        killed.wait()
    assert model.stats.arrived == 1
    model.switches = Switches()
    with running_worker(database):
        ended: Sequence[bool] = (False,)
        while not ended[0]:
            keep_up(connection)
            ended = connection.execute(ENDED.encode(), [load]).fetchone() or ended
    assert model.stats.arrived == 2
    assert outcomes(connection, load) == {"ready": 1, "cached": 49}
    assert broken_rules(connection) == {}
