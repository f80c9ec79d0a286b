"""The dry run: cells, tokens and cost before a dispatch, against what the offline model then bills."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from cell_engine.demo.distributions import installed
from cell_engine.estimate import ColumnEstimate, Estimate, estimate, estimate_changes, estimate_new
from cell_engine.estimate.calls import ANSWER_CHARACTERS, Past, simulate
from cell_engine.estimate.summing import sum_up
from cell_engine.offline_model import OfflineModel
from cell_engine.plan import Row
from cell_engine.specs.compile import compile_text
from cell_engine.specs.text import Json
from cell_engine.specs.version import Version
from cell_engine.store.changes import edit
from cell_engine.store.collections import find_collection
from cell_engine.store.database import Connection
from cell_engine.store.demands import RangeScope, RowScope, dispatch
from cell_engine.store.reading import Progress, progress
from cell_engine.store.syncing import Drawn
from tests.engine import Claimer, Made, eventually, make, offline_model, running_worker, sheet

PACKAGES = Path(__file__).parents[1] / "autofill_defs" / "collections" / "packages.yaml"


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[OfflineModel]:
    with offline_model(monkeypatch) as model:
        yield model


def everything(made: Made, connection: Connection) -> RangeScope:
    return RangeScope(((1, find_collection(connection, made.collection.full_name).next_row - 1),))


def done(connection: Connection, made: Made, columns: Sequence[int], *, force: bool = False) -> Progress:
    """The dispatch, at its end."""
    scope = everything(made, connection)
    asked = dispatch(connection, made.collection.id, scope, columns=columns, force=force, reason="test", actor="me")
    eventually(connection, "select ended_at is not null from autofill.dispatch where id = %s", asked, seconds=60)
    found = progress(connection, asked)
    assert found is not None
    return found


def agree(found: Estimate, real: Progress, within: float) -> None:
    print(f"estimated {found.cost:,} ({found.low:,} to {found.high:,}), billed {real.cost:,}")
    assert real.cost > 0
    assert abs(found.cost - real.cost) <= within * real.cost
    assert abs(sum(one.tokens_in for one in found.columns) - real.tokens_in) <= within * real.tokens_in
    assert abs(sum(one.tokens_out for one in found.columns) - real.tokens_out) <= max(1.0, 3 * within) * real.tokens_out
    assert found.low <= real.cost <= found.high


def test_on_the_demo_estimates_are_within_a_fifth_of_the_bill(
    connection: Connection, database: str, model: OfflineModel
) -> None:
    rows = [{name: value for name, value in asdict(one).items() if value is not None} for one in installed()]
    made = make(connection, PACKAGES.read_text(), rows=rows, demand=False)
    computed = [one.id for one in made.version.computed]
    scope = everything(made, connection)
    with running_worker(database):
        # nothing has been computed yet: four characters a token, answers by their type
        first = estimate(connection, made.collection, made.version, scope)
        assert {one.basis for one in first.columns if one.model is not None} == {"assumed"}
        agree(first, done(connection, made, ()), 0.2)
        # with a past, all of it again
        again = estimate(connection, made.collection, made.version, scope, columns=computed, force=True)
        assert {one.basis for one in again.columns if one.model is not None} == {"past"}
        agree(again, done(connection, made, computed, force=True), 0.05)
        # and one column, behind which another one reads: at least itself, at most both
        summary = made.id("summary")
        one = estimate(connection, made.collection, made.version, scope, columns=[summary], force=True)
        agree(one, done(connection, made, [summary], force=True), 0.2)
        least = {each.column: (each.least, each.cells) for each in one.columns}
        assert least["audience"][0] == 0 < least["audience"][1] == least["summary"][0]
        fresh = estimate(connection, made.collection, made.version, scope, columns=computed)
        assert (fresh.cells, fresh.cost, fresh.high) == (0, 0, 0)


def filled(connection: Connection, rows: int) -> Made:
    made = make(connection, sheet("a", "b!llm: a", "c: b", "n/never!llm: a"), rows=[{"a": f"{i}"} for i in range(rows)])
    Claimer(connection).work_off()
    return made


def copied(connection: Connection, rows: int) -> Made:
    """A filled collection of so many rows, all but the first its copies."""
    made = filled(connection, 1)
    connection.execute(
        "insert into autofill.row (collection_id, row_id, batch_id, inputs) "
        "select collection_id, n, batch_id, inputs from autofill.row, generate_series(2, %s) as n",
        [rows],
    )
    connection.execute(
        "insert into autofill.cell (collection_id, row_id, column_id, ai_value, fingerprint, called, change, version, "
        "computed_at) select collection_id, n, column_id, ai_value, fingerprint, called, change, version, computed_at "
        "from autofill.cell, generate_series(2, %s) as n",
        [rows],
    )
    connection.execute("update autofill.collection set next_row = %s", [rows + 1])
    return made


def cells(found: Estimate) -> dict[str, tuple[int, int]]:
    return {one.column: (one.cells, one.least) for one in found.columns}


def test_cells_are_those_that_a_dispatch_computes(connection: Connection) -> None:
    made = filled(connection, 5)
    b, n = made.id("b"), made.id("n")
    scope = everything(made, connection)

    def found(**more: object) -> dict[str, tuple[int, int]]:
        return cells(estimate(connection, made.collection, made.version, scope, **more))  # type: ignore[arg-type]

    assert found() == {}, "all is up to date"
    assert found(columns=[b]) == {}
    assert found(columns=[b], force=True) == {"b": (5, 5), "c": (5, 0)}
    assert found(columns=[n]) == {"n": (5, 5)}
    edit(connection, made.collection.id, 2, {b: "mine"}, actor="me")
    assert found(columns=[b], force=True, only_if=["empty"]) == {"c": (1, 1)}, "what the edit made due"
    assert found(columns=[made.id("c")], only_if=["outdated"]) == {"c": (1, 1)}
    assert found(columns=[n], force=True) == {"n": (5, 5), "c": (1, 1)}
    rows = estimate(connection, made.collection, made.version, RowScope((1, 3)), columns=[b], force=True)
    assert (cells(rows), rows.rows) == ({"b": (2, 2), "c": (2, 0)}, 2)


def test_a_blocked_cell_costs_nothing(connection: Connection) -> None:
    made = make(connection, sheet("a", "k", "b!llm: a", "c!llm: b"), rows=[{"a": "x"}, {"k": "y"}], demand=False)
    assert cells(estimate(connection, made.collection, made.version, everything(made, connection))) == {
        "b": (1, 1),
        "c": (1, 1),
    }


def test_a_few_errors_among_many_rows_are_found_and_not_guessed(connection: Connection) -> None:
    made = copied(connection, 3_000)
    connection.execute(
        "update autofill.cell set error_class = 'schema', error = 'no' where column_id = %s and row_id in (7, 2900)",
        [made.id("b")],
    )
    found = estimate(
        connection, made.collection, made.version, everything(made, connection), columns=[made.id("b")],
        only_if=["error:schema"],
    )  # fmt: skip
    assert cells(found) == {"b": (2, 2), "c": (2, 2)}
    assert found.is_exact_scope


def test_a_sample_says_how_far_it_may_be_off(connection: Connection) -> None:
    made = copied(connection, 3_000)
    scope = everything(made, connection)
    b = made.id("b")
    connection.execute("update autofill.row set deleted_at = now() where mod(row_id, 2) = 0")
    found = estimate(connection, made.collection, made.version, scope, columns=[b], force=True)
    assert (found.rows, found.sampled) == (3_000, 400)
    b_cells = next(one.cells for one in found.columns if one.column == "b")
    assert abs(b_cells - 1_500) < 300
    assert found.cells_high > found.cells
    none = estimate(connection, made.collection, made.version, scope, columns=[b], only_if=["empty"])
    assert (none.cells, none.cells_high) == (0, 22), "under 3 in 400"


def test_an_unknown_price_is_unknown_and_bounded_by_the_dearest(connection: Connection) -> None:
    made = filled(connection, 3)
    found = estimate(
        connection, made.collection, made.version, everything(made, connection), columns=[made.id("b")], force=True
    )
    b = next(one for one in found.columns if one.column == "b")
    assert (b.cost, found.cost, found.unpriced) == (None, 0, ("shape-1",))
    assert found.at_most > 0


def test_rows_that_are_not_loaded_yet(connection: Connection) -> None:
    made = filled(connection, 3)
    a = made.id("a")
    new: list[dict[int, Json]] = [{a: "x"}] * 900 + [{}] * 100
    found = estimate_new(connection, made.collection, made.version, [Row(one) for one in new])
    assert (found.rows, found.sampled) == (1_000, 400)
    assert abs(next(one.cells for one in found.columns if one.column == "b") - 900) < 60


def test_within_a_second_whatever_the_size(connection: Connection) -> None:
    """A million rows; a sample reads as many of them as of a thousand."""
    made = make(connection, sheet("a", "b!llm: a", "c!llm: b"), rows=[{"a": "x"}])
    connection.execute(
        "insert into autofill.row (collection_id, row_id, batch_id, inputs) "
        "select collection_id, n, batch_id, inputs from autofill.row, generate_series(2, 1000000) as n"
    )
    connection.execute("update autofill.collection set next_row = 1000001")
    collection = find_collection(connection, made.collection.full_name)
    took = []
    for _ in range(3):
        started = time.perf_counter()
        found = estimate(connection, collection, made.version, RangeScope(((1, 1_000_000),)))
        took.append(time.perf_counter() - started)
    assert found.rows == 1_000_000
    assert cells(found) == {"b": (1_000_000, 1_000_000), "c": (1_000_000, 1_000_000)}
    assert min(took) < 1, took


@pytest.mark.parametrize("rows", [300, 6_000])
def test_of_rows_that_ask_the_same_one_pays(
    connection: Connection, database: str, model: OfflineModel, rows: int
) -> None:
    """Among rows of their own: of some hundred that are drawn those are still seen more than once."""
    values = [{"a": f"word {row}" if row % 10 == 0 else f"word {row % 3}"} for row in range(rows)]
    made = make(connection, sheet("a", "b!llm: a"), rows=values, demand=False)
    scope = everything(made, connection)
    b = made.id("b")
    (found,) = estimate(connection, made.collection, made.version, scope, columns=[b], force=True).columns
    needed = len({one["a"] for one in values})
    assert found.cells == rows
    assert abs(found.cells - found.cached - needed) <= (0 if rows == 300 else 0.5 * needed)
    if rows == 300:
        with running_worker(database):
            done(connection, made, [b], force=True)
        assert model.stats.billed.total() == needed
        known = estimate(connection, made.collection, made.version, scope, columns=[b], only_if=["error:schema"])
        assert known.cells == 0
        fresh = make(connection, sheet("a", "b!llm: a", name="again"), rows=values, demand=False)
        (found,) = estimate(
            connection, fresh.collection, fresh.version, everything(fresh, connection), columns=[fresh.id("b")]
        ).columns
        assert (found.cells, found.cached, found.cost) in [(rows, rows, 0), (rows, rows, None)]


def test_what_waits_for_a_review_is_another_dispatchs() -> None:
    spec = compile_text(sheet("a", "b*: a", "c: b"))
    version = Version(1, 1, spec.bind({"a": 1, "b": 2, "c": 3}))
    calls = simulate(Row({1: "x"}), version, {}, {2: Past(), 3: Past()}, changes=True)
    assert [due.column.name for due in calls] == ["b"]


PARTS = """
namespace: test
name: parts
files: recordings
columns:
  - {name: text, type: text}
  - {name: sound, type: file}
  - name: ends
    type: date
    kind: llm
    llm:
      model: gpt-5-mini
      prompt: "When does it end? {{text}}"
      chunks: {size: 1000, overlap: 100}
      map: "What is said of the end? {{text}}"
      reduce: "When does it end? {{text}}"
  - {name: said, type: text, kind: transcribe, deps: [sound], transcribe: {model: whisper-1}}
  - {name: said_again, type: text, kind: transcribe, deps: [sound], transcribe: {model: gpt-4o-transcribe}}
"""


def summed(row: Row, past: dict[int, Past]) -> dict[str, ColumnEstimate]:
    spec = compile_text(PARTS)
    version = Version(1, 1, spec.bind({one.key: number for number, one in enumerate(spec.columns, 1)}))
    calls = [simulate(row, version, {}, past, changes=True)]
    return {one.column: one for one in sum_up(version, 1, 1, calls, calls, past, set()).columns}


def test_a_text_in_parts_is_as_many_requests_as_are_made_for_it() -> None:
    past = {3: Past(), 4: Past(), 5: Past()}
    short = summed(Row({1: "word " * 180}), past)["ends"]
    assert (short.cells, short.requests) == (1, 1)
    long = summed(Row({1: "word " * 4000}), past)["ends"]
    assert long.cells == 1
    assert 20 <= long.requests - 1 <= 30, "20,000 characters in parts of some 900, and once for what they came to"
    assert long.tokens_in > 20_000 / 4 + (long.requests - 1) * ANSWER_CHARACTERS / 4
    assert long.tokens_out > (long.requests - 1) * ANSWER_CHARACTERS / 4
    assert long.cost is not None
    assert short.cost is not None
    assert long.cost > 15 * short.cost


def test_recordings_cost_by_the_minute_as_those_before_or_as_is_assumed() -> None:
    past = {3: Past(), 4: Past(), 5: Past()}
    assumed = summed(Row({2: "a.mp3"}), past)
    assert (assumed["said"].seconds, assumed["said"].cost) == (300, 5 * 6_000_000)
    assert (assumed["said_again"].basis, assumed["said_again"].tokens_in) == ("assumed", 3000)
    assert assumed["said_again"].cost
    past[4] = Past(seconds=[50.0, 70.0], tokens_out=[0, 0])
    heard = summed(Row({2: "a.mp3"}), past)["said"]
    assert (heard.basis, heard.seconds, heard.cost) == ("past", 60, 6_000_000)


def test_what_a_snapshot_would_change(connection: Connection) -> None:
    made = filled(connection, 3)
    a = made.id("a")
    connection.execute("update autofill.row set deleted_at = clock_timestamp() where row_id = 3")
    says = [
        Drawn(1, {a: "1"}, ()),  # other than before: b, and c where b differs
        Drawn(3, {a: "2"}, ()),  # back as it was: what was computed is still there
        Drawn(None, {a: "new"}, ()),
        Drawn(2, {}, (a,)),  # emptied: blocked
    ]
    found = estimate_changes(connection, made.collection, made.version, says, 4)
    assert cells(found) == {"b": (2, 2), "c": (2, 1)}
    many = estimate_changes(connection, made.collection, made.version, says, 4000)
    assert cells(many) == {"b": (2000, 2000), "c": (2000, 1000)}
