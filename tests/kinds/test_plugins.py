"""Kinds that other packages add, by what an installer writes of them: no package is installed for it."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cell_engine.errors import NotFoundError, SpecError
from cell_engine.kinds import JOB_TYPES, Answer, Failure, make_kinds, registry
from cell_engine.specs import plugins
from cell_engine.specs.compile import compile_text
from cell_engine.specs.settings_models import SETTINGS_MODELS
from tests.kinds.helpers import INTEGER, TEXT, call, column

EXAMPLE = Path(__file__).parents[2] / "examples" / "autofill-pattern"
SPEC = """
namespace: test
name: mails
columns:
  - {name: mail, type: text}
  - {name: number, type: text, kind: pattern, deps: [mail], pattern: {find: 'INV-(?P<no>[0-9]+)', group: no}}
"""

pytestmark = pytest.mark.anyio

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Lays down what pip writes of a package: its name, version and entry points."""
    known = dict(SETTINGS_MODELS)

    def install(name: str, points: dict[str, str], version: str = "1.0") -> None:
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        lines = [f"{left} = {right}" for left, right in points.items()]
        (folder / "entry_points.txt").write_text("\n".join([f"[{plugins.GROUP}]", *lines, ""]))
        plugins.load.cache_clear()

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(EXAMPLE)
    yield install
    plugins.load.cache_clear()
    for added in SETTINGS_MODELS.keys() - known.keys():
        del SETTINGS_MODELS[added]
    sys.modules.pop("autofill_pattern", None)


@pytest.fixture
def example(install: Install) -> None:
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    install(project["name"], project["entry-points"]["autofill.kinds"], project["version"])


@pytest.mark.usefixtures("example")
async def test_the_example_is_a_kind_like_the_engines_own() -> None:
    compiled = compile_text(SPEC).columns[1]
    assert (compiled.kind, compiled.timeout, dict(compiled.settings)) == (
        "pattern",
        5.0,
        {"find": "INV-(?P<no>[0-9]+)", "group": "no"},
    )
    with pytest.raises(SpecError, match=r":6: column 'number': pattern: find: no regular expression: missing \)"):
        compile_text(SPEC.replace("[0-9]+)", "[0-9]+"))
    with pytest.raises(SpecError, match="the pattern has no group 'number'"):
        compile_text(SPEC.replace("group: no", "group: number"))
    with pytest.raises(SpecError, match=r"unknown key 'fnd'; did you mean 'find'\?"):
        compile_text(SPEC.replace("find:", "fnd:"))
    kinds = make_kinds()
    assert kinds.keys() == {*JOB_TYPES, "pattern"}
    kind = kinds["pattern"]
    found = column("pattern", INTEGER, compiled.settings)
    assert await kind.compute(call(found, "about INV-42")) == Answer(42)
    assert await kind.compute(call(found, "about nothing")) == Failure(
        "bad_input", "the text has nothing that the pattern finds"
    )
    for_ever = call(column("pattern", TEXT, {"find": "(a+)+$"}), "a" * 60 + "b", deadline=0.2)
    late = await kind.compute(for_ever)
    assert isinstance(late, Failure)
    assert late.error_class == "transient"
    for one in kinds.values():
        await one.close()


@pytest.mark.usefixtures("example")
@pytest.mark.parametrize(
    ("points", "name", "why"),
    [
        ({"away": "no_such_module_at_all:plugin"}, "away", "No module named 'no_such_module_at_all'"),
        ({"away": "autofill_pattern:no_such"}, "away", "no_such"),
        ({"odd": "autofill_pattern:PatternKind"}, "odd", "is no cell_engine.specs.plugins.KindPlugin but type"),
        ({"deps": "autofill_pattern:plugin"}, "deps", "'deps' cannot be a kind"),
        ({"llm": "autofill_pattern:plugin"}, "llm", "'llm' cannot be a kind"),
        ({"two-words": "autofill_pattern:plugin"}, "two-words", "'two-words' cannot be a kind"),
        ({"pattern": "autofill_pattern:plugin"}, "pattern", "more than one installed package adds it"),
        ({"bad": "tests.kinds.test_plugins:not_settings"}, "bad", "its settings are no subclass of"),
    ],
)
async def test_a_broken_one_is_named_and_stops_no_other(
    install: Install, monkeypatch: pytest.MonkeyPatch, points: dict[str, str], name: str, why: str
) -> None:
    install("acme-kinds", points)
    told: list[dict[str, str]] = []
    monkeypatch.setattr(registry.log, "warning", lambda _, **fields: told.append(fields))
    kinds = make_kinds()
    assert kinds.keys() == {*JOB_TYPES, "pattern"} - ({"pattern"} & {name})
    assert [one["kind"] for one in told] == [name]
    assert why in told[0]["why"]
    if name != "pattern":
        assert told[0]["why"].startswith("package acme-kinds 1.0: ")
        compile_text(SPEC)
    if name not in JOB_TYPES:
        with pytest.raises(NotFoundError, match=f"{name}' is left out: .*{re.escape(why)}"):
            make_kinds([name])
    if name in ("away", "bad"):
        with pytest.raises(SpecError, match=f"the kind {name} does not work: package acme-kinds 1.0: "):
            compile_text(SPEC.replace("kind: pattern", f"kind: {name}"))
    for kind in kinds.values():
        await kind.close()


@pytest.mark.usefixtures("example")
@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("cannot_be_made", "Kind 'late' cannot be made: ValueError: no key"),
        ("no_kind", "Kind 'late' is no cell_engine.kinds.base.Kind: it lacks check, at_once, provider, compute, close"),
        ("other_name", "it is named 'pattern'"),
    ],
)
async def test_a_kind_that_cannot_be_made_is_left_out(
    install: Install, monkeypatch: pytest.MonkeyPatch, value: str, why: str
) -> None:
    install("acme-kinds", {"late": f"tests.kinds.test_plugins:{value}"})
    told: list[dict[str, str]] = []
    monkeypatch.setattr(registry.log, "warning", lambda _, **fields: told.append(fields))
    kinds = make_kinds()
    assert "late" not in kinds and "pattern" in kinds
    assert why in told[0]["why"]
    for kind in kinds.values():
        await kind.close()


def _fails() -> None:
    raise ValueError("no key")


def _pattern() -> object:
    return __import__("autofill_pattern").PatternKind()


not_settings = plugins.KindPlugin(dict, _fails)  # type: ignore[arg-type]
cannot_be_made = plugins.KindPlugin(SETTINGS_MODELS["fetch"], _fails)
no_kind = plugins.KindPlugin(SETTINGS_MODELS["fetch"], object)
other_name = plugins.KindPlugin(SETTINGS_MODELS["fetch"], _pattern)
