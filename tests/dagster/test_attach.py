"""Which dispatch a run waits for, when it repeats another: retries, Re-execute, and runs killed at any point."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import dagster as dg
import pytest
from dagster._core.events import JobFailureData, RunFailureReason

from autofill_defs import attaching, runs
from autofill_defs.assets import build_assets
from tests.dagster.conftest import Location
from tests.engine import running_worker


@pytest.fixture
def loaded(location: Location, database: str) -> Iterator[Location]:
    location.load("one", "two")
    with running_worker(database):
        yield location


def kill(
    location: Location,
    run: dg.DagsterRun,
    monkeypatch: pytest.MonkeyPatch,
    at: str,
    *,
    terminated: bool = False,
    job: dg.JobDefinition | None = None,
) -> None:
    """Execute the run until it calls `at`, and leave what a process killed there leaves: no word of its own about its
    end, only its code server's that it has failed; or, terminated, that it was canceled."""

    def die(*_arguments: object, **_keywords: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(attaching if at == "note" else runs, at, die)
        assert not location.execute(run, job)
    tags = {key: value for key, value in location.reread(run).tags.items() if key != "dagster/failure_reason"}
    location.instance.delete_run(run.run_id)
    location.instance.add_run(run.with_status(dg.DagsterRunStatus.STARTED).with_tags(tags))
    report = location.instance.report_run_canceled if terminated else location.instance.report_run_failed
    report(location.reread(run))
    assert location.reread(run).is_finished
    assert "dagster/failure_reason" not in location.reread(run).tags


def test_a_retry_takes_over_the_dispatch_of_a_run_killed_while_it_waited(
    loaded: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = loaded.create_run("one", "two", force=True)
    kill(loaded, first, monkeypatch, at="wait")
    [(dispatch, key)] = loaded.dispatches()
    assert key == first.run_id
    loaded.instance.add_run_tags(first.run_id, {attaching.OUTCOME_TAG: "it goes on without this run"})
    # Whether or not it has ended meanwhile: asking again would pay for all of it twice.
    retry = loaded.create_run("one", "two", parent=first, force=True)
    assert loaded.execute(retry)
    # Dagster copies tags: what was said of the first run is not true of this one.
    said = f"this run waits for dispatch {dispatch} and reports it"
    assert loaded.reread(retry).tags[attaching.OUTCOME_TAG] == said
    assert loaded.dispatches() == [(dispatch, first.run_id)]
    assert loaded.materialized["b", "two"].items() >= {"dispatch": dispatch, "cells": 3, "run_calls": 18}.items()


def test_a_run_killed_before_it_noted_its_dispatch_is_found_by_its_key(
    loaded: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = loaded.create_run("one", "two")
    kill(loaded, first, monkeypatch, at="note")
    [(dispatch, _)] = loaded.dispatches()
    second = loaded.create_run("one", "two", parent=first)
    kill(loaded, second, monkeypatch, at="note")
    third = loaded.create_run("one", "two", parent=second)
    assert loaded.execute(third)
    assert [found for found, _ in loaded.dispatches()] == [dispatch]


def test_re_execute_after_a_report_asks_again(loaded: Location) -> None:
    first, success = loaded.run("one", "two", force=True)
    assert success
    again = loaded.create_run("one", "two", parent=first, force=True)
    assert loaded.execute(again)
    (one, _), (two, key) = loaded.dispatches()
    assert one != two
    assert key == f"{first.run_id}/{again.run_id}"
    assert loaded.materialized["b", "two"]["dispatch"] == two


def test_a_re_execution_killed_before_its_dispatch_does_not_report_the_old_one(
    loaded: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = loaded.run("one", "two", force=True)
    again = loaded.create_run("one", "two", parent=first, force=True)
    kill(loaded, again, monkeypatch, at="attach")
    retry = loaded.create_run("one", "two", parent=again, force=True)
    assert loaded.execute(retry)
    assert len(loaded.dispatches()) == 2
    assert loaded.materialized["b", "two"]["dispatch"] == loaded.dispatches()[1][0]


def test_a_run_that_failed_by_its_cells_asks_again(loaded: Location) -> None:
    first, _ = loaded.run("one", "two")
    loaded.instance.report_run_failed(
        first, job_failure_data=JobFailureData(error=None, failure_reason=RunFailureReason.STEP_FAILURE)
    )
    assert loaded.reread(first).tags["dagster/failure_reason"] == "STEP_FAILURE"
    again = loaded.create_run("one", "two", parent=first)
    assert loaded.execute(again)
    assert len(loaded.dispatches()) == 2


def test_re_execute_of_a_terminated_run_waits_for_what_goes_on_and_once_that_is_over_asks_again(
    location: Location, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    location.load("one", "two")
    first = location.create_run("one", "two", force=True)
    kill(location, first, monkeypatch, at="wait", terminated=True)  # nobody works: its dispatch is open
    with ExitStack() as working:
        attach = attaching.attach

        def attached(*arguments: Any) -> int:
            dispatch_id = attach(*arguments)
            working.enter_context(running_worker(database))  # not before, or it may be over by then
            return dispatch_id

        with monkeypatch.context() as patch:
            patch.setattr(runs, "attach", attached)
            assert location.execute(location.create_run("one", "two", parent=first, force=True))
        assert len(location.dispatches()) == 1
        assert location.execute(location.create_run("one", "two", parent=first, force=True))
    assert len(location.dispatches()) == 2


def test_another_selection_is_another_dispatch(loaded: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    first = loaded.create_run("one", "two")
    kill(loaded, first, monkeypatch, at="wait")
    asked: list[dict[str, Any]] = [
        {"columns": ["b"]}, {"last": "one"}, {"force": True}, {"only": ["empty"]}, {"max_cost": 5.0}
    ]  # fmt: skip
    for changes in asked:
        before = len(loaded.dispatches())
        retry = loaded.create_run("one", parent=first, **({"last": "two"} | changes))
        assert loaded.execute(retry)
        assert len(loaded.dispatches()) == before + 1


def test_as_many_cells_of_another_batch_are_another_dispatch(loaded: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    first = loaded.create_run("one", "one")
    kill(loaded, first, monkeypatch, at="wait")
    second = loaded.create_run("two", "two", parent=first)
    assert loaded.execute(second)
    assert len(loaded.dispatches()) == 2
    assert loaded.materialized.keys() == {(name, "two") for name in "bcn"}


def test_how_a_run_looks_at_its_dispatch_is_no_other_request(loaded: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    first = loaded.create_run("one", "two")
    kill(loaded, first, monkeypatch, at="wait")
    retry = loaded.create_run("one", "two", parent=first, max_error_rate=1.0, cancel_on_terminate=True)
    assert loaded.execute(retry)
    assert len(loaded.dispatches()) == 1


def test_batches_that_came_meanwhile_are_no_other_request(loaded: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    job = build_assets(loaded.defined).resolve_job_def("test__table__batches")
    config = {"ops": {"fill_test__table__batches": {"config": {"batches": ["*"], "force": True}}}}
    first = loaded.instance.create_run_for_job(job, run_config=config)
    kill(loaded, first, monkeypatch, at="wait", job=job)
    loaded.load("three")
    parent = loaded.reread(first)
    tags = {name: value for name, value in parent.tags.items() if name != "dagster/failure_reason"}
    retry = loaded.instance.create_run_for_job(
        job, run_config=config, tags=tags, parent_run_id=first.run_id, root_run_id=first.run_id
    )
    assert loaded.execute(retry, job)
    [(dispatch, _)] = loaded.dispatches()
    assert loaded.materialized.keys() == {(column, batch) for column in "bcn" for batch in ("one", "two")}
    assert loaded.materialized["b", "two"].items() >= {"dispatch": dispatch, "run_calls": 18}.items()
