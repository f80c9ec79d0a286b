"""What went wrong elsewhere (docs/cases.md), where no rule's own test holds it: claims, ids and versions."""

import pytest

from cell_engine.errors import SpecError
from cell_engine.specs.compile import compile_text
from cell_engine.store.applying import apply
from cell_engine.store.changes import edit
from cell_engine.store.collections import load_version
from cell_engine.store.database import Connection
from cell_engine.store.demands import RowScope, dispatch
from tests.engine import Claimer, make, sheet

ONE = sheet("a", "b: a")


def test_what_is_made_sure_of_again_uses_up_no_id(connection: Connection) -> None:
    for _ in range(3):
        apply(connection, compile_text(ONE), actor="me")
    assert make(connection, sheet("a", name="second")).collection.id == 2


def test_only_namespaces_collections_and_endpoints_have_narrow_ids(connection: Connection) -> None:
    given = connection.execute(
        "select table_name || '.' || column_name as name from information_schema.columns "
        "where table_schema = 'autofill' and data_type in ('integer', 'smallint') "
        "and (is_identity = 'YES' or column_name in ('row_id', 'dispatch_id', 'claim', 'signal', 'change', 'called'))"
    ).fetchall()
    assert sorted(one.name for one in given) == ["collection.id", "namespace.id", "provider.id"]


def test_a_retry_far_in_the_future_blocks_no_other_row_and_one_that_is_due_needs_no_janitor(
    connection: Connection,
) -> None:
    made = make(connection, ONE, rows=[{"a": f"x{row}"} for row in range(3)], demand=False)
    dispatch(connection, made.collection.id, RowScope((1, 2, 3)), reason="reprocess", actor="me")
    claimer = Claimer(connection)
    far, due, _ = sorted(claimer.claim(), key=lambda visit: visit.key.row_id)
    ends = [claimer.release(far, "delay", seconds=10**8), claimer.release(due, "delay", seconds=0)]
    claimer.flush(releases=ends)
    assert [visit.key.row_id for visit in Claimer(connection).claim()] == [2]


def test_a_lane_with_little_to_do_is_served_beside_one_with_much(connection: Connection) -> None:
    busy = make(connection, sheet("a", "b: a", name="busy"), rows=[{"a": "x"}] * 100, demand=False)
    idle = make(connection, sheet("a", "b: a", name="idle"), rows=[{"a": "x"}] * 3, demand=False)
    for made, rows in ((busy, 100), (idle, 3)):
        dispatch(connection, made.collection.id, RowScope(tuple(range(1, rows + 1))), reason="reprocess", actor="me")
    claimed = [visit.key.collection_id for visit in Claimer(connection).claim(slots=10)]
    # max-min: the lane that wants less than its share has it all, the other what is left
    assert (claimed.count(busy.collection.id), claimed.count(idle.collection.id)) == (7, 3)


def test_a_rename_keeps_what_was_computed_and_what_reads_the_column_follows(connection: Connection) -> None:
    made = make(connection, ONE, rows=[{"a": "x"}])
    claimer = Claimer(connection)
    assert claimer.work_off() == ["b"]
    renamed = ONE.replace("name: a,", "name: alpha, id: a,").replace("name: b,", "name: beta, id: b,")
    renamed = renamed.replace("deps: [a]", "deps: [alpha]")
    assert apply(connection, compile_text(renamed), actor="me").changed == ()
    assert claimer.work_off() == []
    edit(connection, made.collection.id, 1, {made.id("a"): "y"}, actor="me")
    assert claimer.work_off() == ["beta"]


def test_deleting_a_column_that_others_read_is_refused_and_lists_them(connection: Connection) -> None:
    made = make(connection, sheet("a", "x", "b: a", "c: b", "d: a x"), rows=[{"a": "x", "x": "y"}])
    without = sheet("a", "x", "b: a", "c: b", "d: a x").replace("  - {name: a, type: text}\n", "")
    with pytest.raises(SpecError) as refused:
        apply(connection, compile_text(without), actor="me")
    told = [str(problem) for problem in refused.value.problems]
    assert [("column 'b'" in one or "column 'd'" in one, "no column 'a'" in one) for one in told] == [(True, True)] * 2
    assert load_version(connection, made.collection.id).number == 1
