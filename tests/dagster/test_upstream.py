"""Rows from another asset, and the whole chain: frame → rows → columns → table → an asset that takes it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest

from autofill_defs.assets import build_assets
from autofill_defs.upstream import build_load
from autofill_defs.wide import build_table
from cell_engine.store.collections import find_collection
from cell_engine.store.database import Connection
from cell_engine.store.models import broken_rules
from tests.dagster.conftest import SPEC, Locate, Location
from tests.engine import eventually, running_worker

RAW = dg.AssetKey(["raw", "texts"])
KEYED = SPEC.replace("name: table", "name: table\nkey: [a]")
SOURCED = KEYED.replace("columns:", "source: {file: rows.csv}\ncolumns:", 1)


def feed(location: Location) -> Location:
    location.defined = replace(location.defined, rows_from=RAW)
    return location


def load(
    location: Location, frame: Any, *more: dg.AssetsDefinition, keys: Sequence[str] = (), partitioned: bool = False
) -> dg.ExecuteInProcessResult:
    """A run of the asset that gives `frame`, and of what loads it."""

    @dg.asset(key=RAW, partitions_def=dg.StaticPartitionsDefinition(["1", "2"]) if partitioned else None)
    def raw(context: dg.AssetExecutionContext) -> Any:
        return frame[context.partition_key] if partitioned else frame

    defs = dg.Definitions.merge(
        build_assets(location.defined), build_load(location.defined), dg.Definitions(assets=[raw, *more])
    )
    job = defs.resolve_implicit_global_asset_job_def()
    if partitioned:
        for key in frame:
            job.execute_in_process(instance=location.instance, asset_selection=[RAW], partition_key=key)
    selection = [location.defined.load_key] if partitioned else [RAW, location.defined.load_key]
    return job.execute_in_process(instance=location.instance, asset_selection=selection, raise_on_error=False)


def texts(connection: Connection) -> list[str]:
    found = connection.execute(
        "select inputs ->> '1' as a from autofill.row where deleted_at is null order by row_id"
    ).fetchall()
    return [one.a for one in found]


def said(result: dg.ExecuteInProcessResult, key: dg.AssetKey) -> dict[str | None, dict[str, Any]]:
    """Metadata of the materializations of an asset, by partition."""
    return {
        one.materialization.partition: {name: value.value for name, value in one.materialization.metadata.items()}
        for one in result.get_asset_materialization_events()
        if one.asset_key == key
    }


def test_a_frame_becomes_batches_that_dagster_knows_and_the_same_again_adds_nothing(location: Location) -> None:
    feed(location)
    result = load(location, pl.DataFrame({"a": ["x", "y"]}))
    assert result.success
    assert said(result, location.defined.load_key)[None].items() >= {"rows": 2, "rows_new": 2, "new_batches": 1}.items()
    partitions = location.instance.get_dynamic_partitions("test/table")
    assert len(partitions) == 1
    assert said(result, location.defined.rows_key)[partitions[0]]["dagster/partition_row_count"] == 2
    again = load(location, pl.LazyFrame({"a": ["x", "y"]}))
    assert said(again, location.defined.load_key)[None].items() >= {"rows": 2, "rows_new": 0, "new_batches": 0}.items()
    assert said(again, location.defined.rows_key) == {}
    load(location, pl.DataFrame({"a": ["y", "z"]}))
    assert texts(location.connection) == ["x", "y", "y", "z"]
    assert len(location.instance.get_dynamic_partitions("test/table")) == 2


def test_what_the_rows_make_due_is_asked_for_in_the_load_itself(location: Location) -> None:
    load(feed(location), pl.DataFrame({"a": ["x", "y"]}))
    found = location.connection.execute("select reason, total > 0 as some from autofill.dispatch").fetchall()
    assert [(one.reason, one.some) for one in found] == [("load", True)]


def test_by_a_key_the_frame_is_all_there_is(locate: Locate) -> None:
    location = feed(locate(KEYED))
    load(location, pl.DataFrame({"a": ["x", "y", "z"]}))
    result = load(location, pl.DataFrame({"a": ["new", "x", "z"]}))
    counted = said(result, location.defined.load_key)[None]
    assert counted.items() >= {"inserted": 1, "deleted": 1, "unchanged": 2, "new_batches": 1}.items()
    assert texts(location.connection) == ["x", "z", "new"]
    refused = load(location, pl.DataFrame({"a": ["x"]}))
    assert not refused.success, "more than the collection lets a sync delete"
    assert texts(location.connection) == ["x", "z", "new"]


def test_the_partitions_of_an_asset_are_loaded_one_after_the_other(location: Location) -> None:
    frames = {"1": pl.DataFrame({"a": ["x"]}), "2": pl.DataFrame({"a": ["y"]})}
    assert load(feed(location), frames, partitioned=True).success
    assert texts(location.connection) == ["x", "y"]
    assert len(location.instance.get_dynamic_partitions("test/table")) == 2


def test_a_load_that_died_before_dagster_knew_its_batches_is_made_good(location: Location) -> None:
    feed(location)
    load(location, pl.DataFrame({"a": ["x"]}))
    (partition,) = location.instance.get_dynamic_partitions("test/table")
    location.instance.delete_dynamic_partition("test/table", partition)
    result = load(location, pl.DataFrame({"a": ["x"]}))
    assert list(location.instance.get_dynamic_partitions("test/table")) == [partition]
    assert said(result, location.defined.rows_key).keys() == {partition}


@pytest.mark.usefixtures("settled_files")
def test_a_declared_source_is_loaded_after_the_asset_that_makes_it(
    locate: Locate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOFILL_FILES", str(tmp_path / "files"))
    location = feed(locate(SOURCED))
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "rows.csv").write_text("a\nx\ny\n")
    result = load(location, None)
    assert result.success
    assert said(result, location.defined.load_key)[None].items() >= {"inserted": 2, "source": "rows.csv"}.items()
    assert texts(location.connection) == ["x", "y"]


@pytest.mark.parametrize(
    ("given", "says"),
    [([1, 2], "gives a list, not a polars DataFrame"), (pl.DataFrame({"b": ["x"]}), "is a computed column")],
)
def test_what_cannot_be_loaded_fails_in_words(location: Location, given: object, says: str) -> None:
    result = load(feed(location), given)
    assert not result.success
    failure = result.failure_data_for_node("test__table__load")
    assert failure is not None
    assert says in str(failure.error)


def test_the_whole_chain_from_a_frame_to_an_asset_that_takes_the_table(location: Location, database: str) -> None:
    feed(location)
    seen: list[pl.DataFrame] = []
    frame = pl.DataFrame({"a": ["x", "y"]})

    @dg.asset(key=RAW)
    def raw() -> pl.DataFrame:
        return frame

    @dg.asset(ins={"table": dg.AssetIn(location.defined.table_key)})
    def report(table: pl.LazyFrame) -> None:
        seen.append(table.select("a", "b", "n").collect())

    parts = [build(location.defined) for build in (build_load, build_assets, build_table)]
    defs = dg.Definitions.merge(*parts, dg.Definitions(assets=[raw, report]))
    graph = defs.resolve_asset_graph()
    assert graph.get(location.defined.load_key).parent_keys == {RAW}
    assert graph.get(location.defined.rows_key).parent_keys == {location.defined.load_key}
    job = defs.resolve_implicit_global_asset_job_def()
    columns = [location.defined.column_key(name) for name in "bcn"]

    def run(*selection: dg.AssetKey, **tags: str) -> None:
        assert job.execute_in_process(instance=location.instance, asset_selection=selection, tags=tags).success

    run(RAW, location.defined.load_key)
    (batch,) = location.instance.get_dynamic_partitions("test/table")
    with running_worker(database):
        run(*columns, location.defined.table_key, **{"dagster/partition": batch})
        eventually(location.connection, "select not exists (select from autofill.work)")
    run(report.key)
    assert seen[0].rows() == [("x", "X", 1), ("y", "Y", 1)]
    assert find_collection(location.connection, "test/table").next_row == 3
    assert broken_rules(location.connection) == {}


def test_a_collection_whose_rows_come_from_no_asset_has_no_load(location: Location) -> None:
    assert not build_load(location.defined).assets
