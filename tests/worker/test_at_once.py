"""Calls that answer at once: a row of them takes one batch, its numbers are what was read, and no call that takes time
starts on what is not stored."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID, uuid4

import pytest

from cell_engine.kinds.apart import Apart
from cell_engine.kinds.base import Answer, Call, Failure, Outcome
from cell_engine.plan import Asked, Cell, Row, plan
from cell_engine.specs.text import Json
from cell_engine.store.changes import edit, reset
from cell_engine.store.claims import Reading, RowKey, Token
from cell_engine.store.database import Connection
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import page, recent_dispatches
from cell_engine.store.results import Release, Released, Result, Stored, flush
from cell_engine.worker.asker import Asker
from cell_engine.worker.calls import Calls
from cell_engine.worker.finalizer import Answered, Entry
from cell_engine.worker.holds import Holds
from cell_engine.worker.link import Link
from cell_engine.worker.meter import Meter
from cell_engine.worker.providers import Providers
from cell_engine.worker.visit import Visit
from tests.engine import Claimer, Made, eventually, make, running_worker
from tests.plan.rows import column, version

ENDED = "select ended_at is not null from autofill.dispatch where id = %s"
INLINE = """
namespace: test
name: inline
columns:
  - {name: a, type: text}
  - {name: b, type: text, kind: function, deps: [a], function: {name: "tests.functions:upper", inline: true}}
  - {name: c, type: text, kind: function, deps: [b], function: {name: "tests.functions:upper_b", inline: true}}
  - {name: d, type: text, kind: function, deps: [b, c], function: {name: "tests.functions:shape_1"}}
"""


class Kind:
    """Answers columns below 9 at once; the others never."""

    name = "function"

    def __init__(self) -> None:
        self.calls: list[int] = []
        self.outcome: Callable[[Call], Outcome] = lambda call: Answer(f"{call.column.name}({call.inputs})")

    def check(self, column: object) -> None: ...

    def at_once(self, call: Call) -> Outcome | None:
        if call.column.id >= 9:
            return None
        self.calls.append(call.column.id)
        return self.outcome(call)

    def provider(self, column: object) -> None: ...

    async def compute(self, call: Call) -> Outcome:
        self.calls.append(call.column.id)
        await asyncio.Event().wait()
        raise AssertionError

    async def close(self) -> None: ...


class Host:
    """A worker that stores nothing by itself: `entries` are what the visit has submitted."""

    def __init__(self, *columns: tuple[int, list[int]]) -> None:
        self.kind = Kind()
        self.kinds = {"function": self.kind}
        self.apart = Apart()
        link = Link("", "test")
        self.holds = Holds(link, uuid4, [])
        self.meter = Meter(link, dict)
        self.calls = Calls(self.kinds, self.apart, Asker(link), Providers(link, uuid4, 30.0, asyncio.Event.set))
        self.entries: list[Entry] = []
        self.columns = version(column(1), *(column(id, deps) for id, deps in columns))

    def version(self, collection_id: int, number: int) -> object:
        return self.columns

    def submit(
        self, visit: Visit, results: list[Result], release: Release | None = None, *, reread: bool = False
    ) -> None:
        self.entries.append(Entry(visit, UUID(int=0), results, release, reread))

    def advance_soon(self, visit: Visit) -> None: ...

    def want_slot(self, visit: Visit) -> None: ...

    def forget(self, visit: Visit) -> None: ...

    def visit(self, **changes: object) -> Visit:
        reading = Reading(
            RowKey(1, 1), Token(uuid4(), 1), "function", "sweep", 9, 0, 5, {}, {}, 0, 0, 1, 1, Row({1: "x"}, change=3)
        )
        visit = Visit(self, replace(reading, **changes), "a/b")  # type: ignore[arg-type]
        visit.advance()
        return visit

    def stored(self, visit: Visit, *changes: int) -> None:
        entry = self.entries.pop()
        answered = [Stored(True, change, moved=True) for change in changes]
        visit.stored(entry, Answered(answered, Released("released") if entry.release else None))


pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_row_of_calls_that_answer_at_once_is_one_batch() -> None:
    host = Host((2, [1]), (3, [2]), (4, [1, 2, 3]))
    host.visit()
    (entry,) = host.entries
    assert host.kind.calls == [2, 3, 4]
    assert [(result.column_id, result.reads, result.read_change) for result in entry.results] == [
        (2, (), 3),
        (3, (1,), 3),
        (4, (2, 1), 3),
    ]
    assert all(result.leaving for result in entry.results)
    assert entry.release is not None
    assert (entry.release.ending, entry.release.answered) == ("done", (2, 3, 4))


async def test_what_waits_for_another_pool_holds_up_what_reads_it() -> None:
    # 5 reads 2, which answers at once, and 4, whose value is still that of an earlier answer of 3.
    host = Host((2, [1]), (3, [1]), (4, [3]), (5, [2, 4]))
    there = {one.id: one for one in host.columns.columns}
    there[3] = replace(there[3], kind="llm")
    host.columns = version(*there.values())
    cells = {4: Cell(ai_value="old", fingerprint=b"0" * 16, called=1)}
    host.visit(row=Row({1: "x"}, change=3, cells=cells))
    (entry,) = host.entries
    assert host.kind.calls == [2]
    assert entry.release is not None
    assert (entry.release.ending, entry.release.job_type) == ("hand_over", "llm")


async def test_a_call_that_takes_time_starts_when_what_it_reads_is_stored() -> None:
    host = Host((2, [1]), (3, [2]), (9, [3]), (4, [3]))
    visit = host.visit()
    assert [result.column_id for result in host.entries[0].results] == [2, 3, 4]
    assert host.entries[0].release is None
    assert not visit.calling
    host.stored(visit, 100, 101, 102)
    assert list(visit.calling) == [9]
    cells = visit.reading.row.cells
    # as stored: what follows from these numbers is what the database shows
    assert {id: (cell.change, cell.read_change) for id, cell in cells.items()} == {
        2: (100, 3),
        3: (101, 100),
        4: (102, 101),
    }
    assert not host.entries
    await visit.give_up("hand_back")


async def test_what_answers_at_once_does_not_wait_for_a_call_that_takes_time() -> None:
    host = Host((9, [1]), (2, [1]))
    visit = host.visit()
    assert list(visit.calling) == [9]
    (entry,) = host.entries
    assert [result.column_id for result in entry.results] == [2]
    assert entry.release is None
    await visit.give_up("hand_back")


async def test_a_failure_that_will_be_tried_again_is_stored_as_the_row_goes_to_rest() -> None:
    host = Host((2, [1]), (3, [2]))
    host.kind.outcome = lambda _: Failure("transient", "away")
    host.visit()
    (entry,) = host.entries
    assert host.kind.calls == [2]
    assert [(result.column_id, result.retry, result.leaving) for result in entry.results] == [(2, True, False)]
    assert entry.release is not None
    assert (entry.release.ending, entry.release.answered) == ("delay", ())


async def test_what_is_found_beside_an_answer_is_stored_with_it_unless_it_reads_it() -> None:
    # 3 reads what has just failed, 4 reads 3: the numbers that they are stored with are those of what is stored first.
    host = Host((2, [1]), (3, [2]), (4, [3]), (5, [6]), (6, []))
    host.kind.outcome = lambda _: Failure("bad_input", "no")
    visit = host.visit()
    (entry,) = host.entries
    assert [(one.column_id, one.error_class) for one in entry.results] == [(2, "bad_input"), (5, "blocked")]
    assert entry.release is None
    host.stored(visit, 100, 101)
    (entry,) = host.entries
    assert [(one.column_id, one.error_class, one.read_change) for one in entry.results] == [
        (3, "blocked", 100),
        (4, "blocked", 3),
    ]


async def test_a_kind_that_raises_is_one_cells_error() -> None:
    def boom(_: Call) -> Outcome:
        raise ZeroDivisionError("at once")

    host = Host((2, [1]))
    host.kind.outcome = boom
    host.visit()
    assert [(result.error_class, result.error) for result in host.entries[0].results] == [
        ("crashed", "ZeroDivisionError: at once")
    ]


async def test_a_suspect_is_not_called_on_the_workers_own_loop() -> None:
    host = Host((2, [1]))
    visit = host.visit(deaths=2)
    assert host.kind.calls == []
    assert list(visit.calling) == [2]
    await visit.give_up("hand_back")


async def test_one_force_is_one_call_of_each() -> None:
    host = Host((2, [1]), (3, [2]))
    host.visit(asked={id: Asked(9, 9, 5) for id in (2, 3)})
    assert host.kind.calls == [2, 3]
    assert host.entries[0].release is not None


def chained(connection: Connection) -> tuple[Made, Claimer, list[Result]]:
    """A claimed row, and its two answers as one batch brings them: c has read the b that is stored with it."""
    made = make(connection, rows=[{"a": "x"}])
    claimer = Claimer(connection)
    (visit,) = claimer.claim()
    steps = plan(visit.row, made.version, visit.asked)
    first = claimer.answer(visit, made.id("b"), "B", steps)
    after = replace(first, column_id=made.id("c"), read_change=0, value="C", reads=(1,))
    return made, claimer, [first, after]


def numbers(connection: Connection) -> list[tuple[int, int]]:
    return [
        (one.change, one.read_change)
        for one in connection.execute("select change, read_change from autofill.cell order by row_id, column_id")
    ]


@pytest.mark.parametrize("reads", [(1,), (1, 1)])  # one is sent otherwise than several
def test_what_was_read_of_the_same_batch_has_the_number_it_was_stored_with(
    connection: Connection, reads: tuple[int, ...]
) -> None:
    _, claimer, results = chained(connection)
    results[1].reads = reads
    flush(connection, claimer.id, results, [])
    (b, _), (c, read) = numbers(connection)
    assert 0 < b == read < c
    # and where the cells are there already
    results[0].value, results[1].value = "B2", "C2"
    flush(connection, claimer.id, results, [])
    (b, _), (_, read) = numbers(connection)
    assert c < b == read
    # what did not move keeps what was known of it
    results[1].value, results[1].read_change = "C3", read
    flush(connection, claimer.id, results, [])
    assert numbers(connection)[1][1] == b


def test_a_persons_value_that_came_meanwhile_is_not_taken_for_read(connection: Connection) -> None:
    made, claimer, results = chained(connection)
    edit(connection, made.collection.id, 1, {made.id("b"): "a person's"}, actor="me")
    stored = flush(connection, claimer.id, results, []).stored
    (b, _), (_, read) = numbers(connection)
    assert [one.moved for one in stored] == [False, True]
    assert read < b
    # taken back, the answer is what is shown, and was read: but that is for a plan to find
    reset(connection, made.collection.id, 1, [made.id("b")], actor="me")
    flush(connection, claimer.id, results, [])
    (b, _), (_, read) = numbers(connection)
    assert read < b


def test_inline_functions_take_one_batch_and_what_follows_another(connection: Connection, database: str) -> None:
    made = make(connection, INLINE, rows=[{"a": f"x{row}"} for row in range(5)])
    load = recent_dispatches(connection, made.collection.id)[0].id
    # the first call imports each of the functions, in a thread
    with running_worker(database):
        eventually(connection, ENDED, load)
        loaded = edit(connection, made.collection.id, 3, {made.id("a"): "new"}, actor="me")
        eventually(connection, ENDED, loaded)
    stored = connection.execute(
        "select array_agg(column_id order by column_id) as columns from autofill.completion where dispatch_id = %s"
        " group by xid order by xid",
        [loaded],
    ).fetchall()
    assert [one.columns for one in stored] == [[made.id("b"), made.id("c")], [made.id("d")]]
    _, cells = page(connection, made.collection.id, after=2, limit=1)
    expected: list[tuple[Json, str]] = [("NEW", "ready"), ("NEW", "ready"), ("1(b=NEW,c=NEW)", "ready")]
    assert [(cell.value, cell.status) for cell in cells] == expected
    assert broken_rules(connection) == {}


async def test_R6_a_call_meets_the_force_that_its_cell_remembers_though_the_visit_is_of_older_demand() -> None:
    """A sweep that waited comes to a row whose blocked cell remembers a later force: the call must not forget it."""
    host = Host((2, [1]))
    blocked = Cell(error_class="blocked", demanded=12)
    host.visit(signal=9, row=Row({1: "x"}, change=3, cells={2: blocked}))
    (entry,) = host.entries
    assert [result.signal for result in entry.results] == [12]
