"""What is kept beside an answer: written and read with it, replaced with it, and seen by no reader of the column."""

import pytest

from cell_engine.plan import plan
from cell_engine.specs.text import Json
from cell_engine.store.claims import Reading
from cell_engine.store.collections import load_version
from cell_engine.store.database import Connection
from cell_engine.store.demands import RowScope, dispatch
from cell_engine.store.reading import page
from cell_engine.store.records import earlier_answers
from cell_engine.store.results import Result
from tests.engine import Claimer, Made, make, sheet


@pytest.fixture
def made(connection: Connection) -> Made:
    return make(connection, sheet("a", "b: a", "c: b"), rows=[{"a": "x"}])


def ask_again(connection: Connection, made: Made) -> None:
    dispatch(
        connection, made.collection.id, RowScope((1,)), columns=[made.id("b")], force=True, reason="test", actor="me"
    )


def computed(connection: Connection, claimer: Claimer, made: Made, **fields: object) -> tuple[Reading, list[str]]:
    """The row's next visit, in which b comes to `fields`; with what it called."""
    (reading,) = claimer.claim()
    steps = plan(reading.row, load_version(connection, made.collection.id), reading.asked)
    value: Json = fields.pop("value", None)  # type: ignore[assignment]
    result: Result = claimer.answer(reading, made.id("b"), value, steps, **fields)
    claimer.flush([result])
    after = claimer.reread(reading)
    assert after is not None
    return reading, claimer.visit(after)


def test_details_are_read_with_the_cell_and_move_nothing_that_reads_it(connection: Connection, made: Made) -> None:
    claimer = Claimer(connection)
    _, called = computed(connection, claimer, made, value="text", details={"etag": "1"})
    assert called == ["c"]
    _, (b, c) = page(connection, made.collection.id)
    assert (b.value, b.details, c.details) == ("text", {"etag": "1"}, None)
    ask_again(connection, made)
    reading, called = computed(connection, claimer, made, value="text", details={"etag": "2"})
    assert called == []
    assert reading.row.cells[made.id("b")].details == {"etag": "1"}
    assert page(connection, made.collection.id)[1][0].details == {"etag": "2"}
    assert earlier_answers(connection, made.collection.id, 1, made.id("b")) == []


def test_an_error_keeps_those_of_the_answer_for_the_next_call_and_shows_none(
    connection: Connection, made: Made
) -> None:
    claimer = Claimer(connection)
    computed(connection, claimer, made, value="text", details={"etag": "1"})
    ask_again(connection, made)
    computed(connection, claimer, made, error_class="bad_input", error="gone", details={"of": "the error"})
    assert page(connection, made.collection.id)[1][0].details is None
    ask_again(connection, made)
    reading, _ = computed(connection, claimer, made, value="text", details={"etag": "3"})
    assert reading.row.cells[made.id("b")].details == {"etag": "1"}


def test_an_answer_that_is_replaced_takes_its_details_into_the_records(connection: Connection, made: Made) -> None:
    claimer = Claimer(connection)
    computed(connection, claimer, made, value="text", details={"etag": "1"})
    ask_again(connection, made)
    computed(connection, claimer, made, value="other")
    assert page(connection, made.collection.id)[1][0].details is None
    (earlier,) = earlier_answers(connection, made.collection.id, 1, made.id("b"))
    assert (earlier.was, earlier.details) == ("text", {"etag": "1"})


def test_a_persons_value_has_none(connection: Connection, made: Made) -> None:
    from cell_engine.store.changes import edit

    computed(connection, Claimer(connection), made, value="text", details={"etag": "1"})
    edit(connection, made.collection.id, 1, {made.id("b"): "mine"}, actor="me")
    assert page(connection, made.collection.id)[1][0].details is None
