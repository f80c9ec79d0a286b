"""The engine's views and rules in Dagster, and the real dbt on the same folder."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import dagster as dg
import pytest
from psycopg.conninfo import conninfo_to_dict

from autofill_defs.models import ENGINE, build_engine
from cell_engine.errors import SchemaVersionError
from cell_engine.store.database import SQL, Connection
from cell_engine.store.models import list_models, rule_names
from tests.engine import CHAIN, make

VIEWS = {dg.AssetKey(["autofill", model.name]) for model in list_models()}


@pytest.fixture
def defs(database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dg.Definitions:
    monkeypatch.setenv("AUTOFILL_DATABASE_URL", database)
    monkeypatch.setenv("AUTOFILL_HOME", str(tmp_path))
    return build_engine()


def check(defs: dg.Definitions, instance: dg.DagsterInstance) -> dict[str, dg.AssetCheckEvaluation]:
    result = defs.resolve_job_def("autofill__rules").execute_in_process(instance=instance)
    assert result.success
    return {one.check_name: one for one in result.get_asset_check_evaluations()}


def test_every_view_is_an_asset_of_the_engines_tables(defs: dg.Definitions) -> None:
    graph = defs.resolve_asset_graph()
    assert set(graph.get_all_asset_keys()) == VIEWS | {ENGINE}
    assert graph.get(dg.AssetKey(["autofill", "lane"])).parent_keys == {ENGINE}
    assert graph.get(dg.AssetKey(["autofill", "oldest_transaction"])).parent_keys == set()  # of the server's own
    assert {key.name for key in graph.asset_check_keys} == set(rule_names())


def test_to_materialize_the_views_is_to_make_them_and_keeps_what_is_built_on_them(
    defs: dg.Definitions, connection: Connection
) -> None:
    connection.execute("create view public.mine as select queued from autofill.lane")
    connection.execute("drop view autofill.spend")
    (views,) = [one for one in defs.assets or () if isinstance(one, dg.AssetsDefinition)]
    result = dg.materialize([views])
    made = {event.asset_key: event.materialization for event in result.get_asset_materialization_events()}
    assert set(made) == VIEWS
    schema = made[dg.AssetKey(["autofill", "lane"])].metadata["dagster/column_schema"].value
    assert isinstance(schema, dg.TableSchema)
    assert {(one.name, one.type) for one in schema.columns} >= {("queued", "bigint"), ("job_type", "text")}
    connection.execute("select * from autofill.spend, public.mine")


def test_views_are_not_made_on_another_releases_schema(defs: dg.Definitions, connection: Connection) -> None:
    connection.execute("update public.autofill_schema set version_num = '0003'")
    (views,) = [one for one in defs.assets or () if isinstance(one, dg.AssetsDefinition)]
    with pytest.raises(SchemaVersionError, match="the database schema is 3"):
        dg.materialize([views])


def test_each_rule_is_a_check_of_the_engine_and_one_that_is_broken_names_its_rows(
    defs: dg.Definitions, connection: Connection
) -> None:
    make(connection, CHAIN, [{"a": "x"}], demand=False)
    with dg.DagsterInstance.ephemeral() as instance:
        found = check(defs, instance)
        assert found.keys() == set(rule_names())
        assert all(one.passed for one in found.values())
        connection.execute(
            "insert into autofill.cell (collection_id, row_id, column_id, user_set) values (1, 1, 1, true)"
        )
        found = check(defs, instance)
    assert {name for name, one in found.items() if not one.passed} == {"r5_machine_cells_have_no_person"}
    broken = found["r5_machine_cells_have_no_person"]
    assert broken.asset_key == ENGINE
    assert broken.metadata["found"].value == [{"collection_id": 1, "row_id": 1, "column_id": 1}]


DBT = os.environ.get("AUTOFILL_DBT")

# What docs/dagster.md gives to people who build upon a collection.
SOURCE = """
sources:
  - name: collections
    schema: autofill_views
    tables:
      - name: test__chain
        config: {meta: {dagster: {asset_key: [test, chain, table]}}}
"""


@pytest.mark.skipif(DBT is None, reason="AUTOFILL_DBT names no dbt: `make test` does")
def test_the_real_dbt_builds_the_folder_and_a_model_on_a_collections_view(
    database: str, connection: Connection, tmp_path: Path
) -> None:
    make(connection, CHAIN, [{"a": "x"}, {"a": "y"}], demand=False)
    project = tmp_path / "project"
    shutil.copytree(SQL, project)
    (project / "models" / "sources.yml").write_text(SOURCE)
    (project / "models" / "mine.sql").write_text("select a from {{ source('collections', 'test__chain') }}\n")
    given = conninfo_to_dict(database)
    target = {
        "type": "postgres", "schema": "analytics", "threads": 2,
        "host": given["host"], "port": int(given.get("port") or 5432), "user": given["user"],
        "password": given.get("password") or "none", "dbname": given["dbname"],
    }  # fmt: skip
    (tmp_path / "profiles.yml").write_text(
        json.dumps({"collection_autofill": {"target": "test", "outputs": {"test": target}}})
    )
    assert DBT is not None
    quiet = {"DBT_SEND_ANONYMOUS_USAGE_STATS": "false", "DBT_LOG_PATH": str(tmp_path), "DBT_VERSION_CHECK": "false"}
    built = subprocess.run(
        [Path(DBT).absolute(), "--no-use-colors", "build", "--project-dir", project, "--profiles-dir", tmp_path],
        capture_output=True, text=True, timeout=110, check=False, env=os.environ | quiet,
    )  # fmt: skip
    assert built.returncode == 0, built.stdout + built.stderr
    assert f"PASS={len(VIEWS) + 1 + len(rule_names())} WARN=0 ERROR=0 SKIP=0" in built.stdout, built.stdout
    assert connection.execute("select count(*) from analytics.mine").fetchone() == (2,)
    assert connection.execute("select count(*) from analytics.cell_status").fetchone() == (4,)
