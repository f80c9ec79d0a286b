"""Visits in memory, over random DAGs: plan, call, store, plan again, with edits and failures in between, until nothing
is due. The database is tested elsewhere; here it is the idea."""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from cell_engine.plan import Asked, Cell, Due, Plan, Row, plan
from cell_engine.specs.text import Json
from cell_engine.specs.version import Column, Mode, NotFound, Version
from tests.plan.rows import column, is_lacking, is_passed_on, mark, store, version

INPUTS = (1, 2)
MODES = st.sampled_from(["on_change", "on_change", "on_change", "never"])
POLICIES: st.SearchStrategy[NotFound] = st.sampled_from(["skip", "run", "propagate"])
PLANS = 200


@st.composite
def versions(draw: st.DrawFn, modes: st.SearchStrategy[Mode] = MODES, optional: bool = True) -> Version:
    """Two inputs and up to six computed columns, each reading some of those before it."""
    columns = [column(id) for id in INPUTS]
    for id in range(3, 3 + draw(st.integers(1, 6))):
        deps = draw(st.lists(st.sampled_from([one.id for one in columns]), min_size=1, max_size=3, unique=True))
        blank = draw(st.lists(st.sampled_from(deps), unique=True)) if optional else []
        policies: dict[int, NotFound] = {dep: draw(POLICIES) for dep in draw(st.sets(st.sampled_from(deps)))}
        columns.append(column(id, deps, optional=blank, mode=draw(modes), not_found=policies))
    return version(*columns)


@dataclass
class Visit:
    """One row and what is in flight in it. `signal` is the latest demand that the visit has planned with."""

    version: Version
    row: Row
    signal: int = 1
    asked: dict[int, Asked] = field(default_factory=dict)
    calling: dict[int, tuple[Due, int]] = field(default_factory=dict)
    calls: Counter[int] = field(default_factory=Counter)

    def edit(self, column_id: int, value: Json) -> None:
        self.signal += 1
        cell = self.row.cells.setdefault(column_id, Cell())
        cell.user_set, cell.user_value, cell.change = True, value, self.signal

    def ask(self, column_id: int, force: bool) -> None:
        self.signal += 1
        forced = max(self.signal if force else 0, self.asked[column_id].forced if column_id in self.asked else 0)
        self.asked[column_id] = Asked(self.signal, forced, 1)

    def plan(self) -> Plan:
        """Plan, and store what needs no call."""
        steps = plan(self.row, self.version, self.asked, tuple(self.calling))
        for step in steps.found:
            store(self.row, step, self.signal)
            self.met(step.column, self.signal)
        return steps

    def start(self, due: Due) -> None:
        assert due.column.id not in self.calling
        self.calling[due.column.id] = (due, self.signal)
        self.calls[due.column.id] += 1

    def end(self, column_id: int, value: Json, error: str | None = None, not_found: str | None = None) -> None:
        due, signal = self.calling.pop(column_id)
        store(self.row, due, signal, value, error, not_found)
        self.met(due.column, signal)

    def met(self, column: Column, signal: int) -> None:
        if column.id in self.asked and self.asked[column.id].signal <= signal:
            del self.asked[column.id]

    def finish(self) -> None:
        """Everything is called and answered, until nothing is due; an answer follows from what was read."""
        for _ in range(PLANS):
            steps = self.plan()
            for due in steps.due:
                self.start(due)
            if steps == Plan() and not self.calling:
                return
            for column_id, (due, _) in list(self.calling.items()):
                self.end(column_id, text(due))
        raise AssertionError("the visit does not end")

    def check_rest(self) -> None:
        """R8, and that nothing is asked for in vain."""
        for one in self.version.computed:
            cell = self.row.cells.get(one.id) or Cell()
            if one.mode == "on_change" and not cell.user_set:
                assert cell.fingerprint == mark(self.row, self.version, one.id), f"R8: {one.name} of {self.row}"
                assert (cell.error_class == "blocked") == is_lacking(self.row, self.version, one.id)
                if is_passed_on(self.row, self.version, one.id):
                    assert cell.not_found is not None
            if one.id in self.asked:  # asked for, and answered by a call for another reason
                assert self.asked[one.id].forced <= cell.called
                assert self.asked[one.id].signal <= cell.called or cell.error_class is None
            if cell.demanded > cell.called:
                assert is_lacking(self.row, self.version, one.id)


def text(due: Due) -> str:
    return f"{due.column.name}({','.join(map(str, due.inputs.values()))})"


def fresh(version: Version, first: Json = "x", second: Json = "y") -> Visit:
    visit = Visit(
        version, Row({id: value for id, value in zip(INPUTS, (first, second), strict=True) if value is not None})
    )
    visit.finish()
    return visit


@settings(max_examples=400, deadline=None)
@given(version=versions(), data=st.data())
def test_R8_whatever_happens_in_a_visit_it_ends_with_the_latest_answers(version: Version, data: st.DataObject) -> None:
    values = st.sampled_from(["x", "y", "", None])
    visit = fresh(version, data.draw(values), data.draw(values))
    ids = [one.id for one in version.columns]
    computed = [one.id for one in version.computed]
    for _ in range(data.draw(st.integers(1, 12))):
        match data.draw(st.sampled_from(["edit", "ask", "plan", "plan", "end", "end", "error", "not found"])):
            case "edit":
                visit.edit(data.draw(st.sampled_from(ids)), data.draw(values))
            case "ask":
                visit.ask(data.draw(st.sampled_from(computed)), data.draw(st.booleans()))
            case "plan":
                steps = visit.plan()
                if steps.due:
                    for due in data.draw(st.lists(st.sampled_from(steps.due), unique_by=lambda due: due.column.id)):
                        visit.start(due)
            case "end" if visit.calling:
                column_id = data.draw(st.sampled_from(sorted(visit.calling)))
                visit.end(column_id, data.draw(st.sampled_from([text(visit.calling[column_id][0]), "same", None])))
            case "error" if visit.calling:
                visit.end(data.draw(st.sampled_from(sorted(visit.calling))), None, "refused")
            case "not found" if visit.calling:
                visit.end(data.draw(st.sampled_from(sorted(visit.calling))), None, not_found="it is not there")
    asked = {id: one.forced for id, one in visit.asked.items()}
    visit.finish()
    visit.check_rest()
    for id, forced in asked.items():
        cell = visit.row.cells.get(id) or Cell()
        assert max(cell.called, cell.demanded) >= forced, f"R6: the force of c{id} is lost"


@settings(max_examples=200, deadline=None)
@given(version=versions(st.just("on_change"), optional=False), value=st.sampled_from(["z", ""]))
def test_R9_one_edit_computes_each_dependent_once(version: Version, value: str) -> None:
    visit = fresh(version)
    visit.calls.clear()
    visit.edit(1, value)
    visit.finish()
    assert visit.calls == Counter(version.dependents(1))


@settings(max_examples=200, deadline=None)
@given(version=versions(st.just("on_change"), optional=False), data=st.data())
def test_R9_answers_in_any_order_compute_each_dependent_once(version: Version, data: st.DataObject) -> None:
    visit = fresh(version)
    visit.calls.clear()
    visit.edit(1, "z")
    while True:
        for due in visit.plan().due:
            visit.start(due)
        if not visit.calling:
            break
        column_id = data.draw(st.sampled_from(sorted(visit.calling)))
        visit.end(column_id, text(visit.calling[column_id][0]))
    assert visit.calls == Counter(version.dependents(1))
    visit.check_rest()


@settings(max_examples=200, deadline=None)
@given(version=versions(st.just("on_change"), optional=False))
def test_R10_an_equal_answer_goes_no_further(version: Version) -> None:
    visit = fresh(version)
    visit.calls.clear()
    before = {id: cell.ai_value for id, cell in visit.row.cells.items()}
    visit.edit(1, "z")
    while due := visit.plan().due:
        for one in due:
            visit.start(one)
            visit.end(one.column.id, before[one.column.id])  # the same as before
    assert visit.calls == Counter(one.id for one in version.computed if any(dep.column == 1 for dep in one.deps))


@settings(max_examples=100, deadline=None)
@given(version=versions(st.just("on_change")), data=st.data())
def test_R10_an_edit_back_to_what_was_read_calls_nothing(version: Version, data: st.DataObject) -> None:
    visit = fresh(version)
    visit.calls.clear()
    visit.edit(1, "z")
    visit.edit(1, "x")
    visit.finish()
    assert visit.calls == Counter()
    assert all(cell.read_change >= visit.signal for cell in visit.row.cells.values() if _reads(version, visit, cell))


def _reads(version: Version, visit: Visit, cell: Cell) -> bool:
    """Whether a cell reads the edited input: its numbers say so, or it would look outdated for ever (mechanic 20)."""
    (id,) = [id for id, one in visit.row.cells.items() if one is cell]
    return not cell.user_set and any(dep.column == 1 for dep in version.by_id[id].deps)


@settings(max_examples=100, deadline=None)
@given(version=versions(st.just("never")), data=st.data())
def test_what_goes_by_hand_is_called_only_for_those_who_ask(version: Version, data: st.DataObject) -> None:
    visit = fresh(version)
    visit.edit(1, "z")
    visit.finish()
    assert visit.calls == Counter()
    chosen = data.draw(st.sampled_from([one.id for one in version.computed]))
    visit.ask(chosen, force=False)
    visit.finish()
    assert set(visit.calls) <= {chosen}
