"""Every combination of cell states, demands and calls in flight, over small DAGs, held against what a plan promises."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, combinations, product

import pytest

from cell_engine.plan import Asked, Cell, Plan, Row, plan
from cell_engine.specs.version import NotFound, Version
from tests.plan.rows import column as col
from tests.plan.rows import is_lacking, is_passed_on, mark, rests, shown, version

CALLED = 5
CHAIN = version(col(1), col(2, [1]), col(3, [2]))
LONG = version(col(1), col(2, [1]), col(3, [2]), col(4, [3]))
DIAMOND = version(col(1), col(2, [1]), col(3, [1]), col(4, [2, 3], optional=[3]))
BY_HAND = version(col(1), col(2, [1], mode="never"), col(3, [2], mode="cron"))
MIXED = version(col(1), col(2, [1], mode="never"), col(3, [2], optional=[2]), col(4, [3], mode="cron"))

# A cell's state, given the fingerprint of what it would read now. Without its inputs a cell cannot have been answered
# from what it would read now, nor can it be blocked by that with them.
ANSWERED_NOW = {"fresh", "fresh, no evidence", "error", "pinned fresh", "proposed"}
BLOCKED_NOW = {"blocked", "blocked, force remembered"}
STATES: dict[str, Callable[[bytes], Cell]] = {
    "empty": lambda _: Cell(),
    "fresh": lambda now: Cell(ai_value="v", fingerprint=now, called=CALLED),
    "fresh, no evidence": lambda now: Cell(ai_value=None, fingerprint=now, called=CALLED),
    "stale": lambda _: Cell(ai_value="v", fingerprint=b"old", called=CALLED),
    "error": lambda now: Cell(fingerprint=now, called=CALLED, error_class="refused"),
    "stale error": lambda _: Cell(ai_value="v", fingerprint=b"old", called=CALLED, error_class="refused"),
    "blocked": lambda now: Cell(fingerprint=now, error_class="blocked"),
    "blocked, force remembered": lambda now: Cell(fingerprint=now, error_class="blocked", demanded=3),
    "blocked before": lambda _: Cell(fingerprint=b"old", error_class="blocked", demanded=3),
    "pinned": lambda _: Cell(user_set=True, user_value="p", fingerprint=b"old", called=CALLED),
    "pinned fresh": lambda now: Cell(user_set=True, user_value="p", ai_value="v", fingerprint=now, called=CALLED),
    "pinned blank": lambda _: Cell(user_set=True, user_value=None),
}
# With answers under review, which do not double the time for all the others.
UNDER_REVIEW = {name: STATES[name] for name in ("empty", "fresh", "stale", "blocked, force remembered", "pinned")} | {
    "proposed": lambda now: Cell(ai_value="v", fingerprint=now, called=CALLED, error_class="proposed", held={}),
    "stale proposed": lambda _: Cell(
        ai_value="v", fingerprint=b"old", called=CALLED, error_class="proposed", held={"accepted": "w"}
    ),
}
# Only of what was answered now: whatever its inputs show, a stale answer is due.
NOT_FOUND_STATES: dict[str, Callable[[bytes], Cell]] = {
    "not found": lambda now: Cell(fingerprint=now, called=CALLED, details={"not_found": "not there"}),
    "not found, in error since": lambda now: Cell(
        fingerprint=now, called=CALLED, error_class="refused", details={"not_found": "not there"}
    ),
    "stale, not found": lambda _: Cell(fingerprint=b"old", called=CALLED, details={"not_found": "not there"}),
}
FEW_STATES = ("empty", "fresh", "stale", "error", "blocked, force remembered", "pinned")
DEMANDS: dict[str, Asked | None] = {
    "none": None,
    "answered": Asked(CALLED, 0, 1),
    "newer": Asked(CALLED + 1, 0, 1),
    "forced, answered": Asked(CALLED, CALLED, 1),
    "forced": Asked(CALLED + 1, CALLED + 1, 1),
    "forced, then asked again without": Asked(CALLED + 2, CALLED + 1, 1),
    "retry of errors": Asked(CALLED + 1, 0, 1, ("error:refused",)),
    "forced if outdated": Asked(CALLED + 1, CALLED + 1, 1, ("outdated",)),
}
FEW_DEMANDS = {state: DEMANDS[state] for state in ("none", "newer", "forced")}
NOT_FOUND_DEMANDS = FEW_DEMANDS | {"forced if not found": Asked(CALLED + 1, CALLED + 1, 1, ("not_found",))}


def rows(
    version: Version,
    known: Mapping[str, Callable[[bytes], Cell]] = STATES,
    inputs: tuple[str | None, ...] = ("x", None),
) -> Iterator[Row]:
    """Every combination of states that can come about; the input is there, or not."""
    ids = [one.id for one in version.computed]
    for value, *states in product(inputs, *[tuple(known)] * len(ids)):
        row = Row({1: value} if value is not None else {}, change=1)
        for id, state in zip(ids, states, strict=True):  # in dependency order: each knows what it would read
            lacks = is_lacking(row, version, id)
            waits = any(shown(row, version, dep.column)[0] == "proposed" for dep in version.by_id[id].deps)
            if (lacks or waits) and state in ANSWERED_NOW | set(NOT_FOUND_STATES):
                break
            if not lacks and state in BLOCKED_NOW:
                break
            if state.startswith("fresh") and is_passed_on(row, version, id):
                break
            cell = known[state](mark(row, version, id))
            if cell != Cell():
                row.cells[id] = cell
        else:
            yield row


def subsets(version: Version) -> list[tuple[int, ...]]:
    ids = [one.id for one in version.computed]
    return list(chain.from_iterable(combinations(ids, size) for size in range(len(ids) + 1)))


def check(row: Row, version: Version, asked: Mapping[int, Asked], unsettled: tuple[int, ...]) -> None:
    steps = plan(row, version, asked, unsettled)
    due = {one.column.id for one in steps.due}
    blocked = {one.column.id for one in steps.blocked}
    current = {one.column.id for one in steps.current}
    unfound = {one.column.id for one in steps.unfound}
    told = f"{row} {asked} {unsettled} {steps}"
    waiting = {one.column.id for one in steps.waiting}
    assert len(due | blocked | unfound | current | waiting) == len(steps.due) + len(steps.found), told
    assert not (due | blocked | unfound | current | waiting) & set(unsettled), told
    # what the plan has found blocked or not found is shown as that to what reads it, in the same plan
    view = Row(row.inputs, row.change, dict(row.cells))
    for id in blocked:
        view.cells[id] = replace(_cell(row, id), error_class="blocked")
    for id in unfound:
        view.cells[id] = replace(_cell(row, id), ai_value=None, error_class=None, details={"not_found": "passed on"})
    may_move = {id for id in {*due, *unsettled} if not _cell(row, id).user_set}
    for column in version.computed:
        cell, request = _cell(row, column.id), asked.get(column.id)
        deps = {dep.column for dep in column.deps}
        now = mark(view, version, column.id)
        stale, lacking = cell.fingerprint != now, is_lacking(view, version, column.id)
        if request is not None and not _is_meant(request, cell, stale):
            request = None
        automatic = column.mode == "on_change" and not cell.user_set
        forced = request is not None and request.forced > cell.called
        if column.id in due:
            one = next(one for one in steps.due if one.column.id == column.id)
            assert not deps & may_move, f"{column.name} is due while an input may still change: {told}"
            assert not lacking, told
            assert not rests(view, version, column.id, asked), f"{column.name} reads what is under review: {told}"
            assert not is_passed_on(view, version, column.id), f"{column.name} is called for nothing: {told}"
            assert one.fingerprint == now, told
            assert one.inputs == {dep: shown(view, version, dep)[1] for dep in deps}, told
            assert automatic or request is not None or cell.demanded > cell.called, told
            assert stale or forced or cell.error_class is not None, f"{column.name} is fresh: {told}"
            assert stale or forced or cell.error_class != "proposed" or cell.demanded > cell.called, (
                f"{column.name} is answered, and waits for review: {told}"
            )
        elif column.id in unfound:
            passed = next(one for one in steps.unfound if one.column.id == column.id)
            assert not deps & may_move, told
            assert is_passed_on(view, version, column.id), told
            assert passed.fingerprint == now, told
            assert stale or forced or cell.error_class is not None or cell.demanded > cell.called, told
            assert automatic or request is not None or cell.demanded > cell.called, told
        elif column.id in blocked:
            found = next(one for one in steps.blocked if one.column.id == column.id)
            assert lacking, told
            assert found.fingerprint == now, told
            assert found.demanded == (request.forced if request is not None and forced else 0), told
        elif column.id in waiting:
            one = next(one for one in steps.waiting if one.column.id == column.id)
            assert request is not None, told
            assert rests(view, version, column.id, asked), told
            kept = request.forced if automatic or forced else request.signal
            assert one.demanded == (kept if kept > cell.called else 0), told
        elif column.id not in unsettled and rests(view, version, column.id, asked):
            if request is not None and not deps & may_move and not _waits(row, version, column.id, may_move):
                assert not (stale or forced), f"R6: a demand for {column.name} is lost: {told}"
        elif column.id not in unsettled and not _waits(row, version, column.id, may_move):
            # Nothing holds it back: what is stale, or asked for and not answered, must have been found.
            assert not (automatic and stale), f"R8: {column.name} is stale and not due: {told}"
            assert not (request is not None and stale), f"R6: a demand for {column.name} is lost: {told}"
            assert not forced, f"R6: a force of {column.name} is lost: {told}"
            if request is not None and request.signal > cell.called:
                assert cell.error_class in (None, "proposed"), f"R6: a retry of {column.name} is lost: {told}"
            if cell.demanded > cell.called:
                assert lacking, f"R6: a remembered force of {column.name} is lost: {told}"


def _is_meant(request: Asked, cell: Cell, stale: bool) -> bool:
    if request.only_if is None:
        return True
    kinds = {f"error:{cell.error_class}"}
    if cell.ai_value is None and cell.error_class is None and cell.details is not None:
        kinds.add("not_found")
    if cell.fingerprint is None:
        kinds.add("empty")
    elif stale:
        kinds.add("outdated")
    return bool(kinds & set(request.only_if))


def _waits(row: Row, version: Version, column_id: int, may_move: set[int]) -> bool:
    """Whether something above a column may still change in this visit: a pinned cell hides it."""
    for dep in version.by_id[column_id].deps:
        if dep.column in may_move:
            return True
        hides = version.by_id[dep.column].kind is None or _cell(row, dep.column).user_set
        if not hides and _waits(row, version, dep.column, may_move):
            return True
    return False


def _cell(row: Row, column_id: int) -> Cell:
    return row.cells.get(column_id) or Cell()


@pytest.mark.parametrize("shape", [CHAIN, BY_HAND], ids=["chain", "by hand"])
def test_R8_every_state_demand_and_call_in_flight_of_two_cells(shape: Version) -> None:
    for row, first, second, unsettled in product(rows(shape), DEMANDS.values(), DEMANDS.values(), subsets(shape)):
        asked = {id: one for id, one in ((2, first), (3, second)) if one is not None}
        check(row, shape, asked, unsettled)


@pytest.mark.parametrize("shape", [DIAMOND, MIXED], ids=["diamond", "mixed modes"])
@pytest.mark.parametrize("column", [2, 4])
def test_R8_every_state_of_three_cells_and_a_demand_for_one(shape: Version, column: int) -> None:
    for row in rows(shape):
        for unsettled in subsets(shape):
            check(row, shape, {}, unsettled)
        for one in DEMANDS.values():
            check(row, shape, {} if one is None else {column: one}, ())


@pytest.mark.parametrize("shape", [CHAIN, BY_HAND], ids=["chain", "by hand"])
def test_R8_every_state_of_two_cells_with_answers_under_review(shape: Version) -> None:
    some = [DEMANDS[name] for name in ("none", "newer", "forced")]
    for row, first, second, unsettled in product(rows(shape, UNDER_REVIEW), some, DEMANDS.values(), subsets(shape)):
        asked = {id: one for id, one in ((2, first), (3, second)) if one is not None}
        check(row, shape, asked, unsettled)


@pytest.mark.parametrize("shape", [LONG, MIXED], ids=["long chain", "mixed modes"])
def test_R8_what_reads_on_from_an_answer_under_review_rests(shape: Version) -> None:
    for row, column in product(rows(shape, UNDER_REVIEW), (2, 4)):
        for one in DEMANDS.values():
            check(row, shape, {} if one is None else {column: one}, ())


@pytest.mark.parametrize("policy", ["skip", "run", "propagate"])
def test_R8_every_state_demand_and_call_in_flight_of_what_reads_one_that_was_not_found(policy: NotFound) -> None:
    shape = version(col(1), col(2, [1]), col(3, [2], not_found={2: policy}))
    states = {state: STATES[state] for state in FEW_STATES} | NOT_FOUND_STATES
    for row, first, second, unsettled in product(
        rows(shape, states, ("x",)), FEW_DEMANDS.values(), NOT_FOUND_DEMANDS.values(), subsets(shape)
    ):
        check(row, shape, {id: one for id, one in ((2, first), (3, second)) if one is not None}, unsettled)


def test_R8_every_state_of_what_reads_one_passed_on_and_one_that_was_not_found() -> None:
    shape = version(
        col(1), col(2, [1]), col(3, [2], not_found={2: "propagate"}, mode="never"),
        col(4, [2, 3], optional=[2], not_found={2: "run", 3: "propagate"}),
    )  # fmt: skip
    states = {state: STATES[state] for state in FEW_STATES} | NOT_FOUND_STATES
    for row in rows(shape, states, ("x",)):
        for one in NOT_FOUND_DEMANDS.values():
            for column in (3, 4):
                check(row, shape, {} if one is None else {column: one}, ())


def test_a_deleted_row_has_nothing_due() -> None:
    row = Row({1: "x"}, deleted=True)
    assert plan(row, CHAIN, {2: Asked(9, 9, 1)}) == Plan()
