"""People's changes: theirs is what is shown, it can be given up, and taken back."""

import pytest

from cell_engine.errors import NotFoundError
from cell_engine.store.changes import ConflictError, edit, history, redo, reset, undo
from cell_engine.store.database import Connection
from cell_engine.store.demands import RowScope, dispatch
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import page
from tests.engine import Claimer, Made, make


def shown(connection: Connection, made: Made) -> dict[str, object]:
    """The values of the first row, by column name."""
    inputs, cells = page(connection, made.collection.id, limit=1)
    return {made.version.by_id[cell.column_id].name: cell.value for cell in (*inputs, *cells)}


def status(connection: Connection, made: Made, name: str) -> str:
    _, cells = page(connection, made.collection.id, limit=1)
    return next(cell.status for cell in cells if cell.column_id == made.id(name))


@pytest.fixture
def made(connection: Connection) -> Made:
    made = make(connection, rows=[{"a": "x"}])
    Claimer(connection).work_off()
    return made


def test_an_override_is_shown_and_what_reads_it_follows_and_reset_brings_the_answer_back(
    connection: Connection, made: Made
) -> None:
    answers = shown(connection, made)
    edit(connection, made.collection.id, 1, {made.id("b"): "mine"}, actor="me")
    assert Claimer(connection).work_off() == ["c"]
    assert shown(connection, made)["b"] == "mine"
    assert "mine" in str(shown(connection, made)["c"])
    assert status(connection, made, "b") == "overridden"
    reset(connection, made.collection.id, 1, [made.id("b")], actor="me")
    assert Claimer(connection).work_off() == ["c"]
    assert shown(connection, made) == answers
    with pytest.raises(NotFoundError, match="nothing to reset"):
        reset(connection, made.collection.id, 1, [made.id("b")], actor="me")
    assert broken_rules(connection) == {}


def test_R5_an_explicit_reprocess_refreshes_the_answer_underneath_and_no_machine_the_value(
    connection: Connection, made: Made
) -> None:
    edit(connection, made.collection.id, 1, {made.id("b"): None}, actor="me")
    Claimer(connection).work_off()
    assert shown(connection, made)["b"] is None
    dispatch(connection, made.collection.id, RowScope((1,)), columns=[made.id("b")], force=True, reason="r", actor="me")
    assert Claimer(connection).work_off() == ["b"]
    assert (shown(connection, made)["b"], status(connection, made, "b")) == (None, "overridden")


def test_a_reset_whose_inputs_moved_meanwhile_computes_afresh(connection: Connection, made: Made) -> None:
    edit(connection, made.collection.id, 1, {made.id("b"): "mine"}, actor="me")
    edit(connection, made.collection.id, 1, {made.id("a"): "moved"}, actor="me")
    assert Claimer(connection).work_off() == ["c"]
    reset(connection, made.collection.id, 1, [made.id("b")], actor="me")
    assert Claimer(connection).work_off() == ["b", "c"]


def test_undo_and_redo_walk_an_actors_changes(connection: Connection, made: Made) -> None:
    a = made.id("a")
    for value in ("one", "two"):
        edit(connection, made.collection.id, 1, {a: value}, actor="me")
    undo(connection, made.collection.id, actor="me")
    assert shown(connection, made)["a"] == "one"
    undo(connection, made.collection.id, actor="me")
    assert shown(connection, made)["a"] == "x"
    with pytest.raises(NotFoundError, match="nothing to undo"):
        undo(connection, made.collection.id, actor="me")
    redo(connection, made.collection.id, actor="me")
    redo(connection, made.collection.id, actor="me")
    assert shown(connection, made)["a"] == "two"
    with pytest.raises(NotFoundError, match="nothing to redo"):
        redo(connection, made.collection.id, actor="me")
    undo(connection, made.collection.id, actor="me")
    edit(connection, made.collection.id, 1, {a: "three"}, actor="me")
    with pytest.raises(NotFoundError, match="nothing to redo"):
        redo(connection, made.collection.id, actor="me")
    undo(connection, made.collection.id, actor="me")
    assert shown(connection, made)["a"] == "one"
    Claimer(connection).work_off()
    assert "one" in str(shown(connection, made)["c"])
    found = history(connection, made.collection.id, row_id=1, column_id=a)
    assert [entry.reason for entry in found] == ["undo", "edit", "undo", "redo", "redo", "undo", "undo", "edit", "edit"]
    assert [(one.was_set, one.was, one.now) for one in found[-2:]] == [(True, "one", "two"), (False, None, "one")]
    assert broken_rules(connection) == {}


def test_an_undo_of_what_somebody_changed_again_is_a_conflict_that_names_it(connection: Connection, made: Made) -> None:
    edit(connection, made.collection.id, 1, {made.id("a"): "mine", made.id("b"): "mine"}, actor="me")
    edit(connection, made.collection.id, 1, {made.id("b"): "yours"}, actor="you")
    with pytest.raises(ConflictError, match=r"row 1, column 'b' was changed again by you"):
        undo(connection, made.collection.id, actor="me")
    assert shown(connection, made)["a"] == "mine"
    undo(connection, made.collection.id, actor="you")
    undo(connection, made.collection.id, actor="me")
    assert shown(connection, made)["a"] == "x"
