"""`plan` as a pure function: what is due, what waits, what is blocked, in every state of the cells around it."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from cell_engine.plan import Asked, Cell, Current, Due, Plan, Row, fingerprint, plan
from cell_engine.specs.compile import compile_text
from cell_engine.specs.version import Version
from tests.engine import sheet


def version(*columns: str) -> Version:
    """Columns are numbered from 1 in the order given."""
    spec = compile_text(sheet(*columns))
    return Version(1, 1, spec.bind({column.key: number for number, column in enumerate(spec.columns, 1)}))


def due(version: Version, row: Row, asked: Mapping[int, Asked] | None = None, unsettled: tuple[int, ...] = ()) -> str:
    """The names of the columns that are due."""
    return " ".join(one.column.name for one in plan(row, version, asked or {}, unsettled).due)


def test_R9_what_reads_a_cell_with_a_remembered_force_waits_for_it() -> None:
    row = Row({1: "z"}, cells={3: Cell(demanded=5, error_class="blocked")})
    assert due(version("z", "a: z", "n/never: a", "d: n?"), row) == "a"


@pytest.mark.parametrize(("before", "after"), [(1e22, 10**22), (1.0, 1), (-0.0, 0.0)])
def test_R10_a_number_has_one_fingerprint_before_and_after_it_was_stored(before: float, after: float) -> None:
    # 1e22 comes back from jsonb as an integer, -0.0 as 0.0; and to jsonb, 1.0 and 1 are the same value: "unchanged".
    column = version("z", "a: z").by_name["a"]
    assert fingerprint(column, [("value", before)]) == fingerprint(column, [("value", after)])


@pytest.mark.parametrize(
    ("first", "shown"),
    [(Cell(ai_value="B"), "b e c d"), (Cell(ai_value="B", error_class="proposed", held={}), "b e")],
)
def test_what_reads_an_answer_that_comes_at_once_is_planned_with_it(first: Cell, shown: str) -> None:
    shape = version("a", "b: a", "c: b", "e: a", "d: c? e")
    row = Row({1: "x"})
    asked: list[str] = []

    def answer(one: Due) -> bool:
        asked.append(one.column.name)
        cell = first if one.column.name == "b" else Cell(ai_value=one.column.name.upper())
        row.cells[one.column.id] = replace(cell, fingerprint=one.fingerprint)
        return True

    assert plan(row, shape, {}, answer=answer) == Plan()
    assert asked == shown.split()
    assert row.cells[shape.by_name["e"].id].ai_value == "E"
    assert plan(row, shape, {}) == Plan()


def test_what_reads_a_call_that_is_not_answered_at_once_waits_for_it() -> None:
    shape = version("a", "b: a", "c: b", "e: a", "d: c? e")
    asked: list[str] = []

    def answer(one: Due) -> bool:
        asked.append(one.column.name)
        return False

    assert [one.column.name for one in plan(Row({1: "x"}), shape, {}, answer=answer).due] == asked == ["b", "e"]


def test_a_blocked_cell_whose_input_has_moved_and_shows_the_same_is_current_again() -> None:
    shape = version("z", "a: z", "b: a")
    a, b = shape.computed
    failed = Cell(error_class="refused", fingerprint=fingerprint(a, [("value", "x")]), called=5, change=9)
    blocked = Cell(error_class="blocked", fingerprint=fingerprint(b, [("error", None)]), read_change=3)
    assert plan(Row({1: "x"}, cells={2: failed, 3: blocked}), shape, {}) == Plan(current=(Current(b, 9),))
