"""The wide table: a Parquet file a batch, the typed view, and what takes them as an input."""

import os
from collections.abc import Sequence
from pathlib import Path

import dagster as dg
import polars as pl
import pytest

from autofill_defs.assets import build_assets
from autofill_defs.io_manager import TABLES, scan, table_file
from autofill_defs.wide import build_table
from cell_engine.store.changes import edit
from cell_engine.store.collections import find_collection
from tests.dagster.conftest import Location

KEY = dg.AssetKey(["test", "table", "table"])


def materialize(
    location: Location, extra: Sequence[dg.AssetsDefinition], selection: list[str], **tags: str
) -> dg.ExecuteInProcessResult:
    """A run of some assets for the partitions of its tags."""
    defs = dg.Definitions.merge(
        build_table(location.defined), build_assets(location.defined), dg.Definitions(assets=list(extra))
    )
    job = defs.resolve_implicit_global_asset_job_def()
    chosen = [dg.AssetKey.from_user_string(name) for name in selection]
    return job.execute_in_process(instance=location.instance, asset_selection=chosen, tags=tags, raise_on_error=False)


def between(first: str, last: str) -> dict[str, str]:
    return {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}


def person(location: Location, row_id: int, name: str, value: object) -> None:
    collection = find_collection(location.connection, "test/table")
    found = location.connection.execute("select column_id from autofill.definition where name = %s", [name]).fetchone()
    assert found is not None
    edit(location.connection, collection.id, row_id, {found.column_id: value}, actor="me")  # type: ignore[dict-item]


def taking(name: str, key: dg.AssetKey, seen: list[object], **options: object) -> dg.AssetsDefinition:
    """An asset that takes `key` as its input, and puts what it gets into `seen`."""

    @dg.asset(name=name, ins={"frame": dg.AssetIn(key)}, **options)  # type: ignore[call-overload]
    def asset(frame: pl.LazyFrame) -> None:
        assert isinstance(frame, pl.LazyFrame)
        seen.append(frame.collect())

    return asset  # type: ignore[no-any-return]


def test_a_table_is_a_typed_file_for_each_batch_and_the_view(location: Location) -> None:
    location.load("one", "two/2", rows=2)
    person(location, 3, "n", 7)
    location.connection.execute("drop schema autofill_views cascade")
    result = materialize(location, [], ["test/table/table"], **between("one", "two/2"))
    assert result.success
    folder = location.defined.table_folder
    assert sorted(path.name for path in folder.iterdir()) == ["one.parquet", "two%2F2.parquet"]
    frame = pl.read_parquet(table_file(folder, "two/2"))
    assert dict(frame.schema) == {
        "row_id": pl.Int64, "batch": pl.String, "a": pl.String, "b": pl.String, "c": pl.String, "n": pl.Int64,
    }  # fmt: skip
    assert frame.select("row_id", "batch", "a", "n").rows() == [
        (3, "two/2", "two/2 0", 7),
        (4, "two/2", "two/2 1", None),
    ]
    made = {
        one.materialization.partition: one.materialization.metadata for one in result.get_asset_materialization_events()
    }
    assert made.keys() == {"one", "two/2"}
    reported = made["two/2"]
    assert reported["dagster/partition_row_count"].value == 2
    assert reported["file"].value == str(table_file(folder, "two/2"))
    assert reported["dagster/table_name"].value == "autofill_views.test__table"
    schema = reported["dagster/column_schema"].value
    assert isinstance(schema, dg.TableSchema)
    assert ("n", "bigint") in {(one.name, one.type) for one in schema.columns}
    assert location.connection.execute("select sum(n) from autofill_views.test__table").fetchone() == (7,)


def test_materialized_again_the_file_is_what_is_shown_now(location: Location) -> None:
    location.load("one", "two")
    materialize(location, [], ["test/table/table"], **between("one", "two"))
    file, other = (table_file(location.defined.table_folder, key) for key in ("one", "two"))
    before = other.stat().st_mtime_ns
    person(location, 1, "b", "mine")
    location.connection.execute("update autofill.row set deleted_at = now() where row_id = 2")
    materialize(location, [], ["test/table/table"], **between("one", "one"))
    assert pl.read_parquet(file)["b"].to_list() == ["mine", None]
    assert other.stat().st_mtime_ns == before


def test_an_asset_takes_the_table_as_a_lazy_frame_of_its_partitions(location: Location) -> None:
    location.load("one", "two", "three", rows=2)
    materialize(location, [], ["test/table/table"], **between("one", "two"))
    one: list[object] = []
    same = taking(
        "same", KEY, one, partitions_def=location.defined.partitions, backfill_policy=dg.BackfillPolicy.single_run()
    )
    assert materialize(location, [same], ["same"], **{"dagster/partition": "two"}).success
    assert materialize(location, [same], ["same"], **between("one", "two")).success
    assert [frame["row_id"].to_list() for frame in one] == [[3, 4], [1, 2, 3, 4]]  # type: ignore[index]

    all_: list[object] = []
    failed = materialize(location, [taking("all", KEY, all_)], ["all"])
    assert not failed.success
    assert "has no file of three in" in str(failed.failure_data_for_node("all"))
    materialize(location, [], ["test/table/table"], **between("three", "three"))
    assert materialize(location, [taking("all", KEY, all_)], ["all"]).success
    assert all_[0]["row_id"].to_list() == [1, 2, 3, 4, 5, 6]  # type: ignore[index]


def test_an_input_annotated_as_a_frame_is_one_and_may_do_without_what_is_missing(location: Location) -> None:
    location.load("one", "two", rows=1)
    materialize(location, [], ["test/table/table"], **between("two", "two"))
    seen: list[pl.DataFrame] = []

    @dg.asset(ins={"frame": dg.AssetIn(KEY, metadata={"allow_missing_partitions": True})})
    def whole(frame: pl.DataFrame) -> None:
        seen.append(frame)

    assert materialize(location, [whole], ["whole"]).success
    assert seen[0]["batch"].to_list() == ["two"]


def test_a_column_or_the_rows_are_what_the_database_holds_now(location: Location) -> None:
    location.load("one", "two", rows=1)
    materialize(location, [], ["test/table/table"], **between("one", "two"))
    person(location, 2, "b", "mine")
    seen: list[pl.DataFrame] = []
    column = taking("column", dg.AssetKey(["test", "table", "b"]), seen)  # type: ignore[arg-type]
    rows = taking("rows", dg.AssetKey(["test", "table", "rows"]), seen)  # type: ignore[arg-type]
    assert materialize(location, [column, rows], ["column"]).success
    assert materialize(location, [column, rows], ["rows"]).success
    assert seen[0].rows() == [(1, "one", None), (2, "two", "mine")]
    assert seen[1].columns == ["row_id", "batch", "a"]


def test_another_code_location_reads_the_table_by_its_key(location: Location) -> None:
    location.load("one", "two", rows=1)
    materialize(location, [], ["test/table/table"], **between("one", "two"))
    seen: list[pl.DataFrame] = []

    @dg.asset(ins={"frame": dg.AssetIn(KEY, input_manager_key="tables")})
    def theirs(frame: pl.DataFrame) -> None:
        seen.append(frame)

    assert dg.materialize([theirs, dg.AssetSpec(KEY)], resources={"tables": TABLES}, selection=[theirs]).success
    assert seen[0]["row_id"].to_list() == [1, 2]


def test_the_automation_sensor_would_keep_the_table_after_its_columns(location: Location) -> None:
    location.load("one", "two", rows=1)
    defs = dg.Definitions.merge(build_table(location.defined), build_assets(location.defined))
    first = dg.evaluate_automation_conditions(defs, location.instance)
    for name in ("rows", "b"):
        event = dg.AssetMaterialization(dg.AssetKey(["test", "table", name]), partition="two")
        location.instance.report_runless_asset_event(event)
    then = dg.evaluate_automation_conditions(defs, location.instance, cursor=first.cursor)
    assert then.get_requested_partitions(KEY) == {"two"}


def test_a_partition_without_rows_is_named(location: Location) -> None:
    location.load("one")
    location.instance.add_dynamic_partitions("test/table", ["ghost"])
    result = materialize(location, [], ["test/table/table"], **between("one", "ghost"))
    assert not result.success
    assert "no batch ghost" in str(result.failure_data_for_node("test__table__table"))


def test_files_of_an_older_definition_are_null_where_they_lack_a_column_and_named_where_a_type_changed(
    tmp_path: Path,
) -> None:
    old, new = tmp_path / "old.parquet", tmp_path / "new.parquet"
    pl.DataFrame({"a": ["x"], "gone": [True]}).write_parquet(old)
    pl.DataFrame({"a": ["y"], "n": [2]}).write_parquet(new)
    os.utime(old, (1, 1))
    assert scan([old, new]).collect().to_dicts() == [{"a": "x", "n": None}, {"a": "y", "n": 2}]
    pl.DataFrame({"a": ["y"], "n": [2.5]}).write_parquet(old)
    os.utime(old, (1, 1))
    with pytest.raises(dg.Failure, match=r"old\.parquet \(n: Float64, now Int64\)"):
        scan([old, new])
    # A column keeps its values under a new name, in the view; nulls in its place would be a lie.
    pl.DataFrame({"a": ["x"], "number": [1]}).write_parquet(old)
    os.utime(old, (1, 1))
    with pytest.raises(dg.Failure, match=r"old\.parquet \(no n, and number: perhaps its name before\)"):
        scan([old, new])


def test_a_long_key_has_a_file_of_its_own(tmp_path: Path) -> None:
    files = {table_file(tmp_path, "k" * 300 + end) for end in "ab"}
    assert len(files) == 2
    for file in files:
        file.touch()
