"""What is old and replaced goes; what an asset's page shows stays, whatever its age.

One instance serves all tests: each has assets and a code location of its own, and what is not theirs is left alone.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import psycopg
import pytest
import sqlalchemy
from dagster._core.events import DagsterEvent, StepMaterializationData
from dagster_postgres import PostgresEventLogStorage

from autofill_defs.definitions import defs
from autofill_defs.instance import with_driver
from autofill_defs.retention import purge, retention
from cell_engine.embedded.server import Server

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def instance(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dg.DagsterInstance]:
    home: Path = tmp_path_factory.mktemp("dagster")
    name = f"{home.name}_{home.parent.name}".replace("-", "_")
    with psycopg.connect(server.dsn("postgres"), autocommit=True) as connection:
        connection.execute(f'create database "{name}"'.encode())
        (home / "dagster.yaml").write_text(
            f"storage: {{postgres: {{postgres_url: '{with_driver(server.dsn(name))}'}}}}"
        )
        with dg.DagsterInstance.from_config(str(home)) as instance:
            yield instance
        connection.execute(f'drop database "{name}" with (force)'.encode())


@pytest.fixture
def here(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


@pytest.fixture
def key(here: str) -> dg.AssetKey:
    return dg.AssetKey(here)


@dg.job
def some() -> None:
    pass


def run(instance: dg.DagsterInstance, here: str, *partitions: str) -> str:
    """A run that has succeeded, with a materialization of each partition of the asset called as its location."""
    made = instance.create_run_for_job(some, tags={".dagster/code_location": here})
    for partition in partitions:
        materialization = StepMaterializationData(dg.AssetMaterialization(dg.AssetKey(here), partition=partition))
        event = DagsterEvent("ASSET_MATERIALIZATION", "some", event_specific_data=materialization)
        instance.report_dagster_event(event, made.run_id)
    instance.report_dagster_event(DagsterEvent("PIPELINE_SUCCESS", "some"), made.run_id)
    return made.run_id


def age(instance: dg.DagsterInstance, days: int) -> None:
    """All that is there becomes so much older."""
    storage = instance.event_log_storage
    assert isinstance(storage, PostgresEventLogStorage)
    with storage.index_connection() as connection:
        for table, column in (("event_logs", "timestamp"), ("runs", "update_timestamp")):
            older = f"update {table} set {column} = {column} - interval '{days} days'"
            connection.execute(sqlalchemy.text(older))


def runs(instance: dg.DagsterInstance, here: str) -> Sequence[dg.DagsterRun]:
    return instance.get_runs(filters=dg.RunsFilter(tags={".dagster/code_location": here}))


def purged(instance: dg.DagsterInstance, here: str) -> tuple[int, int, int]:
    done = purge(instance, here, [dg.AssetKey(here)], NOW - timedelta(days=30))
    return done.events, done.checks, done.runs


def test_a_replaced_materialization_goes_and_the_latest_of_each_partition_stays(
    instance: dg.DagsterInstance, here: str, key: dg.AssetKey
) -> None:
    both = run(instance, here, "one", "two")
    run(instance, here, "one")
    age(instance, 20)
    again = run(instance, here, "one")
    age(instance, 20)
    assert purged(instance, here) == (2, 0, 1)  # "one" of `both`, and all of the second run
    assert {one.run_id for one in runs(instance, here)} == {both, again}
    assert instance.get_materialized_partitions(key) == {"one", "two"}
    latest = instance.get_latest_materialization_event(key)
    assert latest is not None
    assert latest.run_id == again
    age(instance, 400)
    assert purged(instance, here) == (0, 0, 0)


def test_what_has_no_run_goes_likewise(instance: dg.DagsterInstance, here: str, key: dg.AssetKey) -> None:
    for _ in range(2):
        instance.report_runless_asset_event(dg.AssetMaterialization(key, partition="one"))
        instance.report_runless_asset_event(dg.AssetMaterialization(key))
        instance.report_runless_asset_event(dg.AssetObservation(key))
    assert purged(instance, here) == (0, 0, 0)
    age(instance, 31)
    assert purged(instance, here) == (4, 0, 0)
    assert len(instance.fetch_materializations(key, limit=10).records) == 2


def test_checks_keep_their_latest_evaluation(instance: dg.DagsterInstance, here: str, key: dg.AssetKey) -> None:
    for passed in (True, False):
        instance.report_runless_asset_event(dg.AssetCheckEvaluation(key, check_name="rate", passed=passed))
    storage = instance.event_log_storage
    assert isinstance(storage, PostgresEventLogStorage)
    with storage.index_connection() as connection:
        older = "update asset_check_executions set create_timestamp = create_timestamp - interval '31 days'"
        connection.execute(sqlalchemy.text(older))
    assert purged(instance, here) == (0, 1, 0)
    [left] = storage.get_asset_check_execution_history(dg.AssetCheckKey(key, "rate"), limit=5)
    assert left.status.value == "FAILED"


def test_what_is_not_ours_or_not_over_is_left_alone(instance: dg.DagsterInstance, here: str) -> None:
    elsewhere = [run(instance, "elsewhere", "one") for _ in range(2)]
    going = instance.create_run_for_job(some, tags={".dagster/code_location": here}).run_id
    age(instance, 400)
    assert purged(instance, here) == (0, 0, 0)
    assert {one.run_id for one in runs(instance, "elsewhere")} == set(elsewhere)
    assert [one.run_id for one in runs(instance, here)] == [going]


def test_the_sensor_says_so_where_there_is_nothing_to_keep_small() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        said = retention(dg.build_sensor_context(instance=instance, definitions=defs()))
    assert isinstance(said, dg.SkipReason)
