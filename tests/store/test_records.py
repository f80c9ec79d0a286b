"""What happened is on record: calls, replaced answers, completions in an order in which none comes late, stalls."""

from cell_engine.plan import plan
from cell_engine.store.changes import edit
from cell_engine.store.database import Connection
from cell_engine.store.records import Cursor, attempts, completions_since, earlier_answers, stalled
from tests.engine import CHAIN, Claimer, eventually, make
from tests.store.conftest import Opened


def test_an_answer_that_people_saw_is_kept_when_another_one_replaces_it(connection: Connection) -> None:
    made = make(connection, rows=[{"a": "x"}])
    b = made.id("b")
    Claimer(connection).work_off()
    assert earlier_answers(connection, made.collection.id, 1, b) == []
    edit(connection, made.collection.id, 1, {made.id("a"): "y"}, actor="me")
    Claimer(connection).work_off()
    edit(connection, made.collection.id, 1, {b: "mine"}, actor="me")
    edit(connection, made.collection.id, 1, {made.id("a"): "z"}, actor="me")
    Claimer(connection).work_off()
    (earlier,) = earlier_answers(connection, made.collection.id, 1, b)
    assert "x" in str(earlier.was)
    assert earlier.replaced_at > earlier.computed_at


def test_attempts_are_paged_and_failures_keep_their_text(connection: Connection) -> None:
    made = make(connection, rows=[{"a": "x"}, {"a": "y"}])
    claimer = Claimer(connection)
    first, second = claimer.claim()
    results = [
        claimer.answer(first, made.id("b"), "B", plan(first.row, made.version, first.asked), tokens_in=5),
        claimer.answer(
            second,
            made.id("b"),
            None,
            plan(second.row, made.version, second.asked),
            error_class="refused",
            error="it would not",
        ),
    ]
    claimer.flush(results)
    found = attempts(connection, made.collection.id)
    assert sorted(one.outcome for one in found) == ["failed", "succeeded"]
    (failed,) = attempts(connection, made.collection.id, failed=True)
    assert (failed.error_class, failed.error, failed.row_ids) == ("refused", "it would not", [second.key.row_id])
    assert len(attempts(connection, made.collection.id, limit=1)) == 1
    older = attempts(connection, made.collection.id, before=found[0].id)
    assert [one.id for one in older] == [found[1].id]
    assert attempts(connection, made.collection.id, row_id=first.key.row_id)[0].tokens_in == 5


def test_mechanic_14_a_cursor_over_completions_misses_none_that_commits_late(
    connection: Connection, opened: Opened
) -> None:
    made = make(connection, rows=[{"a": "x"}, {"a": "y"}])
    late_connection = opened("late")
    late, prompt = Claimer(late_connection), Claimer(connection)
    (first,) = late.claim(1)
    (second,) = prompt.claim(1)
    with late_connection.transaction():
        # It has its place in the order, and commits after the other one has been read.
        late.flush([late.answer(first, made.id("b"), "late", plan(first.row, made.version, first.asked))])
        prompt.flush([prompt.answer(second, made.id("b"), "prompt", plan(second.row, made.version, second.asked))])
        seen = completions_since(connection, Cursor())
        assert seen == []  # behind one that is still open nothing is read
    # A transaction open in any database of the server, another test's too, holds the cursor back for a while.
    newest = connection.execute("select max(xid::text::bigint) from autofill.completion").fetchone()
    assert newest is not None
    eventually(connection, "select pg_snapshot_xmin(pg_current_snapshot())::text::bigint > %s", newest[0])
    seen = completions_since(connection, Cursor())
    assert sorted(row for one in seen for row in one.row_ids) == [1, 2]
    assert completions_since(connection, seen[-1].cursor) == []
    page = completions_since(connection, Cursor(), limit=1)
    assert completions_since(connection, page[0].cursor) == seen[1:]


def test_a_stall_says_why(connection: Connection) -> None:
    make(connection, "cap: 1\n" + CHAIN, rows=[{"a": "x"}, {"a": "y"}])
    (lane,) = stalled(connection, seconds=0)
    assert (lane.collection, lane.job_type) == ("test/chain", "function")
    assert lane.reason == "no live worker serves this job type"
    claimer = Claimer(connection)
    assert len(claimer.claim()) == 1
    assert [one.reason for one in stalled(connection, seconds=0)] == ["calls in flight: 1, of a cap of 1"]
    assert stalled(connection, seconds=3600) == []


def test_a_stall_behind_what_sweeps_leave_to_edits_says_so(connection: Connection) -> None:
    made = make(connection, "cap: 40\n" + CHAIN, rows=[{"a": f"x{row}"} for row in range(50)])
    assert len(Claimer(connection).claim()) == 38
    assert [one.reason for one in stalled(connection, seconds=0)] == ["calls in flight: 38, of a cap of 40"]
    edit(connection, made.collection.id, 50, {made.id("a"): "y"}, actor="me")
    assert [one.reason for one in stalled(connection, seconds=0)] == ["workers are busy elsewhere"]
