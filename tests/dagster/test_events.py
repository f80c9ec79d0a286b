"""Events are written as the batches they come in: the same rows as stock storage writes, in a few statements."""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import psycopg
import pytest
import sqlalchemy
from dagster._core.errors import DagsterExecutionInterruptedError
from dagster._core.storage.event_log import SqlEventLogStorage
from dagster_postgres import PostgresEventLogStorage

from autofill_defs.event_log import BatchingEventLogStorage
from autofill_defs.instance import URL_VARIABLE, with_driver
from autofill_defs.storage import InstanceStorage
from tests.dagster.conftest import Location
from tests.engine import running_worker

KEYS = [f"k{number}" for number in range(7)]
Make = Callable[[str], dg.DagsterInstance]


@pytest.fixture
def make(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """`make(storage)` is an instance on a PostgreSQL database of its own, by its dagster.yaml's storage."""
    monkeypatch.setenv("DAGSTER_EVENT_BATCH_SIZE", "as it was, after the test")
    monkeypatch.delenv("DAGSTER_EVENT_BATCH_SIZE")
    made: list[tuple[str, dg.DagsterInstance]] = []

    def make(storage: str) -> dg.DagsterInstance:
        with psycopg.connect(database, autocommit=True) as connection:
            name = f"{connection.info.dbname}_dagster{len(made)}"
            connection.execute(f'create database "{name}"'.encode())
        monkeypatch.setenv(URL_VARIABLE, with_driver(psycopg.conninfo.make_conninfo(database, dbname=name)))
        home = tmp_path / name
        home.mkdir()
        quiet = "module: dagster._core.storage.noop_compute_log_manager, class: NoOpComputeLogManager"
        (home / "dagster.yaml").write_text(f"storage: {storage}\ncompute_logs: {{{quiet}}}\n")
        made.append((name, dg.DagsterInstance.from_config(str(home))))
        return made[-1][1]

    yield make
    for name, instance in made:
        instance.dispose()
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute(f'drop database "{name}" with (force)'.encode())


OURS = "{custom: {module: autofill_defs.storage, class: InstanceStorage, config: {}}}"
STOCK = f"{{postgres: {{postgres_url: {{env: {URL_VARIABLE}}}}}}}"


@contextmanager
def counted(instance: dg.DagsterInstance) -> Iterator[Counter[str]]:
    """Statements that the event log executes, by their first words."""
    storage = instance.event_log_storage
    assert isinstance(storage, PostgresEventLogStorage)
    engine = storage._engine
    counts: Counter[str] = Counter()

    def count(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        counts[" ".join(statement.split()[:3])] += 1
        counts["partitions"] += "FROM dynamic_partitions" in statement

    sqlalchemy.event.listen(engine, "before_cursor_execute", count)
    try:
        yield counts
    finally:
        sqlalchemy.event.remove(engine, "before_cursor_execute", count)


def everything(instance: dg.DagsterInstance) -> dict[str, Any]:
    """What both storages must agree on, in the tables and as Dagster reads it."""
    storage = instance.event_log_storage
    assert isinstance(storage, PostgresEventLogStorage)
    with storage.index_connection() as connection:

        def rows(query: str) -> list[tuple[Any, ...]]:
            return sorted((tuple(row) for row in connection.execute(sqlalchemy.text(query))), key=repr)

        found = {
            "events": rows(
                "select dagster_event_type, step_key, asset_key, partition, run_id = '' from event_logs "
                "where dagster_event_type is not null"
            ),
            "tags": rows(
                "select asset_key, key, value from asset_event_tags where key not like '%input_event_pointer%'"
            ),
            "assets": rows(
                "select asset_key, last_run_id is not null, last_materialization is not null, "
                "last_materialization_timestamp is not null, cached_status_data is null from asset_keys"
            ),
        }
    return found


def planned(instance: dg.DagsterInstance, key: dg.AssetKey) -> set[str]:
    """The partitions that the asset's page shows as in progress or failed are among these."""
    log = instance.event_log_storage
    return set(log.get_latest_asset_partition_materialization_attempts_without_materializations(key))


def test_the_same_is_stored_as_by_stock_storage_and_in_few_statements(
    location: Location, make: Make, database: str
) -> None:
    found: list[dict[str, Any]] = []
    location.load(*KEYS)
    with running_worker(database):
        for storage in (STOCK, OURS):
            with make(storage) as instance:
                location.instance = instance
                instance.add_dynamic_partitions(location.defined.full_name, KEYS)
                with counted(instance) as counts:
                    run = location.create_run(KEYS[0], KEYS[-1])
                inserted = counts["INSERT INTO event_logs"]
                keys = [location.defined.column_key(name) for name in "bcn"]
                assert [planned(instance, key) for key in keys] == [set(KEYS)] * 3
                by_run = [instance.get_latest_planned_materialization_info(key) for key in keys]
                assert [info and info.run_id for info in by_run] == [run.run_id] * 3
                with counted(instance) as counts:
                    assert location.execute(run)
                assert [planned(instance, key) for key in keys] == [set()] * 3
                found.append(everything(instance))
                if storage == OURS:
                    assert inserted == 1
                    # Dagster's own way to add a partition's metadata looks the partitions up three times for each.
                    assert counts["partitions"] < len(KEYS) * 3
                    # One for each column's materializations; the others are of steps, resources and progress.
                    assert counts["INSERT INTO event_logs"] < len(KEYS) * 3
                else:
                    assert inserted == len(KEYS) * 3, "stock storage batches: this one is no longer needed"
    assert found[0] == found[1]


def test_what_the_storage_leans_on_is_there() -> None:
    """Fails when an upgrade changes what `event_log.py` and `storage.py` rely on: then read Dagster's again."""
    import inspect

    def parameters(function: Any) -> list[str]:
        return list(inspect.signature(function).parameters)

    assert parameters(PostgresEventLogStorage.store_event_batch) == ["self", "events"]
    assert parameters(SqlEventLogStorage.prepare_insert_event_batch) == ["self", "events"]
    assert parameters(PostgresEventLogStorage.store_asset_event) == ["self", "event", "event_id"]
    assert parameters(PostgresEventLogStorage.run_connection) == ["self", "run_id"]
    assert isinstance(InstanceStorage.event_log_storage, property)
    # Batches of planned events are handed to storage at all, and where their size comes from.
    from dagster._core.instance.methods.event_methods import EventMethods
    from dagster._core.instance.runs.run_domain import RunDomain

    assert "DAGSTER_EVENT_BATCH_SIZE" in inspect.getsource(EventMethods._get_event_batch_size)
    assert "batch_metadata" in inspect.getsource(RunDomain._log_asset_planned_events)


def test_whoever_opens_the_instance_hands_over_batches(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    with make(OURS) as instance:
        assert isinstance(instance.event_log_storage, BatchingEventLogStorage)
        assert os.environ["DAGSTER_EVENT_BATCH_SIZE"] == "1000"
        monkeypatch.setenv("DAGSTER_EVENT_BATCH_SIZE", "50")
        BatchingEventLogStorage(os.environ[URL_VARIABLE]).dispose()
        assert os.environ["DAGSTER_EVENT_BATCH_SIZE"] == "50"


def test_what_a_run_had_not_written_when_it_died_the_next_one_reports(
    location: Location, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_EVENT_BATCH_SIZE", "1000")
    location.load(*KEYS)
    with running_worker(database):
        first = location.create_run(KEYS[0], KEYS[-1])
        store = location.instance.event_log_storage.store_event_batch
        batches: list[int] = []

        def die(events: list[Any]) -> None:
            batches.append(len(events))
            if len(batches) > 1:
                raise DagsterExecutionInterruptedError
            store(events)

        with monkeypatch.context() as patch:
            patch.setattr(location.instance.event_log_storage, "store_event_batch", die)
            assert not location.execute(first)
        assert batches == [len(KEYS)] * 2  # a column each; what is lost is the whole one, and those after it
        [column] = {name for name, _ in location.materialized}
        assert {partition for _, partition in location.materialized} == set(KEYS)
        assert location.execute(location.create_run(KEYS[0], KEYS[-1], parent=first))
        assert location.materialized.keys() == {(name, key) for name in "bcn" for key in KEYS}
        assert column in "bcn"
