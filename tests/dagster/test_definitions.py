"""The code location: loads without a database, names what it should, and its YAML's mistakes come with their line."""

from pathlib import Path

import dagster as dg
import pytest
from dagster.components.testing import create_defs_folder_sandbox

from autofill_defs import reports
from autofill_defs.components.collection import CollectionComponent
from autofill_defs.definitions import defs
from cell_engine.errors import AutofillError, SpecError
from cell_engine.store.reading import ShownCell


@pytest.fixture(autouse=True)
def no_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOFILL_HOME", str(tmp_path))
    monkeypatch.setenv("AUTOFILL_DATABASE_URL", f"postgresql:///none?host={tmp_path}")


@pytest.fixture
def demo() -> dg.Definitions:
    return defs()


def test_the_code_location_is_loadable(demo: dg.Definitions) -> None:
    dg.Definitions.validate_loadable(demo)


def test_columns_are_assets_with_the_collections_dag(demo: dg.Definitions) -> None:
    nodes = {node.key.to_user_string(): node for node in demo.resolve_asset_graph().asset_nodes}
    assert {"demo/packages/rows", "demo/packages/summary", "demo/packages/audience"} <= nodes.keys()
    rows, summary, audience = (nodes[f"demo/packages/{name}"] for name in ("rows", "summary", "audience"))
    assert rows.is_external
    assert audience.parent_keys == {summary.key}
    assert summary.parent_keys == {rows.key}
    partitions = {node.partitions_def for node in nodes.values() if node.key.path[0] == "demo"}
    assert partitions == {dg.DynamicPartitionsDefinition(name="demo/packages")}
    assert summary.kinds == {"llm", "postgres"}
    assert len(str(summary.code_version)) == 32
    assert "{{readme}}" in str(summary.description)


def test_a_run_is_one_step_in_its_own_process(demo: dg.Definitions) -> None:
    assert demo.resolve_job_def("__ASSET_JOB").executor_def is dg.in_process_executor
    job = demo.resolve_job_def("demo__packages")
    assert job.executor_def is dg.in_process_executor
    assert [node.name for node in job.graph.nodes] == ["fill_demo__packages"]


def test_sensors_run_by_default(demo: dg.Definitions) -> None:
    sensors = {sensor.name: sensor.default_status for sensor in demo.sensors or ()}
    assert sensors == {
        "demo__packages__checks": dg.DefaultSensorStatus.RUNNING,
        "demo__packages__inbox": dg.DefaultSensorStatus.RUNNING,
        "changes": dg.DefaultSensorStatus.RUNNING,
        "followup": dg.DefaultSensorStatus.RUNNING,
        "janitor": dg.DefaultSensorStatus.RUNNING,
        "retention": dg.DefaultSensorStatus.RUNNING,
    }


def test_checks_are_jobs_that_fill_nothing_and_only_the_rules_are_asked_by_a_run_every_hour(
    demo: dg.Definitions,
) -> None:
    [rules] = [one for one in demo.schedules or () if isinstance(one, dg.ScheduleDefinition)]
    assert (rules.name, rules.default_status) == ("autofill__rules", dg.DefaultScheduleStatus.RUNNING)
    assert str(rules.cron_schedule).endswith(" * * * *")
    for name, node in (("demo__packages__checks", "check_demo__packages"), ("autofill__rules", "autofill_rules")):
        assert [one.name for one in demo.resolve_job_def(name).graph.nodes] == [node]


def build(tmp_path: Path, spec: str, **attributes: object) -> dg.Definitions:
    file = tmp_path / "spec.yaml"
    file.write_text(spec)
    with create_defs_folder_sandbox() as sandbox:
        folder = sandbox.scaffold_component(
            component_cls=CollectionComponent,
            defs_yaml_contents={
                "type": "autofill_defs.components.collection.CollectionComponent",
                "attributes": {"spec": str(file), **attributes},
            },
        )
        with sandbox.load_component_and_build_defs(defs_path=folder) as (_, built):
            return built


def test_a_component_is_one_yaml_and_names_its_inbox(tmp_path: Path) -> None:
    spec = "namespace: n\nname: c\ncolumns:\n  - {name: a, type: text}\n"
    for attributes, inbox in (
        ({}, tmp_path / "inbox" / "n" / "c"),
        ({"inbox": "mine"}, tmp_path / "mine"),
        ({"inbox": str(tmp_path / "elsewhere")}, tmp_path / "elsewhere"),
    ):
        built = build(tmp_path, spec, **attributes)
        rows = built.resolve_asset_graph().get(dg.AssetKey(["n", "c", "rows"]))
        assert rows.metadata["inbox"].value == str(inbox)
        assert [sensor.name for sensor in built.sensors or ()] == ["n__c__inbox"]


def test_a_component_says_where_rows_come_from_and_the_table_goes_and_what_checks_block(tmp_path: Path) -> None:
    spec = (
        "namespace: n\nname: c\ncolumns:\n  - {name: a, type: text}\n"
        "  - {name: b, type: text, kind: llm, llm: {model: m, prompt: '{{a}}', evidence: required}}\n"
    )
    declared = {"error_rate": {"max": 0.02, "blocking": True}, "freshness": {"within": "15m"}}
    built = build(tmp_path, spec, parquet="mine", checks=declared, rows_from="raw/texts")
    raw = dg.Definitions(assets=[dg.AssetSpec(["raw", "texts"])])
    graph = dg.Definitions.merge(built, raw).resolve_asset_graph()
    assert graph.get(dg.AssetKey(["n", "c", "table"])).metadata["parquet"].value == str(tmp_path / "mine")
    assert graph.get(dg.AssetKey(["n", "c", "load"])).parent_keys == {dg.AssetKey(["raw", "texts"])}
    specs = {key.name: graph.get_check_spec(key) for key in graph.asset_check_keys}
    assert {name: one.blocking for name, one in specs.items()} == {
        "error_rate": True, "evidence": False, "freshness": False,
    }  # fmt: skip
    assert "At most 2.0%" in str(specs["error_rate"].description)
    assert "15m" in str(specs["freshness"].description)


def test_a_mistake_in_the_yaml_comes_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(Exception) as raised:
        build(tmp_path, "namespace: n\nname: c\ncolumns:\n  - {name: a, type: nosuch}\n")
    error: BaseException | None = raised.value
    while error is not None and not isinstance(error, SpecError):
        error = error.__cause__ or error.__context__
    assert isinstance(error, SpecError)
    assert "spec.yaml:4: " in str(error)


def test_the_namespaces_file_beside_the_yaml_counts(tmp_path: Path) -> None:
    (tmp_path / "namespace.yaml").write_text("namespace: n\nllm: {model: shared-model}\n")
    built = build(
        tmp_path,
        "namespace: n\nname: c\ncolumns:\n  - {name: a, type: text}\n"
        "  - {name: b, type: text, kind: llm, llm: {prompt: '{{a}}'}}\n",
    )
    described = [str(node.description) for node in built.resolve_asset_graph().asset_nodes]
    assert any("shared-model" in description for description in described), described


@pytest.mark.parametrize(("name", "given"), [("rows", {}), ("table", {}), ("load", {"rows_from": "raw"})])
def test_no_column_takes_another_assets_place(tmp_path: Path, name: str, given: dict[str, str]) -> None:
    with pytest.raises(Exception) as raised:
        build(tmp_path, f"namespace: n\nname: c\ncolumns:\n  - {{name: {name}, type: text}}\n", **given)
    error: BaseException | None = raised.value
    while error is not None and not isinstance(error, AutofillError):
        error = error.__cause__ or error.__context__
    assert f"no column can be called {name!r}" in str(error)


def test_a_column_under_review_says_so(tmp_path: Path) -> None:
    spec = (
        "namespace: n\nname: c\ncolumns:\n  - {name: a, type: text}\n"
        "  - {name: b, type: list, items: text, kind: llm, review: required, llm: {model: m, prompt: '{{a}}'}}\n"
        "  - {name: n, type: integer, kind: llm, llm: {model: m, prompt: '{{a}}'}}\n"
    )
    described = {
        node.key.path[-1]: node.description for node in build(tmp_path, spec).resolve_asset_graph().asset_nodes
    }
    assert str(described["b"]).startswith("A list of text by `llm`, from `a`.")
    assert str(described["n"]).startswith("An integer by")
    assert "Answers are shown once a person has accepted them" in str(described["b"])


def test_a_preview_shows_what_people_see_and_no_answer_that_waits_for_review() -> None:
    under = ("proposed", "waits for review", "m", False)
    cells = [
        ShownCell(1, 1, "mine", "overridden", *under, None),
        ShownCell(2, 1, None, "proposed", *under, None, proposed="secret"),
        ShownCell(3, 1, None, "not_found", None, None, "m", False, {"not_found": "not said"}),
    ]
    assert str(reports.preview(cells).value).splitlines()[2:] == [
        "| 1 | mine | overridden |  |",
        "| 2 | proposed: waits for review | proposed | m |",
        r"| 3 | not\_found: not said | not\_found | m |",
    ]
