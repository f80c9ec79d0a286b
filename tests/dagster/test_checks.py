"""Checks of computed columns: what they count, whom they name, and what a failed one keeps from being made."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import dagster as dg
import psycopg
import pytest
from pydantic import ValidationError

from autofill_defs import checks
from autofill_defs.assets import build_assets
from autofill_defs.check_sensor import build_checks_sensor
from autofill_defs.check_settings import ChecksModel
from autofill_defs.checks import build_checks
from autofill_defs.defined import DefinedCollection
from autofill_defs.io_manager import table_file
from autofill_defs.wide import build_table
from cell_engine.store.changes import edit
from cell_engine.store.collections import find_collection, load_version
from cell_engine.store.database import Connection, connect
from cell_engine.store.demands import RangeScope, dispatch
from tests.dagster.conftest import SPEC, Locate, Location
from tests.engine import running_worker

SOURCED = """
namespace: test
name: table
columns:
  - {name: a, type: text}
  - {name: said, type: text, kind: llm, deps: [a], llm: {model: m, prompt: "{{a}}", evidence: required}}
  - {name: daily, type: text, kind: llm, deps: [a], mode: cron, cron: "0 6 * * *", llm: {model: m, prompt: "{{a}}"}}
  - {name: once, type: text, kind: llm, deps: [a], mode: never, llm: {model: m, prompt: "{{a}}"}}
"""

JOBS: dict[int, tuple[DefinedCollection, dg.JobDefinition]] = {}
"""By the identity of what they are of: to resolve one takes longer than to run it."""

EVALUATION = dg.AssetCheckEvaluation
Found = dict[tuple[str, str], dg.AssetCheckEvaluation]


def say(location: Location, **declared: object) -> None:
    location.defined = replace(location.defined, checks=ChecksModel.model_validate(declared))


def check(location: Location, *, fails: bool = False) -> Found:
    """What the checks' own job says, by column and name; it `fails` where one that blocks does."""
    known = JOBS.get(id(location.defined))
    if known is None:
        job = build_checks(location.defined).resolve_job_def("test__table__checks")
        known = JOBS[id(location.defined)] = (location.defined, job)
    result = known[1].execute_in_process(instance=location.instance, raise_on_error=not fails)
    assert result.success is not fails
    return evaluated(result)


def evaluated(result: dg.ExecuteInProcessResult) -> Found:
    return {(one.asset_key.path[-1], one.check_name): one for one in result.get_asset_check_evaluations()}


def answer(location: Location, column: str, rows: Sequence[int], error: str | None = None, **details: object) -> None:
    """Cells as a worker would have left them."""
    collection = find_collection(location.connection, "test/table")
    version = load_version(location.connection, collection.id)
    location.connection.execute(
        "insert into autofill.cell (collection_id, row_id, column_id, ai_value, error_class, error, details, version, "
        "computed_at) select %s, unnest(%s::bigint[]), %s, %s, %s, %s, %s, 1, now()",
        [
            collection.id, list(rows), version.by_name[column].id,
            None if error else '"x"', error, error, json.dumps(details),
        ],
    )  # fmt: skip


def test_the_error_rate_names_the_bad_batches_and_how_to_try_again(location: Location) -> None:
    location.load("one", "two", rows=4)
    answer(location, "b", range(1, 6))
    answer(location, "b", [6], "refused")
    answer(location, "b", [7, 8], "function_error")
    answer(location, "c", [1, 2, 3], "blocked")
    answer(location, "c", [4, 5], "refused")
    location.connection.execute("update autofill.row set deleted_at = now() where row_id = 8")
    collection = find_collection(location.connection, "test/table")
    c = load_version(location.connection, collection.id).by_name["c"].id
    for row_id in (4, 5):
        edit(location.connection, collection.id, row_id, {c: "mine"}, actor="me")
    found = check(location)
    b = found["b", "error_rate"]
    assert not b.passed
    assert b.severity is dg.AssetCheckSeverity.ERROR
    said = {name: value.value for name, value in b.metadata.items()}
    assert said["failed"] == 2
    assert said["cells"] == 8
    assert said["failed_by_class"] == {"refused": 1, "function_error": 1}
    assert said["worst_partitions"] == {"two": 0.5}
    assert "`autofill retry test/table --class function_error --class refused --column b`" in str(b.description)
    # what blocks is another cell's error, and what a person has overridden shows none
    assert found["c", "error_rate"].passed
    assert found["n", "error_rate"].passed
    say(location, error_rate={"max": 0.25})
    assert check(location)["b", "error_rate"].passed


def test_the_hourly_look_says_what_a_run_would_and_is_none(location: Location) -> None:
    location.load("one")
    answer(location, "b", [1, 2, 3], "refused")
    say(location, error_rate={"blocking": True})
    key = location.defined.column_key("b")
    location.instance.report_runless_asset_event(dg.AssetMaterialization(key, partition="one"))
    [materialized] = location.instance.fetch_materializations(key, limit=1).records
    [sensor] = build_checks_sensor(location.defined)
    before = location.instance.get_runs_count()
    tick = sensor(dg.build_sensor_context(instance=location.instance))
    assert isinstance(tick, dg.SensorResult)
    assert tick.skip_reason is not None
    assert tick.skip_reason.skip_message == "checks: 6, of which failed or not known: 1"
    location.land(tick)
    assert location.instance.get_runs_count() == before
    found = {(one.asset_key.path[-1], one.check_name): one for one in tick.asset_events if isinstance(one, EVALUATION)}
    by_run = check(location, fails=True)
    assert found.keys() == by_run.keys()
    for place, one in found.items():
        other = by_run[place]
        assert (one.passed, one.severity, one.blocking) == (other.passed, other.severity, other.blocking)
        assert (one.description, one.metadata.keys()) == (other.description, other.metadata.keys())
    assert found["c", "error_rate"].description == "0 of 0 cells are in error: 0.0%"
    # The page of the asset says that its latest materialization was looked at.
    target = found["b", "error_rate"].target_materialization_data
    assert target is not None and target.storage_id == materialized.storage_id
    latest = location.instance.event_log_storage.get_latest_asset_check_execution_by_key(
        [dg.AssetCheckKey(location.defined.column_key("n"), "freshness")]
    )
    assert len(latest) == 1


def test_where_cells_are_too_many_to_count_rows_stand_for_them(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    location.load("one", rows=4)
    answer(location, "b", [1], "refused")

    def counted(*_: object) -> None:
        raise psycopg.errors.QueryCanceled

    monkeypatch.setattr(checks, "counted_cells", counted)
    found = check(location)["b", "error_rate"]
    assert (found.metadata["error_rate"].value, found.metadata["cells"].value) == (0.25, 4)
    assert "too many" in str(found.metadata["counted"].value)


def test_what_is_not_answered_in_time_is_not_known_and_stops_nothing(
    location: Location, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    location.load("one")
    say(location, error_rate={"blocking": True})
    monkeypatch.setattr(checks, "STATEMENT_TIMEOUT", 0.3)
    with connect(database, application="other") as other, other.transaction():
        other.execute("lock table autofill.cell in access exclusive mode")
        found = check(location)["b", "error_rate"]
    assert not found.passed
    assert found.severity is dg.AssetCheckSeverity.WARN
    assert str(found.description).startswith("Not known")


def test_evidence_is_asked_of_the_columns_that_require_it(locate: Locate) -> None:
    location = locate(SOURCED)
    location.load("one", "two", rows=5)
    answer(location, "said", [1, 2, 3, 4, 5, 6, 7], evidence=[{"quote": "x"}])
    answer(location, "said", [8], evidence=[{"quote": "x"}], unverified=[{"quote": "y"}])
    answer(location, "said", [9], "unsupported")
    answer(location, "said", [10], evidence=[])
    found = check(location)
    assert [key for key in found if key[1] == "evidence"] == [("said", "evidence")]
    said = found["said", "evidence"]
    assert not said.passed
    assert said.severity is dg.AssetCheckSeverity.WARN
    metadata = {name: value.value for name, value in said.metadata.items()}
    assert metadata["evidence_rate"] == 0.8
    assert metadata["unsupported_share"] == 0.1
    assert metadata["with_a_quote_found_nowhere"] == 1
    assert metadata["worst_partitions"] == {"two": 0.6}
    say(location, evidence={"min": 0.8})
    assert check(location)["said", "evidence"].passed


def test_what_is_due_on_change_may_wait_so_long(location: Location) -> None:
    location.load("one", "two")
    assert check(location)["b", "freshness"].description == "nothing waits"
    collection = find_collection(location.connection, "test/table")
    a = load_version(location.connection, collection.id).by_name["a"].id
    edit(location.connection, collection.id, 1, {a: "new"}, actor="me")
    assert check(location)["b", "freshness"].passed
    location.connection.execute("update autofill.work set queued_at = queued_at - interval '20 minutes'")
    assert check(location)["b", "freshness"].passed
    say(location, freshness={"within": "15m", "severity": "error"})
    found = check(location)["b", "freshness"]
    assert not found.passed
    assert found.severity is dg.AssetCheckSeverity.ERROR
    assert found.metadata["waiting_seconds"].value >= 1200  # type: ignore[operator]
    # a row that waits for its file is not late
    location.connection.execute("update autofill.work set state = 'delayed', available_at = now(), waiting = '{}'")
    assert check(location)["b", "freshness"].passed


def test_rows_that_no_worker_has_come_to_wait_as_well(location: Location, connection: Connection) -> None:
    location.load("one")
    collection = find_collection(connection, "test/table")
    n = load_version(connection, collection.id).by_name["n"].id
    dispatch(connection, collection.id, RangeScope(((1, 3),)), columns=[n], reason="reprocess", actor="me")
    connection.execute("update autofill.dispatch set created_at = created_at - interval '2 hours'")
    found = check(location)
    assert {name: found[name, "freshness"].passed for name in "bn"} == {"b": True, "n": False}


def test_a_scheduled_column_is_refreshed_when_it_was_due_and_one_that_is_only_asked_for_never_fails(
    locate: Locate, connection: Connection
) -> None:
    location = locate(SOURCED)
    location.load("one")
    assert check(location)["daily", "freshness"].description == "its schedule has not come yet"
    connection.execute("update autofill.version set created_at = created_at - interval '3 days'")
    found = check(location)
    assert not found["daily", "freshness"].passed
    assert "last refreshed: never" in str(found["daily", "freshness"].description)
    assert found["once", "freshness"].passed
    due = found["daily", "freshness"].metadata["was_due"].value
    assert isinstance(due, float)
    collection = find_collection(connection, "test/table")
    version = load_version(connection, collection.id)
    # A run of a person's, over some batch perhaps, is no refresh: what a tick asks for has the columns that it forces.
    for seconds, forced, passed in ((-60, [], False), (60, None, False), (60, [], True)):
        connection.execute(
            "insert into autofill.dispatch (collection_id, signal, reason, actor, columns, force, total, version, "
            "created_at, ended_at, forced) values (%s, 1, 'run', 'me', %s, true, 3, 1, to_timestamp(%s), now(), %s)",
            [collection.id, [version.by_name["daily"].id], due + seconds, forced],
        )
        assert check(location)["daily", "freshness"].passed is passed


def test_the_time_of_a_schedule_is_that_of_its_time_zone(locate: Locate, connection: Connection) -> None:
    location = locate(SOURCED.replace('"0 6 * * *"', '"0 6 * * *", timezone: Pacific/Kiritimati'))
    location.load("one")
    connection.execute("update autofill.version set created_at = created_at - interval '3 days'")
    due = check(location)["daily", "freshness"].metadata["was_due"].value
    assert isinstance(due, float)
    assert due % timedelta(days=1).total_seconds() == 16 * 3600


@pytest.mark.parametrize("blocking", [True, False])
def test_a_failed_check_that_blocks_keeps_the_table_from_being_made_in_its_run(
    locate: Locate, database: str, blocking: bool
) -> None:
    location = locate(SPEC.replace("tests.functions:length", "tests.functions:boom"))
    location.load("old", "one")
    answer(location, "b", [1, 2, 3], "refused")  # of another batch than the run's
    say(location, error_rate={"blocking": blocking})
    defs = dg.Definitions.merge(
        build_assets(location.defined), build_table(location.defined), build_checks(location.defined)
    )
    keys = [location.defined.column_key(name) for name in ("b", "n")]
    with running_worker(database):
        result = defs.resolve_implicit_global_asset_job_def().execute_in_process(
            instance=location.instance,
            asset_selection=[*keys, location.defined.table_key],
            tags={"dagster/asset_partition_range_start": "one", "dagster/asset_partition_range_end": "one"},
            run_config={"ops": {"fill_test__table": {"config": {"max_error_rate": 1.0}}}},
            raise_on_error=False,
        )
    found = evaluated(result)
    assert not found["n", "error_rate"].passed
    assert found["n", "error_rate"].blocking is blocking
    assert found["b", "error_rate"].passed, "it judges the run's own batches"
    assert found["b", "error_rate"].metadata["batches"].value == 1
    assert result.success is not blocking
    assert table_file(location.defined.table_folder, "one").exists() is not blocking


def test_what_blocks_is_an_error_and_what_is_declared_makes_sense() -> None:
    for declared, says in (
        ({"error_rate": {"blocking": True, "severity": "warn"}}, "A warning stops nothing"),
        ({"freshness": {"within": "soon"}}, "90s, 15m"),
        ({"error_rate": {"max": 2}}, "less than or equal to 1"),
        ({"speed": {}}, "Extra inputs"),
    ):
        with pytest.raises(ValidationError, match=says):
            ChecksModel.model_validate(declared)
