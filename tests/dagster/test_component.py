"""The component: what it declares of its assets, and what `dg scaffold defs` writes."""

import importlib
import tomllib
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster.components.core.package_entry import DG_PLUGIN_ENTRY_POINT_GROUP, get_package_objects_in_module
from dagster.components.testing import create_defs_folder_sandbox

from autofill_defs.components.collection import CollectionComponent
from cell_engine.errors import AutofillError
from tests.embedded.helpers import PROJECT

TYPE = "autofill_defs.components.collection.CollectionComponent"
SPEC = """\
namespace: n
name: c
key: [id]
feed: https://example.com/feed.xml
columns:
  - {name: id, type: text}
  - {name: doc, type: file}
  - name: kind
    type: choice
    choices: [letter, invoice]
    kind: function
    deps: [{column: id, optional: true, not_found: propagate}]
    function: {name: "tests.functions:length"}
"""


@pytest.fixture(autouse=True)
def no_database(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOFILL_HOME", str(tmp_path))
    monkeypatch.setenv("AUTOFILL_FUNCTIONS", "tests.functions.*")


def build(attributes: dict[str, Any], scaffold: dict[str, Any] | None = None) -> dg.Definitions:
    with create_defs_folder_sandbox() as sandbox:
        if scaffold is not None:
            folder = sandbox.scaffold_component(
                component_cls=CollectionComponent, defs_path="Support mails", scaffold_params=scaffold
            )
        else:
            folder = sandbox.scaffold_component(
                component_cls=CollectionComponent, defs_yaml_contents={"type": TYPE, "attributes": attributes}
            )
        with sandbox.load_component_and_build_defs(defs_path=folder) as (_, built):
            dg.Definitions.validate_loadable(built)
            return built


def test_owners_tags_and_group_are_those_of_all_assets_and_of_the_runs(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC)
    built = build(
        {
            "spec": str(tmp_path / "spec.yaml"),
            "owners": ["team:data", "me@example.com"],
            "tags": {"domain": "support"},
            "group": "mine",
            "max_error_rate": 0.2,
        }
    )
    nodes = {node.key.path[-1]: node for node in built.resolve_asset_graph().asset_nodes}
    assert nodes.keys() == {"rows", "kind", "table"}
    for node in nodes.values():
        assert list(node.owners) == ["team:data", "me@example.com"]
        assert node.tags["domain"] == "support"
        assert node.group_name == "mine"
    for name in ("n__c", "n__c__batches", "n__c__checks", "n__c__refresh"):
        assert built.resolve_job_def(name).tags["domain"] == "support"
    assert nodes["kind"].metadata["max_error_rate"] == 0.2


def test_an_asset_says_what_it_is_and_where_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text(SPEC)
    nodes = {node.key.path[-1]: node for node in build({"spec": str(file)}).resolve_asset_graph().asset_nodes}
    rows, kind = nodes["rows"], nodes["kind"]
    assert kind.group_name == rows.group_name == "n__c"
    assert kind.kinds == {"function", "postgres"}
    assert "`id` (optional, not found: propagate)" in str(kind.description)
    assert "https://example.com/feed.xml" in str(rows.description)
    assert [column.name for column in rows.metadata["dagster/column_schema"].columns] == ["id", "doc"]
    [schema] = kind.metadata["dagster/column_schema"].columns
    assert (schema.type, schema.constraints.other) == ("choice", ["one of: letter, invoice"])
    references = kind.metadata["dagster/code_references"].code_references
    assert (str(file), 8) in {(one.file_path, one.line_number) for one in references}
    assert SPEC.splitlines()[7] == "  - name: kind"


def test_the_catalogue_of_components_finds_it() -> None:
    """Dagster's UI goes by the entry point alone, and by what stands in that very module."""
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["entry-points"]
    [module] = declared[DG_PLUGIN_ENTRY_POINT_GROUP].values()
    found = dict(get_package_objects_in_module(importlib.import_module(module)))
    assert found == {"CollectionComponent": CollectionComponent}
    assert f"{module}.CollectionComponent" == TYPE
    schema = CollectionComponent.get_model_cls().model_json_schema()  # type: ignore[union-attr]
    assert [name for name, of in schema["properties"].items() if not of.get("description")] == []


def test_bad_attributes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC)
    for attributes, named in (
        ({"max_error_rate": 1.5}, "max_error_rate"),
        ({"owners": ["not an owner"]}, "not an owner"),
        ({"nosuch": 1}, "nosuch"),
    ):
        with pytest.raises(Exception) as raised:
            build({"spec": str(tmp_path / "spec.yaml"), **attributes})
        said = ""
        error: BaseException | None = raised.value
        while error is not None:
            said += str(error)
            error = error.__cause__ or error.__context__
        assert named in said


def test_what_is_scaffolded_loads_as_it_is() -> None:
    built = build({}, {"namespace": "shop"})
    keys = {node.key.to_user_string() for node in built.resolve_asset_graph().asset_nodes}
    assert keys == {f"shop/support_mails/{name}" for name in ("rows", "summary", "topic", "table")}


@pytest.mark.parametrize("written", ["yaml", "python"])
def test_scaffolding_writes_either_form_and_over_nobodys_work(tmp_path: Path, written: Any) -> None:
    from autofill_defs.components.scaffolding import CollectionParams, CollectionScaffolder

    folder = tmp_path / "3 things"
    request = dg.ScaffoldRequest(TYPE, folder, written, None, CollectionParams())
    CollectionScaffolder().scaffold(request)
    files = {file.name: file.read_text() for file in folder.iterdir()}
    assert files.keys() == {"collection.yaml", "component.py" if written == "python" else "defs.yaml"}
    assert "name: collection_3_things" in files["collection.yaml"]
    if written == "python":
        compile(files["component.py"], "component.py", "exec")
        assert 'CollectionComponent(spec="collection.yaml")' in files["component.py"]
    with pytest.raises(AutofillError, match="exists"):
        CollectionScaffolder().scaffold(request)
