"""A budget that is reached: what was in flight is all that is spent beyond it; nothing fails, and all goes on after."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cell_engine.offline_model import OfflineModel, Switches
from cell_engine.prices import DOLLAR, prices
from cell_engine.store import money
from cell_engine.store.budgets import enforce_all
from cell_engine.store.database import Connection
from cell_engine.store.demands import RangeScope, dispatch
from cell_engine.store.holds import active
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import progress, status_counts
from cell_engine.store.upkeep import keep_up
from cell_engine.store.usage import roll_up, usage
from tests.engine import Made, eventually, make, offline_model, running_worker, sheet

CALLS_A_DOLLAR = 1_000
ROWS, SLOTS = 2_000, 500
STOPPED = """
    select exists (select from autofill.hold where lifted_at is null)
        or exists (select from autofill.dispatch where paused_at is not null)
"""
AT_REST = "select not exists (select from autofill.work where state = 'computing')"
STORED = "select sum(cardinality(row_ids)) = %s from autofill.attempt"
ENDED = "select ended_at is not null from autofill.dispatch where id = %s"
ANSWER_TOKENS = 4  # of '{"value": "-"}', at four characters each


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[OfflineModel]:
    """At a price by which so many calls are a dollar, none of them less."""
    price = 1_000_000 / CALLS_A_DOLLAR / ANSWER_TOKENS
    (tmp_path / "prices.yaml").write_text(
        f"models: {{offline-model: {{in: 0, out: {price:.9f}, source: test, date: 2026-11-30}}}}"
    )
    monkeypatch.setenv("AUTOFILL_PRICES", str(tmp_path / "prices.yaml"))
    # A row whose column is held comes again after half a minute: here sooner, for the test waits for it.
    monkeypatch.setattr("cell_engine.worker.holds.COLUMN_SECONDS", (1.0, 2.0))
    prices.cache_clear()
    with offline_model(monkeypatch) as model:
        yield model
    prices.cache_clear()


def call_cost() -> int:
    price = prices().of("offline-model")
    assert price is not None
    return price.cost(0, 0, ANSWER_TOKENS)


def scoped(made: Made, column: str | None = None) -> money.Scope:
    return money.Scope(1, made.collection.id, None if column is None else made.id(column))


def by_dispatch(connection: Connection, made: Made, amount: int) -> int:
    return start(connection, made, amount)


def by_credit(connection: Connection, made: Made, amount: int) -> int:
    money.add_credit(connection, "test", amount, "anna")
    return start(connection, made)


def by_column(connection: Connection, made: Made, amount: int) -> int:
    money.set_budget(connection, scoped(made, "b"), "ever", amount, "anna")
    return start(connection, made)


def by_day(connection: Connection, made: Made, amount: int) -> int:
    money.set_budget(connection, scoped(made), "day", amount, "anna")
    return start(connection, made)


def start(connection: Connection, made: Made, max_cost: int | None = None) -> int:
    return dispatch(
        connection, made.collection.id, RangeScope(((1, ROWS),)), reason="test", actor="me", max_cost=max_cost
    )


def raise_dispatch(connection: Connection, made: Made, asked: int) -> None:
    money.cap_dispatch(connection, asked, 100 * DOLLAR)


def raise_credit(connection: Connection, made: Made, asked: int) -> None:
    money.add_credit(connection, "test", 100 * DOLLAR, "anna")


def raise_column(connection: Connection, made: Made, asked: int) -> None:
    money.set_budget(connection, scoped(made, "b"), "ever", 100 * DOLLAR, "anna")
    # rows of a column that is held come again by themselves, within half a minute: not for a test to wait for
    connection.execute("update autofill.work set available_at = clock_timestamp() where state = 'delayed'")


def next_day(connection: Connection, made: Made, asked: int) -> None:
    while roll_up(connection):
        pass
    connection.execute("update autofill.usage set day = day - 1")
    connection.execute("update autofill.hold set expires_at = clock_timestamp()")
    keep_up(connection)


@pytest.mark.parametrize(
    ("limit", "allow", "workers"),
    [
        (by_dispatch, raise_dispatch, 1),
        (by_credit, raise_credit, 1),
        (by_column, raise_column, 1),
        (by_day, next_day, 1),
        (by_credit, raise_credit, 2),
    ],
    ids=["dispatch", "credit", "column", "day", "credit, two workers"],
)
def test_a_cap_of_a_dollar_stops_at_a_dollar_plus_what_was_in_flight(
    connection: Connection,
    database: str,
    model: OfflineModel,
    limit: Callable[[Connection, Made, int], int],
    allow: Callable[[Connection, Made, int], None],
    workers: int,
) -> None:
    model.switches = Switches(latency=0.4)
    made = make(
        connection, sheet("a", "b!llm: a", cap=5_000), rows=[{"a": f"{row}"} for row in range(ROWS)], demand=False
    )
    asked = limit(connection, made, DOLLAR)
    with ExitStack() as stack:
        for _ in range(workers):
            stack.enter_context(running_worker(database, slots=SLOTS // workers))
        eventually(connection, STOPPED, seconds=60)
        eventually(connection, AT_REST)
        billed, in_flight = model.stats.billed.total(), model.stats.most_in_flight
        eventually(connection, STORED, billed)
        over = billed * call_cost() - DOLLAR
        print(f"{billed} calls, {in_flight} in flight at most, {over / call_cost():.0f} calls over a dollar")
        assert in_flight > 0.4 * SLOTS
        # of two, one hears within a second of what the other has spent
        assert 0 <= over <= workers * SLOTS * call_cost()
        if limit is by_dispatch:  # rows that were given back before the pause come once more, and are parked
            eventually(connection, "select not exists (select from autofill.work where state <> 'parked')")
        now = progress(connection, asked)
        assert now is not None
        assert (now.cost, now.failed, now.ended_at) == (billed * call_cost(), {}, None), "paid for, and stored"
        assert status_counts(connection, made.collection.id) == {
            made.id("b"): {"ready": billed, "paused": ROWS - billed}
        }
        if limit is by_dispatch:
            assert now.pause_reason is not None
            assert "its cap of $1.00 is reached" in now.pause_reason
        else:
            (hold,) = active(connection)
            assert (hold.reason, "$1.00" in hold.message) == ("budget", True)
            assert (hold.expires_at is not None) == (limit is by_day)
        enforce_all(connection)
        roll_up(connection)
        enforce_all(connection)
        assert model.stats.billed.total() == billed, "and it stays so"

        model.switches = Switches()
        allow(connection, made, asked)
        eventually(connection, ENDED, asked, seconds=60)
    assert status_counts(connection, made.collection.id) == {made.id("b"): {"ready": ROWS}}
    assert model.stats.billed.total() == ROWS, "each cell was paid for once"
    (used,) = usage(connection, [])
    assert (used.calls, used.cost) == (ROWS, ROWS * call_cost())
    assert connection.execute("select from autofill.attempt where outcome <> 'succeeded'").fetchall() == []
    assert broken_rules(connection) == {}
