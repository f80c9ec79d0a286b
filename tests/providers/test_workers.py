"""Real workers before an endpoint that enforces its limits, and counts how often they were broken."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest

from cell_engine.offline_model import OfflineModel, Switches
from cell_engine.shares import ProviderKey
from cell_engine.store.database import Connection
from cell_engine.store.models import broken_rules
from cell_engine.store.providers import list_providers, set_limits
from cell_engine.store.reading import recent_dispatches, status_counts
from tests.engine import Made, eventually, make, offline_model, running_worker, sheet

ENDED = "select ended_at is not null from autofill.dispatch where id = %s"
ATTEMPTS = "select count(*) from autofill.work where attempts <> '{}'"
WAKE_UNTIL_ENDED = f"""
    with woken as (update autofill.work set available_at = clock_timestamp() where state = 'delayed') {ENDED}
"""
PROVE = "update autofill.provider set proven_at = clock_timestamp()"


def key_of(model: OfflineModel) -> ProviderKey:
    return ProviderKey(model.base_url + "/", "shape-1")


def load_of(connection: Connection, made: Made) -> int:
    return recent_dispatches(connection, made.collection.id)[-1].id


def rows(count: int, first: int = 0) -> list[dict[str, str]]:
    return [{"a": f"x{number}"} for number in range(first, first + count)]


def test_three_workers_never_break_the_limits_and_every_cell_ends_right(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with offline_model(monkeypatch) as model, ExitStack() as stack:
        model.switches = Switches(latency=0.05, concurrency=20, retry_after=0.2)
        set_limits(connection, key_of(model), {"concurrency": 20})
        connection.execute(PROVE)
        made = make(connection, sheet("a", "b!llm: a", "c: b"), rows=rows(1200))
        for _ in range(3):
            stack.enter_context(running_worker(database, slots=100))
        eventually(connection, ENDED, load_of(connection, made), seconds=60)
        assert model.stats.by_fate == {"answered": 1200}
        assert model.stats.most_in_flight >= 18
        assert status_counts(connection, made.collection.id) == {2: {"ready": 1200}, 3: {"ready": 1200}}
    assert broken_rules(connection) == {}
    assert connection.execute(
        "select count(*) from autofill.provider_lease as l join autofill.worker as w "
        "on w.id = worker_id where ended_at is null"
    ).fetchone() == (0,)


def test_requests_a_minute_are_kept_and_used(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with offline_model(monkeypatch) as model, ExitStack() as stack:
        model.switches = Switches(latency=0.02, requests_minute=1200)
        set_limits(connection, key_of(model), {"requests_minute": 1200})
        connection.execute(PROVE)
        made = make(connection, sheet("a", "b!llm: a"), rows=rows(200))
        started = time.monotonic()
        for _ in range(2):
            stack.enter_context(running_worker(database, slots=100))
        eventually(connection, ENDED, load_of(connection, made), seconds=60)
        seconds = time.monotonic() - started
        assert model.stats.by_fate == {"answered": 200}
        # 19.6 a second; the rest is how they start
        assert 9 < seconds < 16


def test_a_limit_that_nobody_has_set_is_found_and_costs_no_attempt(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with offline_model(monkeypatch) as model, ExitStack() as stack:
        model.switches = Switches(latency=0.05, concurrency=12, retry_after=0.2)
        made = make(connection, sheet("a", "b!llm: a"), rows=rows(600))
        for _ in range(2):
            stack.enter_context(running_worker(database, slots=100))
        eventually(connection, ENDED, load_of(connection, made), seconds=90)
        assert model.stats.by_fate["answered"] == 600
        (found,) = list_providers(connection)
        assert found.ceiling is not None and found.ceiling < 100
        # Some 190 of the first 200 that go out at once, and then one in a while: 240. Each round that a busy machine
        # delays is as many again (1,489 were seen). Where nothing is learnt it is 2,800.
        assert model.stats.by_fate["over_limit"] < 2000
        assert status_counts(connection, made.collection.id)[2] == {"ready": 600}
    assert connection.execute(ATTEMPTS).fetchone() == (0,)


def test_an_endpoint_that_was_not_proven_gets_one_call_before_it_gets_all(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with offline_model(monkeypatch) as model, ExitStack() as stack:
        model.switches = Switches(key="another")
        made = make(connection, sheet("a", "b!llm: a"), rows=rows(300))
        for _ in range(3):
            stack.enter_context(running_worker(database, slots=50))
        eventually(connection, "select exists (select from autofill.hold where lifted_at is null)")
        eventually(connection, "select not exists (select from autofill.work where state = 'computing')")
        assert model.stats.by_fate == {"bad_key": 1}
        assert [one.state for one in list_providers(connection)] == ["unproven"]
        # put right: one call sees it, then all go
        model.switches = Switches(latency=0.02)
        connection.execute("update autofill.hold set lifted_at = clock_timestamp()")
        eventually(connection, ENDED, load_of(connection, made), seconds=60)
        assert model.stats.by_fate == {"bad_key": 1, "answered": 300}
        assert model.stats.most_in_flight > 10
        eventually(connection, "select state = 'open' from autofill.provider_limits")


def test_a_long_cool_down_sends_rows_back_to_their_lane(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with offline_model(monkeypatch) as model:
        model.switches = Switches(rate_limited=1.0, retry_after=300)
        set_limits(connection, key_of(model), {"concurrency": 5})
        connection.execute(PROVE)
        made = make(connection, sheet("a", "b!llm: a"), rows=rows(40))
        with running_worker(database, slots=50):
            eventually(connection, "select count(*) = 40 from autofill.work where state = 'delayed'")
            assert model.stats.by_fate["rate_limited"] <= 5
            assert connection.execute(ATTEMPTS).fetchone() == (0,)
            (found,) = list_providers(connection)
            assert (found.state, 200 < found.cooling <= 300) == ("cooling", True)
            # the last of the five has been told, too: it would cool down again
            eventually(connection, "select sum(in_flight) = 0 and sum(demand) = 0 from autofill.provider_lease")
            model.switches = Switches()
            set_limits(connection, key_of(model), {}, reset=True)
            eventually(connection, WAKE_UNTIL_ENDED, load_of(connection, made), seconds=30)


def test_an_edit_passes_those_that_wait(connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from cell_engine.store.changes import edit

    with offline_model(monkeypatch) as model:
        model.switches = Switches(latency=0.3)
        set_limits(connection, key_of(model), {"concurrency": 2})
        connection.execute(PROVE)
        made = make(connection, sheet("a", "b!llm: a"), rows=rows(60))
        with running_worker(database, slots=100):
            eventually(connection, "select count(*) >= 4 from autofill.cell where column_id = 2")
            edited = edit(connection, made.collection.id, 60, {made.id("a"): "new"}, actor="me")
            eventually(connection, ENDED, edited, seconds=20)
            answered = connection.execute("select count(*) from autofill.cell where column_id = 2").fetchone()
            assert answered is not None and answered[0] < 40


def test_a_call_in_line_whose_input_is_edited_is_made_once_with_what_it_reads_now(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cell_engine.store.changes import edit

    with offline_model(monkeypatch) as model:
        model.switches = Switches(latency=3.0)
        set_limits(connection, key_of(model), {"concurrency": 1})
        connection.execute(PROVE)
        made = make(connection, sheet("a", "b!llm: a"), rows=rows(2))
        with running_worker(database):
            eventually(connection, "select sum(demand) = 2 and sum(in_flight) = 1 from autofill.provider_lease")
            for row in (1, 2):  # one of them is in flight, and is called again
                edit(connection, made.collection.id, row, {made.id("a"): f"new {row}"}, actor="me")
            eventually(connection, "select bool_and(ended_at is not null) from autofill.dispatch", seconds=60)
        assert model.stats.arrived == 3
