"""How often may be asked, and how much may wait: right with many at once, and refused before anything is written."""

import time
from collections import Counter

import pytest

from cell_engine.errors import AdmissionError, BadValueError, NotFoundError
from cell_engine.store.changes import edit, redo, reset, undo
from cell_engine.store.control import cancel
from cell_engine.store.database import Connection, connect
from cell_engine.store.demands import RangeScope, RowScope, dispatch
from cell_engine.store.limits import set_limits, show_limits
from cell_engine.store.upkeep import keep_up
from tests.engine import Claimer, Made, make, sheet
from tests.store.conftest import Beside, Opened

EVERYTHING = """
select (select count(*) from autofill.dispatch) as dispatches, (select count(*) from autofill.work) as work,
    (select count(*) from autofill.sweep) as sweeps, (select count(*) from autofill.cell) as cells,
    (select count(*) from autofill.history) as history
"""


def ask(connection: Connection, made: Made, rows: tuple[int, ...] = (1,), *, key: str | None = None) -> int:
    columns = [made.id("b")]
    return dispatch(
        connection, made.collection.id, RowScope(rows), columns=columns, reason="reprocess", actor="me", key=key
    )


def slow_clock(connection: Connection) -> None:
    """Passes rest for as long as the test takes: what is used is used up."""
    connection.execute(
        """create function stay() returns trigger language plpgsql as $$
        begin new.used_at := new.used_at + interval '1 hour'; return new; end $$;
        create trigger stay before update on autofill.pass for each row execute function stay()"""
    )


def test_dispatches_of_many_at_once_are_counted_right(connection: Connection, database: str, beside: Beside) -> None:
    made = make(connection, sheet("a", "b: a"), rows=[{"a": "x"}] * 50, demand=False, admission=True)
    set_limits(connection, "test/sheet", {"dispatches": 30})
    slow_clock(connection)

    def client(number: int) -> Counter[str]:
        fates: Counter[str] = Counter()
        with connect(database, application=f"client {number}") as mine:
            for _ in range(10):
                try:
                    ask(mine, made, (number + 1,))
                    fates["in"] += 1
                except AdmissionError as error:
                    assert (error.limit, error.value) == ("dispatches", 30)
                    fates["refused"] += 1
        return fates

    fates = sum((one.result() for one in [beside(client, number) for number in range(12)]), Counter[str]())
    assert fates == {"in": 30, "refused": 90}
    assert connection.execute("select count(*) from autofill.dispatch").fetchone() == (30,)


def test_an_open_dispatch_counts_and_holds_up_nobody(connection: Connection, opened: Opened) -> None:
    """Its pass is taken before it commits, and is free again when it is rolled back."""
    made = make(connection, sheet("a", "b: a"), rows=[{"a": "x"}] * 9, demand=False, admission=True)
    set_limits(connection, "test/sheet", {"dispatches": 2})
    slow_clock(connection)
    other = opened("other")
    other.execute("begin")
    edit(other, made.collection.id, 1, {made.id("a"): "open"}, actor="me")
    ask(connection, made, (2,))
    with pytest.raises(AdmissionError):
        ask(connection, made, (3,))
    other.execute("rollback")
    ask(connection, made, (3,))


def test_a_namespace_has_a_limit_of_its_own(connection: Connection) -> None:
    one, two = (
        make(connection, sheet("a", "b: a", name=name), rows=[{"a": "x"}], demand=False, admission=True)
        for name in ("one", "two")
    )
    set_limits(connection, "test", {"dispatches": 3})
    slow_clock(connection)
    for made in (one, two, one):
        ask(connection, made)
    with pytest.raises(AdmissionError, match=r"^test takes 3 dispatches a second") as refused:
        ask(connection, two)
    assert refused.value.value == 3
    # nothing of it was taken in: the collection has its pass still
    passes = "select count(*) from autofill.pass where collection_id = %s and used_at > now()"
    assert connection.execute(passes, [two.collection.id]).fetchone() == (1,)


def test_when_to_come_back_is_said_and_true(connection: Connection) -> None:
    made = make(connection, sheet("a", "b: a"), rows=[{"a": "x"}], demand=False, admission=True)
    set_limits(connection, "test/sheet", {"dispatches": 1})
    ask(connection, made)
    with pytest.raises(AdmissionError, match=r"^test/sheet takes 1 dispatches a second.*try again in [01]\.\d+ s"):
        ask(connection, made)
    for _ in range(20):
        try:
            ask(connection, made)
            break
        except AdmissionError as error:
            assert 0 < error.seconds <= 1
            time.sleep(error.seconds)  # what a client does with it
    assert connection.execute("select count(*) from autofill.dispatch").fetchone() == (2,)


def test_nothing_of_what_is_refused_is_taken_in(connection: Connection) -> None:
    made = make(connection, sheet("a", "b: a"), rows=[{"a": "x"}] * 3, demand=False, admission=True)
    c, a = made.collection.id, made.id("a")
    edit(connection, c, 1, {a: "mine"}, actor="me")
    ask(connection, made, key="known")
    set_limits(connection, "test", {"dispatches": 1})
    connection.execute("update autofill.pass set used_at = 'infinity' where collection_id = 0")
    before = connection.execute(EVERYTHING).fetchone()
    for refused in (
        lambda: edit(connection, c, 2, {a: "mine"}, actor="me"),
        lambda: reset(connection, c, 1, [a], actor="me"),
        lambda: undo(connection, c, actor="me"),
        lambda: redo(connection, c, actor="me"),
        lambda: ask(connection, made, key="new"),
        lambda: dispatch(connection, c, RangeScope(((1, 3),)), reason="reprocess", actor="me"),
    ):
        with pytest.raises(AdmissionError):
            refused()
    assert connection.execute(EVERYTHING).fetchone() == before
    assert ask(connection, made, key="known") > 0, "asked twice is done once, and needs no letting in"


def test_loads_and_applies_are_not_refused(connection: Connection) -> None:
    """Their rows are there by then."""
    make(connection, sheet("a", "b: a"), rows=[{"a": "x"}], admission=True)
    connection.execute("update autofill.pass set used_at = 'infinity'")
    set_limits(connection, "test/sheet", {"backlog": 1})
    make(connection, sheet("a", "b@2: a"), rows=[{"a": "y"}], key="another", admission=True)
    assert connection.execute("select count(*) from autofill.sweep").fetchone() == (3,)


def test_a_backlog_is_counted_by_cells_asked_for_row_by_row(connection: Connection) -> None:
    made = make(connection, sheet("a", "b: a", "c: a"), rows=[{"a": "x"}] * 30, demand=False)
    set_limits(connection, "test/sheet", {"backlog": 10})
    both = [made.id("b"), made.id("c")]

    def rows(*wanted: int) -> int:
        return dispatch(connection, made.collection.id, RowScope(wanted), columns=both, reason="r", actor="me")

    first = rows(1, 2, 3, 4)
    dispatch(connection, made.collection.id, RangeScope(((1, 30),)), columns=both, reason="r", actor="me")  # as one
    with pytest.raises(AdmissionError, match=r"9 cells waiting .* 4 more are above its limit of 10") as refused:
        rows(5, 6)
    assert (refused.value.limit, refused.value.value) == ("backlog", 10)
    edit(connection, made.collection.id, 1, {made.id("a"): "z"}, actor="me")
    with pytest.raises(AdmissionError):
        edit(connection, made.collection.id, 2, {made.id("a"): "z"}, actor="me")
    cancel(connection, first)
    rows(5, 6)


def test_what_is_done_of_a_long_backlog_waits_no_more(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cell_engine.store.admission.LARGE", 20)
    made = make(connection, sheet("a", "b: a"), rows=[{"a": "x"}] * 60, demand=False)
    set_limits(connection, "test/sheet", {"backlog": 30})
    ask(connection, made, tuple(range(1, 31)))
    with pytest.raises(AdmissionError):
        ask(connection, made, (31,))
    claimer = Claimer(connection)
    for visit in claimer.claim(slots=12):
        claimer.visit(visit)
    keep_up(connection)
    assert connection.execute("select cells from autofill.backlog").fetchone() == (18,)
    ask(connection, made, tuple(range(31, 43)))
    with pytest.raises(AdmissionError, match="30 cells waiting"):
        ask(connection, made, (43,))
    claimer.work_off()
    keep_up(connection)
    assert connection.execute("select count(*) from autofill.backlog").fetchone() == (0,)
    ask(connection, made, (43,))


def test_large_ones_see_each_other(
    connection: Connection, database: str, beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many ask at once, no more is taken in than the backlog bears."""
    monkeypatch.setattr("cell_engine.store.admission.LARGE", 20)
    made = make(connection, sheet("a", "b: a"), rows=[{"a": "x"}] * 120, demand=False)
    set_limits(connection, "test/sheet", {"backlog": 50})

    def client(number: int) -> bool:
        with connect(database, application="client") as mine:
            try:
                ask(mine, made, tuple(range(number * 20 + 1, number * 20 + 21)))
            except AdmissionError:
                return False
            return True

    assert sorted(one.result() for one in [beside(client, number) for number in range(6)]) == [False] * 4 + [True] * 2


def test_limits_that_cannot_be_are_refused(connection: Connection) -> None:
    make(connection, sheet("a", "b: a"), admission=True)
    every = {one.scope: one for one in show_limits(connection)}
    assert every["everything"].cap == 50_000
    assert (every["test"].cap, every["test"].weight, every["test"].dispatches) == (None, 1, 300)
    assert (every["test/sheet"].cap, every["test/sheet"].dispatches, every["test/sheet"].backlog) == (
        200, 100, 2_000_000,
    )  # fmt: skip
    for scope, name, value, why in (
        ("test/sheet", "weight", 2, "has no limit 'weight'; it has: cap, dispatches, backlog"),
        (None, "dispatches", 2, "everything has no limit"),
        ("test/sheet", "cap", None, "cannot be none"),
        ("test", "weight", 1001, "from 1 to 1,000, not 1,001"),
        ("test", "cap", 0, "from 1 to"),
    ):
        with pytest.raises(BadValueError, match=why):
            set_limits(connection, scope, {name: value})
    with pytest.raises(NotFoundError, match="there are: test, test/sheet"):
        set_limits(connection, "best", {"cap": 3})
    set_limits(connection, None, {"cap": None})
    assert show_limits(connection)[0].cap is None
