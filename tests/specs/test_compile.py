import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from cell_engine.errors import SpecError
from cell_engine.specs.compile import CompiledSpec, SpecColumn, SpecDependency, compile_file, compile_text
from cell_engine.specs.settings_models import SETTINGS_MODELS, KindSettings, Text
from cell_engine.specs.types import ColumnType
from cell_engine.specs.version import Cache, Column, Dependency, Version

PACKAGES = """\
namespace: demo
name: packages
cap: 200
columns:
  - {name: readme, type: text}
  - {name: version, type: text}
  - id: summary
    name: short_text
    type: text
    kind: llm
    deps: [readme, {column: version, optional: true}]
    timeout: 60
    attempts: 2
    llm:
      model: gpt-5-mini
      prompt: |
        Summarise {this} in JSON {"a": 1}: {{ readme }}
        of version {{version}}
      system: Be brief.
      temperature: 0
      max_tokens: 300
      seed: 1
  - name: words
    type: integer
    kind: function
    mode: never
    deps: [readme]
    function: {name: cell_engine.demo.functions:word_count}
  - {name: audience, type: choice, choices: [yes, no, 0870], kind: llm, llm: {model: m, prompt: "For {{short_text}}?"}}
  - {name: tags, type: list, kind: llm, llm: {model: m, prompt: "Tags of {{short_text}} {{words}}"}}
"""


@pytest.fixture
def packages() -> CompiledSpec:
    return compile_text(PACKAGES)


def problems(text: str) -> list[tuple[int, str]]:
    with pytest.raises(SpecError) as error:
        compile_text(text, "f.yaml")
    assert error.value.exit_code == 2
    assert all(problem.file == "f.yaml" for problem in error.value.problems)
    return [(problem.line, problem.message) for problem in error.value.problems]


# What it compiles to.


def test_columns_by_key_with_defaults_filled_in(packages: CompiledSpec) -> None:
    assert (packages.namespace, packages.name, packages.cap) == ("demo", "packages", 200)
    readme, _, summary, words, audience, tags = packages.columns
    assert readme == SpecColumn("readme", "readme", ColumnType("text"), None, "never", (), 0.0, 0, {})
    assert summary == SpecColumn(
        key="summary",
        name="short_text",
        type=ColumnType("text"),
        kind="llm",
        mode="on_change",
        deps=(SpecDependency("readme", optional=False), SpecDependency("version", optional=True)),
        timeout=60.0,
        attempts=2,
        settings={
            "model": "gpt-5-mini",
            "prompt": [
                'Summarise {this} in JSON {"a": 1}: ',
                {"column": "readme"},
                "\nof version ",
                {"column": "version"},
            ],
            "system": "Be brief.",
            "temperature": 0.0,
            "max_tokens": 300,
            "seed": 1,
        },
        cache=Cache(),
    )
    assert (words.mode, words.timeout, words.attempts) == ("never", 30.0, 4)
    assert words.settings == {"name": "cell_engine.demo.functions:word_count"}
    assert (audience.mode, audience.timeout, audience.attempts) == ("on_change", 120.0, 4)
    assert audience.type == ColumnType("choice", ("yes", "no", "0870"))
    assert audience.deps == (SpecDependency("summary", optional=False),)
    assert tags.type == ColumnType("list", items="text")
    assert [dep.column for dep in tags.deps] == ["summary", "words"]


def test_binding_puts_numeric_ids_everywhere(packages: CompiledSpec) -> None:
    ids = {"readme": 11, "version": 12, "summary": 13, "words": 14, "audience": 15, "tags": 16}
    columns = packages.bind(ids)
    assert [column.id for column in columns] == [11, 12, 13, 14, 15, 16]
    summary = columns[2]
    assert summary.deps == (Dependency(11, optional=False), Dependency(12, optional=True))
    assert summary.settings["prompt"] == [
        'Summarise {this} in JSON {"a": 1}: ',
        {"column": 11},
        "\nof version ",
        {"column": 12},
    ]
    assert packages.columns[2].settings["prompt"] != summary.settings["prompt"]
    version = Version(1, 1, columns)
    assert [column.name for column in version.computed] == ["short_text", "words", "audience", "tags"]
    assert [Column.from_json(column.to_json()) for column in columns] == list(columns)
    with pytest.raises(KeyError):
        packages.bind({"readme": 1})


def test_input_columns_alone_are_a_collection() -> None:
    spec = compile_text("namespace: n\nname: c\ncolumns: [{name: a, type: json}]")
    assert spec.cap is None
    assert [column.kind for column in spec.columns] == [None]


def test_lists_of_choices() -> None:
    spec = compile_text("namespace: n\nname: c\ncolumns: [{name: a, type: list, items: choice, choices: [x, y]}]")
    assert spec.columns[0].type == ColumnType("list", ("x", "y"), "choice")


def test_names_and_keys_may_be_swapped() -> None:
    spec = compile_text("namespace: n\nname: c\ncolumns: [{id: a, name: b, type: text}, {id: b, name: a, type: text}]")
    assert [(column.key, column.name) for column in spec.columns] == [("a", "b"), ("b", "a")]


# Hashes.


def hashes(spec: CompiledSpec) -> dict[str, bytes]:
    assert all(len(column.hash) == 16 for column in spec.columns)
    return {column.key: column.hash for column in spec.columns}


def test_hashes_are_pinned(packages: CompiledSpec) -> None:
    # They are stored, and part of each cell's fingerprint: another way to hash recomputes every cell there is.
    assert packages.hash.hex() == "6ff5f7d891648b156aa7defe19517ea5"
    assert hashes(packages)["summary"].hex() == "106c6c779abf0761ad791847c2d4c6f7"
    assert hashes(packages)["readme"].hex() == "d12b9fb83a0a26beec58c0327224a6ca"


def shuffled(value: Any, draw: st.DrawFn) -> Any:
    if isinstance(value, dict):
        return {key: shuffled(value[key], draw) for key in draw(st.permutations(list(value)))}
    if isinstance(value, list):
        return [shuffled(item, draw) for item in value]
    return value


@st.composite
def rewritten(draw: st.DrawFn) -> str:
    """The same spec as another author would write it: keys in any order, other quotes, styles and comments."""
    data = shuffled(yaml.load(PACKAGES, yaml.BaseLoader), draw)
    text = yaml.dump(
        _typed(data),
        sort_keys=False,
        default_flow_style=draw(st.sampled_from([None, True, False])),
        width=draw(st.sampled_from([20, 80, 1000])),
        allow_unicode=True,
    )
    return "# rewritten\n" + text + "\n# end\n"


def _typed(value: Any) -> Any:
    """BaseLoader's texts with the numbers and booleans of the original."""
    if isinstance(value, dict):
        return {key: _typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_typed(item) for item in value]
    return {"200": 200, "60": 60, "2": 2, "0": 0, "300": 300, "1": 1, "true": True}.get(value, value)


@given(rewritten())
def test_how_the_yaml_is_written_changes_nothing(text: str) -> None:
    assert compile_text(text).normalized == compile_text(PACKAGES).normalized
    assert compile_text(text).hash == compile_text(PACKAGES).hash


def test_order_of_deps_and_spelled_out_defaults_change_nothing(packages: CompiledSpec) -> None:
    text = PACKAGES.replace(
        "deps: [readme, {column: version, optional: true}]",
        "deps: [{optional: true, column: version}, {column: readme, optional: false}]\n    mode: on_change",
    ).replace("{name: readme, type: text}", "{name: readme, id: readme, type: text, kind: null}")
    assert text != PACKAGES
    assert compile_text(text).hash == packages.hash


def test_what_is_done_with_an_input_that_was_not_found_is_part_of_the_definition_where_it_is_not_as_usual() -> None:
    def of(dep: str) -> SpecColumn:
        return compile_text(f"{HEAD}  - {{name: b, type: text, deps: [{dep}], {LLM}}}").columns[1]

    assert of("a").hash == of("{column: a, not_found: skip}").hash
    assert of("{column: a, optional: true}").hash == of("{column: a, optional: true, not_found: run}").hash
    different = ("a", "{column: a, optional: true}", "{column: a, not_found: run}", "{column: a, not_found: propagate}",
                 "{column: a, optional: true, not_found: skip}")  # fmt: skip
    assert len({of(dep).hash for dep in different}) == len(different)
    (dep,) = Column.from_json(
        compile_text(f"{HEAD}  - {{name: b, type: text, deps: [{different[3]}], {LLM}}}")
        .bind({"a": 1, "b": 2})[1]
        .to_json()
    ).deps
    assert dep == Dependency(1, optional=False, not_found="propagate")


def test_a_rename_makes_a_new_version_and_recomputes_nothing(packages: CompiledSpec) -> None:
    renamed = compile_text(PACKAGES.replace("short_text", "abstract"))
    assert renamed.hash != packages.hash
    assert hashes(renamed) == hashes(packages)
    text = PACKAGES.replace("{name: readme,", "{id: readme, name: long_text,")
    renamed = compile_text(re.sub(r"\breadme(?=\]|,\s*\{col| *\}\})", "long_text", text))
    assert renamed.columns[0].name == "long_text"
    assert renamed.hash != packages.hash
    assert hashes(renamed) == hashes(packages)


@pytest.mark.parametrize(
    ("kind", "setting", "cache"),
    [
        ("llm", "", Cache()),
        ("llm", "cache: null, ", Cache()),
        ("llm", "cache: true, ", Cache()),
        ("llm", "cache: false, ", None),
        ("llm", "cache: {ttl: 7d}, ", Cache(7 * 86_400.0)),
        ("llm", "cache: {ttl: 90s}, ", Cache(90.0)),
        ("function", "", None),
        ("function", "cache: true, ", Cache()),
        ("function", "cache: {ttl: 12h}, ", Cache(12 * 3600.0)),
    ],
)
def test_llm_columns_are_cached_and_functions_are_not_unless_they_say_so(
    kind: str, setting: str, cache: Cache | None
) -> None:
    settings = {"llm": "{model: m, prompt: x}", "function": "{name: 'm:f'}"}[kind]
    head = "namespace: n\nname: c\ncolumns:\n  - {name: a, type: text}\n"

    def compiled(setting: str) -> CompiledSpec:
        return compile_text(f"{head}  - {{name: b, type: text, kind: {kind}, deps: [a], {setting}{kind}: {settings}}}")

    spec = compiled(setting)
    (_, column) = spec.bind({"a": 1, "b": 2})
    assert column.cache == cache
    assert Column.from_json(column.to_json()) == column
    # what says no more than the kind does is the version it was before there was a cache
    assert (spec.hash == compiled("").hash) == (cache == compiled("").columns[1].cache)
    before = {key: value for key, value in column.to_json().items() if key != "cache"}
    assert Column.from_json(before).cache == (Cache() if kind == "llm" else None)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("timeout: 60", "timeout: 61"),
        ("attempts: 2", "attempts: 3"),
        ("attempts: 2", "cache: false"),
        ("attempts: 2", "cache: {ttl: 7d}"),
        ("mode: never", "cache: true"),
        ("mode: never", "mode: on_change"),
        ("cap: 200", "cap: 201"),
    ],
)
def test_how_a_column_is_run_is_not_its_definition(packages: CompiledSpec, old: str, new: str) -> None:
    changed = compile_text(PACKAGES.replace(old, new))
    assert changed.hash != packages.hash
    assert hashes(changed) == hashes(packages)


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("name: short_text\n    type: text", "name: short_text\n    type: json", "summary"),
        ("model: gpt-5-mini", "model: gpt-5", "summary"),
        ("Summarise", "Sum up", "summary"),
        ("of version {{version}}", "of version {{readme}}", "summary"),
        ("optional: true", "optional: false", "summary"),
        ("temperature: 0", "temperature: 1", "summary"),
        ("word_count", "line_count", "words"),
        ("[yes, no, 0870]", "[yes, no]", "audience"),
        ("type: list,", "type: list, items: url,", "tags"),
    ],
)
def test_a_changed_definition_changes_that_column_alone(packages: CompiledSpec, old: str, new: str, key: str) -> None:
    before, after = hashes(packages), hashes(compile_text(PACKAGES.replace(old, new)))
    assert {column for column in before if before[column] != after[column]} == {key}


# Mistakes.

HEAD = "namespace: n\nname: c\ncolumns:\n  - {name: a, type: text}\n"  # what follows is line 5

LLM = "kind: llm, llm: {model: m, prompt: 'x {{a}}'}"

MISTAKES = [
    # types and choices
    ("- {name: b, type: txt}", "column 'b': type: expected .* got 'txt'; did you mean 'text'"),
    ("- {name: b}", "column 'b': 'type' is missing"),
    ("- {name: b, type: choice}", "type choice needs its choices"),
    ("- {name: b, type: list, items: choice}", "type choice needs its choices"),
    ("- {name: b, type: choice, choices: []}", "choices: .*at least 1"),
    ("- {name: b, type: choice, choices: [x, 1]}", r"choices\[1\]: expected text, got 1: put it in quotes"),
    ("- {name: b, type: choice, choices: [x, true]}", "expected text, got True: put it in quotes"),
    ("- {name: b, type: choice, choices: [Yes, yEs]}", "'Yes' and 'yEs' differ at most by case"),
    ("- {name: b, type: choice, choices: [x, x]}", "'x' and 'x' differ at most by case"),
    ("- {name: b, type: choice, choices: [' x']}", "spaces around"),
    ("- {name: b, type: choice, choices: ['']}", "empty"),
    ("- {name: b, type: text, choices: [x]}", "choices need type choice, not text"),
    ("- {name: b, type: text, items: text}", "only a list has items"),
    ("- {name: b, type: list, items: list}", "items: expected"),
    # names
    ("- {type: text}", "'name' is missing"),
    ("- {name: a, type: text}", "the column name 'a' is taken already, in line 4"),
    ("- {name: A, type: text}", "the column name 'A' differs only by case from 'a' in line 4"),
    ("- {name: b, id: a, type: text}", "the column id 'a' is taken already, in line 4"),
    ("- {name: b, id: A, type: text}", "the column id 'A' differs only by case from 'a' in line 4"),
    ("- {name: b c, type: text}", "'b c' is no name"),
    ("- {name: größe, type: text}", "'größe' is no name"),
    ("- {name: 1b, type: text}", "'1b' is no name"),
    ("- {name: '', type: text}", "'' is no name"),
    ("- {name: 'b\\n', type: text}", "is no name"),
    ("- {name: " + "b" * 64 + ", type: text}", "63 at most"),
    ("- {name: b, id: b-c, type: text}", "'b-c' is no name"),
    ("- {name: 5, type: text}", "name: expected text, got 5: put it in quotes"),
    ("- {name: null, type: text}", "name: should be a valid string, got nothing"),
    # keys
    ("- {name: b, type: text, knid: llm}", "unknown key 'knid'; did you mean 'kind'?"),
    ("- {name: b, type: text, LLM: {}}", "unknown key 'LLM'; did you mean 'llm'?"),
    (
        "- {name: b, type: text, xyzzy: 1}",
        "unknown key 'xyzzy'; known keys: attempts, cache, choices, cron, currency, deps,",
    ),
    ("- {name: b, type: text, type: json}", "the key 'type' is given twice"),
    ("- b", r"columns\[1\]: expected keys and values, got 'b'"),
    ("-", r"columns\[1\]: expected keys and values, got nothing"),
    # inputs
    ("- {name: b, type: text, deps: [a]}", "an input column .* takes no 'deps'"),
    ("- {name: b, type: text, mode: never}", "an input column .* takes no 'mode'"),
    ("- {name: b, type: text, timeout: 3}", "an input column .* takes no 'timeout'"),
    ("- {name: b, type: text, attempts: 3}", "an input column .* takes no 'attempts'"),
    ("- {name: b, type: text, llm: {model: m, prompt: x}}", "but no kind: add 'kind: llm'"),
    # kinds and their settings
    ("- {name: b, type: text, kind: lm, deps: [a]}", "unknown kind 'lm'; did you mean 'llm'?"),
    (
        "- {name: b, type: text, kind: xyzzy, deps: [a]}",
        "unknown kind 'xyzzy'; known kinds: llm, function, fetch, extract",
    ),
    ("- {name: b, type: text, kind: 3, deps: [a]}", "kind: expected text, got 3"),
    ("- {name: b, type: text, kind: llm, deps: [a]}", "kind llm needs its settings under 'llm': model, prompt"),
    ("- {name: b, type: text, kind: llm, deps: [a], llm: m}", "kind llm needs its settings under 'llm'"),
    ("- {name: b, type: text, " + LLM + ", function: {name: 'm:f'}}", "settings of kind function on a column of kind"),
    ("- {name: b, type: text, kind: llm, llm: {prompt: '{{a}}'}}", "llm: 'model' is missing"),
    ("- {name: b, type: text, kind: llm, llm: {model: m, prompt: '{{a}}', sytem: x}}", "did you mean 'system'"),
    ("- {name: b, type: text, kind: llm, llm: {model: ' ', prompt: '{{a}}'}}", "model: must not be blank"),
    ("- {name: b, type: text, kind: llm, llm: {model: 5, prompt: '{{a}}'}}", "model: expected text, got 5"),
    *(
        (f"- {{name: b, type: text, kind: llm, llm: {{model: m, prompt: '{{{{a}}}}', {setting}}}}}", message)
        for setting, message in [
            ("temperature: 3", "temperature: should be less than or equal to 2, got 3"),
            ("temperature: '1'", "temperature: should be a valid number, got '1'"),
            ("temperature: true", "temperature: should be a valid number, got True"),
            ("max_tokens: 0", "max_tokens: should be greater than or equal to 1"),
            ("max_tokens: 1.0", "max_tokens: should be a valid integer, got 1.0"),
            ("seed: x", "seed: should be a valid integer"),
            ("system: 'of {{a}}'", "system is the same for every row: refer to {{a}} in prompt"),
            ("base_url: 'ftp://x'", "base_url: expected an address such as https://host/v1$"),
            ("base_url: 'https://me:hunter2@host/v1'", "base_url: an address has no user, password or query here"),
            ("base_url: 'https://host/v1?key=hunter2'", "an address has no user, password or query here"),
            (
                "key: AUTOFILL_DATABASE_URL",
                "key: its name ends in KEY or TOKEN, and does not begin with AUTOFILL_ or AWS_",
            ),
            ("key: AWS_SECRET_ACCESS_KEY", "does not begin with AUTOFILL_ or AWS_"),
            ("key: key-sk", "never the key itself"),
            ("key: sk-hunter2hunter2", "key: expected the name of an environment variable in capitals, never the key"),
            ("reasoning_effort: huge", "reasoning_effort: expected 'none', .* got 'huge'"),
            ("evidence: yes", "evidence: expected 'required', got 'yes'"),
            ("not_found: 1", "not_found: should be a valid boolean"),
            ("examples: []", "examples: .*at least 1"),
            ("examples: [{inputs: {b: x}, output: y}]", "the prompt refers to no column 'b'"),
            ("examples: [{inputs: {a: x}, output: 3}]", "expected text, not an integer"),
            ("examples: [{inputs: {a: x}}]", "an example answers either output or not_found"),
            ("examples: [{inputs: {a: x}, output: y, not_found: z}]", "an example answers either output or not_found"),
            ("examples: [{inputs: {a: x}, not_found: z}]", "this column has to answer: say not_found: true"),
            ("examples: [{inputs: {a: x}, output: y, evidence: [{column: a, quote: x}]}]", "has no evidence"),
            ("evidence: required, examples: [{inputs: {a: x}, output: y}]", "needs evidence"),
            (
                "evidence: required, examples: [{inputs: {a: x}, output: y, evidence: [{column: a, quote: z}]}]",
                "'z' does not stand in its input",
            ),
        ]
    ),
    *(
        (f"- {{name: b, type: {type}, kind: llm, llm: {{model: m, prompt: '{{{{a}}}}'}}}}", message)
        for type, message in [
            ("text, unit: kg", "unit: only numbers have one, not type text"),
            ("number, unit: ' kg'", "' kg' is no unit"),
            ("number, unit: other", "'other' is no unit"),
            ("number, currency: euro", "currency: .*pattern"),
            ("number, currency: EUR, unit: kg", "unit and currency exclude each other"),
        ]
    ),
    ("- {name: b, type: text, kind: function, deps: [a], function: {}}", "function: 'name' is missing"),
    ("- {name: b, type: text, kind: function, deps: [a], function: {name: m.f}}", "expected module:callable"),
    ("- {name: b, type: text, kind: function, deps: [a], function: {name: 'm:'}}", "expected module:callable"),
    ("- {name: b, type: text, kind: function, deps: [a], function: {name: 'a-b:c'}}", "expected module:callable"),
    # cache
    ("- {name: b, type: text, cache: true}", "an input column .* takes no 'cache'"),
    ("- {name: b, type: text, cache: 7d, " + LLM + "}", r"cache: expected true, false or {ttl: 7d}, got '7d'"),
    ("- {name: b, type: text, cache: {}, " + LLM + "}", "'cache.ttl' is missing"),
    ("- {name: b, type: text, cache: {ttl: 7}, " + LLM + "}", "cache.ttl: '7' is no length of time: .* such as 12h"),
    ("- {name: b, type: text, cache: {ttl: 0s}, " + LLM + "}", "cache.ttl: '0s' is no length of time"),
    ("- {name: b, type: text, cache: {ttl: 91d}, " + LLM + "}", "90d at most"),
    ("- {name: b, type: integer, kind: fetch, deps: [a]}", "kind fetch makes values of type text or json"),
    ("- {name: b, type: text, kind: fetch}", "it reads no column"),
    ("- {name: b, type: text, kind: fetch, deps: [{column: a, optional: true}]}", "reads one column, its URL"),
    ("- {name: b, type: text, kind: fetch, deps: [a], fetch: {max_bytes: 0}}", "max_bytes: should be greater than"),
    ("- {name: b, type: text, kind: fetch, deps: [a], fetch: 3}", "kind fetch needs its settings under 'fetch'"),
    # mode, timeout, attempts
    ("- {name: b, type: text, mode: onchange, " + LLM + "}", "mode: expected 'on_change'.* did you mean 'on_change'?"),
    ("- {name: b, type: text, mode: 1, " + LLM + "}", "mode: expected 'on_change', 'cron' or 'never', got 1"),
    ("- {name: b, type: text, timeout: 0, " + LLM + "}", "timeout: should be greater than 0, got 0"),
    ("- {name: b, type: text, timeout: .inf, " + LLM + "}", "timeout: should be a valid number"),
    ("- {name: b, type: text, timeout: 1e999, " + LLM + "}", "timeout: should be"),
    ("- {name: b, type: text, attempts: 0, " + LLM + "}", "attempts: should be greater than or equal to 1"),
    # dependencies
    ("- {name: b, type: text, deps: [a, A], " + LLM + "}", "there is no column 'A'; did you mean 'a'?"),
    ("- {name: b, type: text, deps: [a, xyzzy], " + LLM + "}", "there is no column 'xyzzy'$"),
    ("- {name: b, type: text, deps: [a, b], " + LLM + "}", "column 'b': it reads itself"),
    ("- {name: b, type: text, deps: [a, {column: a, optional: true}], " + LLM + "}", "'a' is given twice"),
    ("- {name: b, type: text, deps: [a, 5], " + LLM + "}", r"deps\[1\]: expected keys and values, got 5"),
    ("- {name: b, type: text, deps: [{column: a, optonal: true}], " + LLM + "}", "did you mean 'optional'"),
    ("- {name: b, type: text, deps: [{column: a, optional: yes}], " + LLM + "}", "optional: should be a valid boolean"),
    (
        "- {name: b, type: text, deps: [{optional: true}], kind: function, function: {name: 'm:f'}}",
        "column' is missing",
    ),
    (
        "- {name: b, type: text, deps: [{column: a, not_found: pass}], " + LLM + "}",
        "not_found: expected 'skip', 'run' or 'propagate', got 'pass'",
    ),
    (
        "- {name: b, type: text, kind: fetch, deps: [{column: a, not_found: run}]}",
        "reads one column, its URL, which is not optional",
    ),
    ("- {name: b, type: text, deps: a, " + LLM + "}", "deps: should be a valid list, got 'a'"),
    ("- {name: b, type: text, kind: function, function: {name: 'm:f'}}", "it reads no column"),
    ("- {name: b, type: text, kind: function, deps: [], function: {name: 'm:f'}}", "it reads no column"),
    ("- {name: b, type: text, kind: llm, llm: {model: m, prompt: hello}}", "it reads no column"),
    ("- {name: b, type: text, deps: [], " + LLM + "}", "refers to {{a}}, which is not among the deps"),
    ("- {name: b, type: text, kind: llm, llm: {model: m, prompt: '{{aa}}'}}", "no column 'aa'; did you mean 'a'?"),
    ("- {name: b, type: text, kind: llm, llm: {model: m, prompt: '{{b}}'}}", "it reads itself"),
]


@pytest.mark.parametrize(("column", "message"), [pytest.param(*case, id=str(i)) for i, case in enumerate(MISTAKES)])
def test_a_mistake_in_a_column_is_one_problem_with_its_line(column: str, message: str) -> None:
    found = problems(f"{HEAD}  {column}\n")
    assert [line for line, _ in found] == [5], found
    assert re.search(message, found[0][1]), found


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "the file is empty"),
        ("# nothing\n", 1, "the file is empty"),
        ("- a", 1, "not a mapping"),
        ("namespace: n\nname: c\ncolumns: []\n", 3, "at least 1"),
        ("namespace: n\nname: c\ncolumns: a\n", 3, "should be a valid list"),
        ("namespace: n\nname: c\n", 1, "'columns' is missing"),
        ("name: c\ncolumns: [{name: a, type: text}]", 1, "'namespace' is missing"),
        ("namespace: n\nname: c d\ncolumns: [{name: a, type: text}]", 2, "'c d' is no name"),
        ("namespace: n\nname: c\ncap: 0\ncolumns: [{name: a, type: text}]", 3, "cap: should be greater"),
        ("namespace: n\nname: c\ncap: '5'\ncolumns: [{name: a, type: text}]", 3, "cap: should be a valid integer"),
        (
            "namespace: n\nname: c\ncapp: 1\ncolumns: [{name: a, type: text}]",
            3,
            "unknown key 'capp'; did you mean 'cap'",
        ),
        ("namespace: n\nname: [c\n", 3, "not valid YAML"),
    ],
)
def test_mistakes_around_the_columns(text: str, line: int, message: str) -> None:
    found = problems(text)
    assert [line for line, _ in found] == [line], found
    assert re.search(message, found[0][1])


def test_a_reference_in_a_block_has_its_own_line() -> None:
    found = problems(
        HEAD
        + """\
  - name: b
    type: text
    kind: llm
    deps: [a]
    llm:
      model: m
      prompt: |
        About {{a}},
        {literal} {{ nothing }}
        and {{c}} and {{c}}.
  - {name: c, type: text}
"""
    )
    assert found == [
        (13, "column 'b': there is no column 'nothing'"),
        (14, "column 'b': the prompt refers to {{c}}, which is not among the deps: add it there"),
    ]


def chain(*edges: str) -> str:
    """Function columns, one a line from line 5: `bcd` is b, which reads c and d."""
    column = "  - {{name: {}, type: text, kind: function, deps: [{}], function: {{name: 'm:f'}}}}\n"
    return HEAD + "".join(column.format(edge[0], ", ".join(edge[1:])) for edge in edges)


def test_a_cycle_is_shown_as_a_path() -> None:
    assert problems(chain("bc", "cb")) == [(5, "the columns form a cycle: b → c → b (each is read by the next)")]
    assert problems(chain("bad", "cb", "dc", "ed")) == [
        (5, "the columns form a cycle: b → c → d → b (each is read by the next)")
    ]


def test_every_cycle_that_shares_no_column_is_shown() -> None:
    found = problems(chain("bc", "cb", "de", "ef", "fda"))
    assert [line for line, _ in found] == [5, 7]
    assert "b → c → b" in found[0][1]
    assert "d → f → e → d" in found[1][1]


def test_a_cycle_through_prompts() -> None:
    text = HEAD + "".join(
        f"  - {{name: {name}, type: text, kind: llm, llm: {{model: m, prompt: 'x {{{{{dep}}}}}'}}}}\n"
        for name, dep in ("bc", "cb")
    )
    assert problems(text) == [(5, "the columns form a cycle: b → c → b (each is read by the next)")]


def test_a_long_chain_is_no_cycle() -> None:
    names = [f"c{n}" for n in range(1000)]
    text = HEAD + "".join(
        f"  - {{name: {name}, type: text, kind: function, deps: [{dep}], function: {{name: 'm:f'}}}}\n"
        for dep, name in zip(["a", *names], names, strict=False)
    )
    spec = compile_text(text)
    version = Version(1, 1, spec.bind({column.key: n for n, column in enumerate(spec.columns)}))
    assert version.dependents(0) == tuple(range(1, 1001))


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_file() -> None:
    found = problems(
        """\
namespace: my space
name: c
cap: none
columns:
  - {name: a, type: txt}
  - {name: A, type: text, mode: never}
  - name: b
    type: choice
    kind: llm
    deps: [c, nope]
    timeout: never
    llm:
      modle: m
      prompt: |
        {{a}}
        {{zzz}}
    name: again
  - {name: c, type: text, kind: function, deps: [b], function: {name: f}}
  - {name: d, type: text, kind: funktion, deps: [a]}
"""
    )
    lines = [line for line, _ in found]
    assert lines == sorted(lines)
    assert {1, 3, 5, 6, 8, 10, 11, 12, 13, 15, 16, 17, 18, 19} <= set(lines)
    assert any("my space" in message for _, message in found)
    assert any("form a cycle: b → c → b" in message for _, message in found)


def test_a_wrong_column_is_still_known_to_others() -> None:
    found = problems(f"{HEAD}  - {{name: b, type: txt}}\n  - {{name: c, type: text, deps: [a, b], {LLM}}}\n")
    assert [line for line, _ in found] == [5]


# Files.


def test_a_file_is_named_in_its_problems(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(PACKAGES.replace("type: integer", "type: int"), encoding="utf-8")
    with pytest.raises(SpecError) as error:
        compile_file(file)
    assert str(error.value).startswith(f"{file}:24: column 'words': type: expected 'text'")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_byte_order_marks_and_line_ends_change_nothing(
    tmp_path: Path, packages: CompiledSpec, encoding: str, line_end: str
) -> None:
    file = tmp_path / "c.yaml"
    file.write_bytes(PACKAGES.replace("\n", line_end).encode(encoding))
    assert compile_file(file).hash == packages.hash


@pytest.mark.parametrize(
    ("raw", "line", "message"),
    [
        (b"namespace: n\nname: caf\xe9\n", 2, "the byte 0xe9 is not UTF-8"),
        ("namespace: n".encode("utf-16"), 1, "not UTF-8"),
        (b"namespace: n\nname: a\x00b", 2, r"U\+0000 is not allowed"),
    ],
)
def test_files_that_are_no_text(tmp_path: Path, raw: bytes, line: int, message: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_bytes(raw)
    with pytest.raises(SpecError, match=message) as error:
        compile_file(file)
    assert [problem.line for problem in error.value.problems] == [line]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"none\.yaml:1: cannot be read: No such file"):
        compile_file(tmp_path / "none.yaml")
    with pytest.raises(SpecError, match="cannot be read: Is a directory"):
        compile_file(str(tmp_path))


@given(st.text(alphabet="namespcolut:[]{}-, \n'\"&*!|>#?1\x00") | st.text())
def test_whatever_the_text_it_compiles_or_names_the_problem(text: str) -> None:
    try:
        compile_text(text)
    except SpecError as error:
        assert error.problems
        assert all(1 <= problem.line <= text.count("\n") + 2 for problem in error.problems)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["a", "b", "text", "llm", "{{a}}", "on_change", "m:f"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["column", "model", "x"]), inner),
    max_leaves=4,
)
column_like = st.dictionaries(
    st.sampled_from(
        ["id", "name", "type", "choices", "items", "kind", "deps", "mode", "timeout", "attempts", "llm", "function"]
    ),
    json_like | st.fixed_dictionaries({"model": st.just("m"), "prompt": st.sampled_from(["{{a}}", "{{b}}"])}),
    max_size=7,
)


@given(st.lists(column_like | json_like, max_size=4))
def test_whatever_stands_in_the_columns_it_compiles_or_names_the_problem(columns: list[Any]) -> None:
    text = yaml.dump({"namespace": "n", "name": "c", "columns": columns})
    try:
        compile_text(text)
    except SpecError as error:
        assert all(problem.line >= 1 and problem.message for problem in error.problems)


# Kinds from elsewhere.


class LookUpSettings(KindSettings):
    default_timeout = 10.0
    prompt_fields = ("url", "fallback")

    url: Text
    fallback: Text | None = None
    retries: int = Field(3, ge=0)
    note: str = "see {{a}}"


@pytest.fixture
def look_up_kind() -> Iterator[None]:
    SETTINGS_MODELS["look_up"] = LookUpSettings
    yield
    del SETTINGS_MODELS["look_up"]


@pytest.mark.usefixtures("look_up_kind")
def test_a_kind_adds_its_settings_model() -> None:
    text = HEAD + "  - {name: b, type: text, kind: look_up, look_up: {url: 'https://a.b/{{a}}', note: x}}\n"
    column = compile_text(text).bind({"a": 1, "b": 2})[1]
    assert column.job_type == "look_up"
    assert column.timeout == 10.0
    assert column.settings == {"url": ["https://a.b/", {"column": 1}], "retries": 3, "note": "x"}
    assert problems(text.replace("look_up: {url", "look_up: {ulr"))[0][0] == 5


def test_where_a_function_is_called_is_another_version_of_the_same_definition() -> None:
    column = '{name: b, type: text, kind: function, deps: [a], function: {name: "m:f"WHERE}}'
    text = f"namespace: n\nname: x\ncolumns:\n  - {{name: a, type: text}}\n  - {column}\n"
    settings = ("", ", inline: true", ", process: true")
    without, inline, process = (compile_text(text.replace("WHERE", one)) for one in settings)
    assert len({without.hash, inline.hash, process.hash}) == 3
    assert hashes(without) == hashes(inline) == hashes(process)
    assert inline.bind({"a": 1, "b": 2})[1].settings["inline"] is True


@pytest.mark.parametrize(
    ("allowed", "name", "is_allowed"),
    [
        ("", "os:system", False),
        ("", "cell_engine.demo.functions:word_count", True),
        ("acme.cells", "acme.cells:f", True),
        ("acme.cells", "acme.cells:Class.f", True),
        ("acme.cells", "acme.cells.more:f", False),
        ("acme.cells", "acme.cells2:f", False),
        ("acme.cells", "acme:cells.f", False),
        ("other, acme.*", "acme.cells.more:f", True),
        ("acme.*", "acme:f", True),
        ("acme.*", "acmeous:f", False),
        ("acme.cells:f", "acme.cells:f", True),
        ("acme.cells:f", "acme.cells:g", False),
    ],
)
def test_a_spec_names_only_functions_that_the_operator_allows(
    monkeypatch: pytest.MonkeyPatch, allowed: str, name: str, is_allowed: bool
) -> None:
    monkeypatch.setenv("AUTOFILL_FUNCTIONS", allowed)
    text = HEAD + f"  - {{name: b, type: text, kind: function, deps: [a],\n     function: {{name: '{name}'}}}}\n"
    found = [] if is_allowed else problems(text)
    if is_allowed:
        compile_text(text)
    else:
        ((line, message),) = found
        assert line == HEAD.count("\n") + 2
        assert f"the function {name!r} is not allowed here" in message
        assert f"{name} alone, to AUTOFILL_FUNCTIONS" in message


def test_an_installed_package_offers_its_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cell_engine.specs.allowed._offered", lambda: ("acme.cells",))
    compile_text(HEAD + "  - {name: b, type: text, kind: function, deps: [a], function: {name: 'acme.cells:f'}}\n")


def test_a_call_has_one_place() -> None:
    settings = "{name: 'm:f', inline: true, process: true}"
    text = HEAD + f"  - {{name: b, type: text, kind: function, deps: [a], function: {settings}}}\n"
    assert "inline and process exclude each other" in problems(text)[0][1]


def test_a_fetch_needs_no_settings_and_reads_one_column() -> None:
    spec = """
namespace: test
name: pages
columns:
  - {name: url, type: url}
  - {name: other, type: url}
  - {name: page, type: text, kind: fetch, deps: [url]}
"""
    page = compile_text(spec).columns[2]
    assert (page.kind, page.timeout, dict(page.settings)) == ("fetch", 30, {})
    with pytest.raises(SpecError, match="kind fetch reads one column, its URL"):
        compile_text(spec.replace("deps: [url]", "deps: [url, other]"))


# A collection's settings for all its llm columns.

DEFAULTS = """namespace: n
name: c
llm: {model: m, base_url: "https://host/v1/", key: HOST_KEY, temperature: 0, system: Be brief.}
columns:
  - {name: a, type: text}
"""


def test_a_collections_llm_settings_are_those_of_its_columns_but_for_what_they_say() -> None:
    spec = compile_text(
        DEFAULTS
        + """
  - {name: b, type: text, kind: llm, llm: {prompt: "{{a}}"}}
  - {name: c, type: text, kind: llm, llm: {prompt: "{{a}}", model: other, temperature: null}}
"""
    )
    b, c = (dict(column.settings) for column in spec.columns[1:])
    shared = {"base_url": "https://host/v1", "key": "HOST_KEY", "system": "Be brief.", "prompt": [{"column": "a"}]}
    assert b == shared | {"model": "m", "temperature": 0.0}
    assert c == shared | {"model": "other"}


def test_the_address_is_part_of_the_definition_and_the_name_of_the_key_is_not() -> None:
    def of(more: str) -> CompiledSpec:
        return compile_text(
            f"{HEAD}  - {{name: b, type: text, kind: llm, llm: {{model: m, prompt: '{{{{a}}}}'{more}}}}}"
        )

    plain, keyed, addressed = of(""), of(", key: OTHER_KEY"), of(", base_url: 'https://host/v1'")
    assert plain.columns[1].hash == keyed.columns[1].hash != addressed.columns[1].hash
    assert plain.hash != keyed.hash


def test_mistakes_in_a_collections_llm_settings_are_said_once_where_they_stand() -> None:
    text = DEFAULTS.replace("temperature: 0", "temperature: 3").replace("Be brief.", "'Of {{a}}'")
    columns = "".join(f"  - {{name: {name}, type: text, kind: llm, llm: {{prompt: '{{{{a}}}}'}}}}\n" for name in "bc")
    assert problems(text + columns) == [
        (3, "llm: system is the same for every row: refer to {{a}} in prompt or map or reduce"),
        (3, "llm: temperature: should be less than or equal to 2, got 3"),
    ]
    assert problems(DEFAULTS.replace("model: m", "prompt: x") + "  - {name: b, type: number}\n")[0][0] == 3


def test_no_problem_repeats_a_key_that_was_written_where_its_name_belongs() -> None:
    for setting in ("key: sk-hunter2hunter2", "key: hunter2", "base_url: 'https://me:hunter2@host/v1'"):
        text = f"{HEAD}  - {{name: b, type: text, kind: llm, llm: {{model: m, prompt: '{{{{a}}}}', {setting}}}}}\n"
        assert "hunter2" not in str(problems(text))


def test_examples_are_kept_by_key_and_a_rename_changes_none() -> None:
    def of(name: str) -> SpecColumn:
        return compile_text(
            f"namespace: n\nname: c\ncolumns:\n  - {{id: a, name: {name}, type: text}}\n"
            f"  - {{name: b, type: date, kind: llm, llm: {{model: m, prompt: '{{{{{name}}}}}', not_found: true,"
            f" examples: [{{inputs: {{{name}: of May 1}}, output: 2024-05-01}},"
            " {inputs: {}, not_found: no date}]}}"
        ).columns[1]

    assert of("a").hash == of("renamed").hash
    assert of("a").settings["examples"] == [
        {"inputs": {"a": "of May 1"}, "output": "2024-05-01", "not_found": None, "evidence": []},
        {"inputs": {}, "output": None, "not_found": "no date", "evidence": []},
    ]


def test_another_type_of_an_input_is_another_version_and_no_other_definition_of_what_reads_it() -> None:
    """A column is given values, and these stay as they were loaded; where files lie is another matter."""

    def compiled(type_: str) -> CompiledSpec:
        return compile_text(
            "{namespace: n, name: c, columns: [{name: a, type: TYPE}, "
            "{name: b, type: text, kind: llm, llm: {model: m, prompt: 'x {{a}}'}}]}".replace("TYPE", type_)
        )

    text, integer, file = compiled("text"), compiled("integer"), compiled("file")
    assert text.hash != integer.hash
    assert text.columns[1].hash == integer.columns[1].hash
    assert text.columns[1].hash != file.columns[1].hash
