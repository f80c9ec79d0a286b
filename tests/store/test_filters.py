"""A dispatch over some of the cells in its scope: empty, outdated, in error of a class; and no call beside them."""

import pytest

from cell_engine.plan import plan
from cell_engine.store import sweeping
from cell_engine.store.changes import edit
from cell_engine.store.database import Connection
from cell_engine.store.demands import RangeScope, RowScope, dispatch
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import Progress, progress
from tests.engine import Claimer, Made, make, sheet

ROWS = 6


@pytest.fixture
def made(connection: Connection) -> Made:
    """Rows 1 to 4 are answered, row 5 is in error (schema), row 6 (refused); nothing is computed of its own accord."""
    made = make(
        connection, sheet("a", "n/never: a"), rows=[{"a": f"x{number}"} for number in range(ROWS)], demand=False
    )
    ask(connection, made, None, rows=range(1, ROWS + 1))
    claimer = Claimer(connection)
    for visit in claimer.claim():
        steps = plan(visit.row, made.version, visit.asked)
        failure = {5: "schema", 6: "refused"}.get(visit.key.row_id)
        changes: dict[str, object] = {"error_class": failure, "error": "no"} if failure else {}
        answer = claimer.answer(visit, made.id("n"), None if failure else "answer", steps, **changes)
        claimer.flush([answer])
        again = claimer.reread(visit)
        assert again is not None
        claimer.flush(releases=[claimer.release(again)])
    return made


def ask(
    connection: Connection,
    made: Made,
    only_if: list[str] | None,
    *,
    rows: range | None = None,
    force: bool = False,
) -> int:
    return dispatch(
        connection,
        made.collection.id,
        RowScope(tuple(rows)) if rows is not None else RangeScope(((1, ROWS),)),
        columns=[made.id("n")],
        only_if=only_if,
        force=force,
        reason="reprocess",
        actor="me",
    )


def calls(connection: Connection, dispatch_id: int) -> int:
    """Works everything off; returns the calls the dispatch made."""
    Claimer(connection).work_off()
    done: Progress | None = progress(connection, dispatch_id)
    assert done is not None
    assert done.ended_at is not None
    assert broken_rules(connection) == {}
    return sum(done.attempts.values())


@pytest.mark.parametrize(
    ("only_if", "force", "expected"),
    [
        (None, False, 2),
        (None, True, ROWS),
        (["error:schema"], False, 1),
        (["error:schema", "error:refused"], False, 2),
        (["error:schema"], True, 1),
        (["error:transient"], False, 0),
        (["empty"], True, 0),
        (["outdated"], True, 0),
    ],
)
@pytest.mark.parametrize("few", [True, False])
def test_only_what_matches_is_called(
    connection: Connection, made: Made, only_if: list[str] | None, force: bool, expected: int, few: bool
) -> None:
    rows = range(1, ROWS + 1) if few else None
    assert calls(connection, ask(connection, made, only_if, rows=rows, force=force)) == expected


def test_outdated_and_empty_find_theirs(connection: Connection, made: Made) -> None:
    edit(connection, made.collection.id, 2, {made.id("a"): "moved"}, actor="me")
    Claimer(connection).work_off()
    make(connection, sheet("a", "n/never: a"), rows=[{"a": "new"}], key="second", demand=False)
    everywhere = RangeScope(((1, ROWS + 1),))
    for only_if, expected in (("empty", 1), ("outdated", 1), ("empty", 0), ("outdated", 0)):
        asked = dispatch(
            connection,
            made.collection.id,
            everywhere,
            columns=[made.id("n")],
            only_if=[only_if],
            reason="reprocess",
            actor="me",
        )
        assert calls(connection, asked) == expected, only_if


def test_a_sweep_for_few_passes_windows_that_have_none(
    connection: Connection, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "WINDOW_ROWS", 2)
    asked = ask(connection, made, ["outdated", "error:refused"])
    assert [visit.key.row_id for visit in Claimer(connection).claim()] == [6]
    found = progress(connection, asked)
    assert found is not None
    assert found.rows_ahead == 0


def test_R6_what_two_demands_for_a_cell_want_is_both_wanted(connection: Connection, made: Made) -> None:
    ask(connection, made, ["error:schema"], rows=range(5, 6))
    ask(connection, made, ["outdated"], rows=range(5, 6))
    assert Claimer(connection).work_off() == ["n"]
    forced = ask(connection, made, None, rows=range(1, 2), force=True)
    ask(connection, made, ["empty"], rows=range(1, 2))
    assert Claimer(connection).work_off() == ["n"]
    found = progress(connection, forced)
    assert found is not None
    assert found.outcomes == {"superseded": 1}
