"""What is recomputed outside of runs, as Dagster comes to show it: once, whatever is killed, and never too early."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from autofill_defs import changes as module
from autofill_defs import followup as following
from autofill_defs import reports
from autofill_defs.assets import build_assets
from autofill_defs.attaching import OUTCOME_TAG
from autofill_defs.changes import Memory, changes
from autofill_defs.followup import followup
from cell_engine.store.changes import edit
from cell_engine.store.collections import find_collection, load_version
from cell_engine.store.control import cancel
from cell_engine.store.database import connect
from cell_engine.store.demands import RangeScope, RowScope, dispatch
from tests.dagster.conftest import SPEC, Locate, Location
from tests.engine import Claimer, eventually, running_worker

Shown = dict[tuple[str, str], list[dg.AssetMaterialization]]


def tick(location: Location, cursor: str | None, defs: dg.Definitions | None = None) -> dg.SensorResult:
    context = dg.build_sensor_context(instance=location.instance, cursor=cursor, definitions=defs)
    result = changes(context)
    assert isinstance(result, dg.SensorResult)
    return result


def look(location: Location, cursor: str | None) -> str | None:
    return location.land(tick(location, cursor))


def work(location: Location) -> None:
    """To the end, and until the cursor can pass it: transactions of other tests hold it back."""
    Claimer(location.connection, ["function"]).work_off()
    passed(location)


def passed(location: Location) -> None:
    open_ = "select from autofill.completion where xid >= pg_snapshot_xmin(pg_current_snapshot())"
    eventually(location.connection, f"select not exists ({open_})")


def shown(location: Location) -> Shown:
    """By column and partition, oldest first."""
    found: Shown = {}
    for column in location.defined.computed:
        key = location.defined.column_key(column.name)
        for record in location.instance.fetch_materializations(key, limit=1_000, ascending=True).records:
            assert record.asset_materialization is not None
            found.setdefault((column.name, str(record.partition_key)), []).append(record.asset_materialization)
    return found


def counts(location: Location) -> dict[tuple[str, str], list[object]]:
    return {place: [event.metadata["cells"].value for event in events] for place, events in shown(location).items()}


def change(location: Location, row: int, text: str) -> int:
    collection = find_collection(location.connection, "test/table")
    version = load_version(location.connection, collection.id)
    return edit(location.connection, collection.id, row, {version.by_name["a"].id: text}, actor="ann")


def ask(location: Location, *ranges: tuple[int, int], key: str | None = None, reason: str = "reprocess") -> int:
    collection = find_collection(location.connection, "test/table")
    version = load_version(location.connection, collection.id)
    columns = [column.id for column in version.computed]
    scope = RangeScope(ranges)
    return dispatch(
        location.connection, collection.id, scope, columns=columns, force=True, reason=reason, actor="bob", key=key
    )


def reported(filled: Location, column: str, batch: str, dispatch_id: int) -> None:
    """What a run has reported of its dispatch."""
    event = dg.AssetMaterialization(
        filled.defined.column_key(column), partition=batch, metadata={"dispatch": dispatch_id, "cells": 3}
    )
    filled.instance.report_runless_asset_event(event)


def dead_run(location: Location, *, noted: bool = True, canceled: bool = False) -> tuple[dg.DagsterRun, int]:
    """A run that was lost while its dispatch goes on."""
    run = location.create_run("one", "two")
    made = ask(location, (1, 6), key=run.run_id, reason="run")
    if noted:
        location.instance.add_run_tags(run.run_id, {"autofill/dispatch": str(made)})
    report = location.instance.report_run_canceled if canceled else location.instance.report_run_failed
    report(location.reread(run))
    return location.reread(run), made


@pytest.fixture
def filled(location: Location) -> Location:
    """Two batches of three rows."""
    location.load("one", "two")
    return location


def test_edits_are_one_event_a_column_and_batch(filled: Location) -> None:
    cursor = look(filled, None)
    edits = [change(filled, 1, "x"), change(filled, 2, "y")]
    assert tick(filled, cursor).asset_events == []  # nothing has ended
    work(filled)
    edits.append(change(filled, 4, "z"))
    result = tick(filled, cursor)
    assert "reported 3" in str(result.skip_reason and result.skip_reason.skip_message)
    cursor = filled.land(result)
    assert counts(filled) == {(column, "one"): [2] for column in "bcn"}
    [event] = shown(filled)["b", "one"]
    assert event.metadata["dispatches"].value == edits[:2]
    assert event.metadata["asked_for"].value == "edit by ann (2)"
    assert event.metadata["reported_by"].value == "changes"
    assert event.metadata["ready"].value == 2
    assert event.metadata["dagster/partition_row_count"].value == 3
    work(filled)
    cursor = look(filled, cursor)
    assert counts(filled)["b", "two"] == [1]
    assert tick(filled, cursor).asset_events == []


@pytest.mark.parametrize("landed", [0, 1, 3])
def test_a_daemon_killed_between_the_events_and_the_cursor_repeats_none(filled: Location, landed: int) -> None:
    cursor = look(filled, None)
    change(filled, 1, "x")
    work(filled)
    for event in tick(filled, cursor).asset_events[:landed]:
        filled.instance.report_runless_asset_event(event)
    change(filled, 2, "y")
    change(filled, 5, "z")
    work(filled)
    again = look(filled, cursor)
    assert {place: sum(map(int, cells)) for place, cells in counts(filled).items()} == {  # type: ignore[call-overload]
        (column, batch): cells for column in "bcn" for batch, cells in (("one", 2), ("two", 1))
    }
    assert tick(filled, again).asset_events == []


def test_a_large_dispatch_is_reported_over_several_ticks(filled: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_EVENTS_A_TICK", 4)
    cursor = look(filled, None)
    ask(filled, (1, 6))
    work(filled)
    later = change(filled, 1, "x")
    work(filled)
    ticks = 0
    while Memory.parse(cursor).pending or not ticks:
        result = tick(filled, cursor)
        assert len(result.asset_events) <= 4
        if ticks:  # the daemon was killed after the first of them
            for event in result.asset_events[:1]:
                filled.instance.report_runless_asset_event(event)
            result = tick(filled, cursor)
        cursor = filled.land(result)
        ticks += 1
    reported = Counter(
        (place, dispatch) for place, events in shown(filled).items() for event in events
        for dispatch in event.metadata["dispatches"].value  # type: ignore[union-attr]
    )  # fmt: skip
    assert set(reported.values()) == {1}
    assert len(shown(filled)) == 6
    assert later in {dispatch for _, dispatch in reported}


def test_a_completion_that_commits_late_is_not_passed(filled: Location, database: str) -> None:
    cursor = look(filled, None)
    with connect(database, application="other") as other:
        other.execute("begin")
        other.execute("select pg_current_xact_id()")  # older than what comes
        change(filled, 1, "x")
        Claimer(filled.connection, ["function"]).work_off()
        cursor = look(filled, cursor)
        assert counts(filled) == {}
        other.execute("commit")
    passed(filled)
    look(filled, cursor)
    assert counts(filled) == {(column, "one"): [1] for column in "bcn"}


def test_without_a_cursor_the_last_day_is_reported_once(filled: Location) -> None:
    change(filled, 1, "x")
    work(filled)
    assert look(filled, None) is not None
    assert counts(filled) == {(column, "one"): [1] for column in "bcn"}
    look(filled, None)
    look(filled, "of another release")
    assert counts(filled) == {(column, "one"): [1] for column in "bcn"}


def test_what_was_dropped_meanwhile_is_said_and_passed(filled: Location) -> None:
    memory = Memory.parse(tick(filled, None).cursor)
    memory.at = (datetime.now(UTC) - timedelta(days=60)).timestamp()
    result = tick(filled, memory.dump())
    assert result.skip_reason is not None
    assert "is dropped and not reported" in str(result.skip_reason.skip_message)
    again = tick(filled, result.cursor)
    assert again.skip_reason is not None
    assert "dropped" not in str(again.skip_reason.skip_message)


def test_more_open_dispatches_than_are_remembered_hold_the_cursor(
    filled: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_PENDING", 2)
    cursor = look(filled, None)
    for row in range(1, 7):
        change(filled, row, f"x{row}")
        work(filled)
        monkeypatch.setattr(module, "_PAGE", 1)
    for _ in range(20):
        cursor = look(filled, cursor)
    assert {place: sum(map(int, cells)) for place, cells in counts(filled).items()} == {  # type: ignore[call-overload]
        (column, batch): 3 for column in "bcn" for batch in ("one", "two")
    }


def test_collections_that_are_no_assets_here_are_left_out(filled: Location) -> None:
    cursor = look(filled, None)
    change(filled, 1, "x")
    work(filled)
    assert tick(filled, cursor, dg.Definitions()).asset_events == []
    assert len(tick(filled, cursor, build_assets(filled.defined)).asset_events) == 3


def test_what_a_run_reports_is_not_reported_twice(filled: Location, database: str) -> None:
    cursor = look(filled, None)
    with running_worker(database):
        _, success = filled.run("one", "two")
    assert success
    passed(filled)
    cursor = look(filled, cursor)
    assert {place: len(events) for place, events in shown(filled).items()} == {
        (column, batch): 1 for column in "bcn" for batch in ("one", "two")
    }
    assert Memory.parse(cursor).pending == set()


@pytest.mark.parametrize(("noted", "canceled"), [(True, False), (False, False), (True, True)])
def test_what_a_run_that_died_left_is_reported_once(
    filled: Location, monkeypatch: pytest.MonkeyPatch, noted: bool, canceled: bool
) -> None:
    cursor = look(filled, None)
    run, made = dead_run(filled, noted=noted, canceled=canceled)
    work(filled)
    if not canceled:
        cursor = look(filled, cursor)  # its retry may still come
        assert counts(filled) == {}
        assert Memory.parse(cursor).pending == {made}
        monkeypatch.setattr(following, "_SOON", 0.0)
    # It had reported a part.
    reported(filled, "b", "one", made)
    old = cursor
    cursor = look(filled, old)
    look(filled, old)
    assert counts(filled) == {(column, batch): [3] for column in "bcn" for batch in ("one", "two")}
    [event] = shown(filled)["c", "two"]
    assert event.metadata["dispatch"].value == made
    assert f"dispatch {made} has ended after this run: ready 18" in filled.reread(run).tags[OUTCOME_TAG]
    assert Memory.parse(cursor).pending == set()


def test_a_run_that_failed_after_it_had_reported_is_left_as_it_is(
    filled: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = look(filled, None)
    monkeypatch.setattr(following, "_SOON", 0.0)
    run, made = dead_run(filled)
    work(filled)
    for column in "bcn":  # a check that blocks, or too many errors: all is there, and the run has said why it failed
        for batch in ("one", "two"):
            reported(filled, column, batch, made)
    cursor = look(filled, cursor)
    assert Memory.parse(cursor).pending == set()
    assert counts(filled) == {(column, batch): [3] for column in "bcn" for batch in ("one", "two")}
    assert OUTCOME_TAG not in filled.reread(run).tags


def test_what_was_canceled_before_it_was_computed_is_no_event(filled: Location) -> None:
    cursor = look(filled, None)
    collection = find_collection(filled.connection, "test/table")
    column = load_version(filled.connection, collection.id).by_name["b"].id
    made = dispatch(
        filled.connection,
        collection.id,
        RowScope((1, 2)),
        columns=[column],
        force=True,
        reason="reprocess",
        actor="bob",
    )
    cancel(filled.connection, made)
    passed(filled)
    cursor = look(filled, cursor)
    assert counts(filled) == {}
    assert Memory.parse(cursor).pending == set()


def test_a_re_execution_that_only_estimates_reports_nothing_of_the_run_that_died(
    filled: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = look(filled, None)
    monkeypatch.setattr(following, "_SOON", 0.0)
    run, made = dead_run(filled)
    work(filled)
    assert filled.execute(filled.create_run("one", "two", parent=run, dry_run=True))
    passed(filled)
    look(filled, cursor)
    assert counts(filled) == {(column, batch): [3] for column in "bcn" for batch in ("one", "two")}
    assert shown(filled)["b", "one"][0].metadata["dispatch"].value == made


def test_what_goes_on_after_its_run_has_reported_it_at_its_cap_is_reported_at_its_end(
    filled: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = look(filled, None)
    monkeypatch.setattr(following, "_SOON", 0.0)
    _, made = dead_run(filled)
    # What `fill` says of a dispatch that is paused for its cost.
    key = filled.defined.column_key("b")
    metadata = {"dispatch": made, "cells": 1, reports.SO_FAR: True}
    filled.instance.report_runless_asset_event(dg.AssetMaterialization(key, partition="one", metadata=metadata))
    work(filled)
    old = cursor
    cursor = look(filled, old)
    look(filled, old)
    assert counts(filled)["b", "one"] == [1, 3]
    assert counts(filled)["b", "two"] == [3]


def test_a_tick_that_failed_leaves_nothing_to_report_of_what_is_as_it_was(
    locate: Locate, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = locate(SPEC.replace("deps: [a],", "deps: [a], mode: cron, cron: '0 6 * * *',"))
    location.load("one", "two")
    collection = find_collection(location.connection, "test/table")
    columns = [one.id for one in load_version(location.connection, collection.id).computed if one.mode == "cron"]

    def tick_of_schedule() -> None:
        dispatch(
            location.connection, collection.id, RangeScope(((1, 6),)), columns=columns, force=True, forced=columns,
            reason="run", actor="test",
        )  # fmt: skip
        work(location)

    tick_of_schedule()
    cursor = look(location, None)
    assert {place: len(events) for place, events in shown(location).items()}["b", "one"] == 1
    tick_of_schedule()
    look(location, cursor)
    assert {place: len(events) for place, events in shown(location).items()}["b", "one"] == 1


def follow(location: Location) -> str:
    result = followup(dg.build_sensor_context(instance=location.instance))
    assert isinstance(result, dg.SkipReason)
    return str(result.skip_message)


def test_what_becomes_of_a_dispatch_without_its_run_is_said_once(
    filled: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive = filled.create_run("one", "one")
    ask(filled, (1, 3), key=alive.run_id, reason="run")
    run, made = dead_run(filled)
    assert "not said: 0" in follow(filled)  # its retry may still come
    monkeypatch.setattr(following, "_SOON", 0.0)
    assert "not said: 1" in follow(filled)
    assert "not said: 0" in follow(filled)
    said = filled.reread(run).tags[OUTCOME_TAG]
    assert said.startswith(f"dispatch {made} goes on without this run, at 0 of 18 cells")
    logged = [entry.dagster_event.message for entry in filled.instance.all_logs(run.run_id) if entry.dagster_event]
    assert logged.count(said) == 1
    assert OUTCOME_TAG not in filled.reread(alive).tags


def test_a_run_that_will_be_retried_is_waited_for(filled: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_SOON", 0.0)
    run, _ = dead_run(filled)
    filled.instance.add_run_tags(run.run_id, {"dagster/will_retry": "true"})
    assert "not said: 0" in follow(filled)
    retry = filled.create_run("one", "two", parent=filled.reread(run))
    filled.instance.add_run_tags(run.run_id, {"dagster/auto_retry_run_id": retry.run_id})
    filled.instance.add_run_tags(retry.run_id, {"dagster/will_retry": "false"})  # Dagster does not copy this one
    assert "not said: 0" in follow(filled)  # it has the tags of the first: that dispatch is its own for now
    filled.instance.report_run_failed(filled.reread(retry))
    assert "not said: 1" in follow(filled)
