"""What the collections of a namespace share: a file beside theirs, below what the collection and the column say."""

from pathlib import Path

import pytest

from cell_engine.errors import SpecError
from cell_engine.specs.compile import CompiledSpec, compile_file

NAMESPACE = """# shared
namespace: shop
llm: {model: wide, temperature: 0, seed: 7, key: SHOP_KEY, base_url: "https://host/v1", reasoning_effort: low}
"""
COLLECTION = """namespace: shop
name: reviews
llm: {model: near, temperature: null}
columns:
  - {name: a, type: text}
  - {name: b, type: text, kind: llm, llm: {prompt: "{{a}}"}}
  - {name: c, type: text, kind: llm, llm: {prompt: "{{a}}", model: own, seed: null}}
"""


def compiled(folder: Path, shared: str | bytes | None, collection: str = COLLECTION) -> CompiledSpec:
    file = folder / "reviews.yaml"
    file.write_text(collection, encoding="utf-8")
    if shared is not None:
        (folder / "namespace.yaml").write_bytes(shared if isinstance(shared, bytes) else shared.encode())
    return compile_file(file)


def problems(folder: Path, shared: str | bytes, collection: str = COLLECTION) -> list[tuple[str, int, str]]:
    with pytest.raises(SpecError) as error:
        compiled(folder, shared, collection)
    return [(Path(one.file).name, one.line, one.message) for one in error.value.problems]


def test_a_column_goes_before_its_collection_and_that_before_the_namespace(tmp_path: Path) -> None:
    b, c = (dict(column.settings) for column in compiled(tmp_path, NAMESPACE).columns[1:])
    shared = {"key": "SHOP_KEY", "base_url": "https://host/v1", "reasoning_effort": "low", "prompt": [{"column": "a"}]}
    assert b == shared | {"model": "near", "seed": 7}  # null takes a setting back
    assert c == shared | {"model": "own"}


def test_a_model_may_be_the_namespaces_alone(tmp_path: Path) -> None:
    spec = compiled(tmp_path, NAMESPACE, COLLECTION.replace("llm: {model: near, temperature: null}\n", ""))
    assert spec.columns[1].settings["model"] == "wide"
    assert spec.columns[2].settings["model"] == "own"


def test_its_settings_are_part_of_definitions_as_if_the_collection_said_them(tmp_path: Path) -> None:
    said = COLLECTION.replace("temperature: null", 'seed: 7, key: SHOP_KEY, base_url: "https://host/v1"')
    by_itself = compiled(tmp_path, None, said)
    below = compiled(tmp_path, NAMESPACE.replace("temperature: 0, ", "").replace(", reasoning_effort: low", ""))
    assert below.hash == by_itself.hash
    other = compiled(tmp_path, NAMESPACE)
    assert [one.hash == two.hash for one, two in zip(other.columns, below.columns, strict=True)] == [True, False, False]


def test_the_file_of_another_namespace_says_nothing_here(tmp_path: Path) -> None:
    alone = compiled(tmp_path, None)
    wrong_as_well = NAMESPACE.replace("shop", "other").replace("seed: 7", "sed: 7, seed: x").replace("llm:", "lm:")
    assert compiled(tmp_path, wrong_as_well).hash == alone.hash


def test_mistakes_are_said_once_with_the_file_and_line_where_they_stand(tmp_path: Path) -> None:
    shared = (
        "namespace: shop\nlmm: {}\nllm:\n  temprature: 1\n  seed: 7.5\n  system: 'Of {{a}}'\n  prompt: x\n  seed: 8\n"
    )
    broken = COLLECTION.replace("type: text}", "type: txt}", 1)
    found = problems(tmp_path, shared, broken)
    assert [(file, line) for file, line, _ in found] == [("namespace.yaml", line) for line in (2, 4, 5, 6, 7, 8)] + [
        ("reviews.yaml", 5)
    ]
    messages = [message for _, _, message in found]
    assert messages[0] == "unknown key 'lmm'; did you mean 'llm'?"
    assert messages[1] == "llm: unknown key 'temprature'; did you mean 'temperature'?"
    assert "llm: seed: should be a valid integer" in messages[2]
    assert messages[3] == "llm: system is the same for every row: refer to {{a}} in prompt or map or reduce"
    assert "unknown key 'prompt'" in messages[4]
    assert "given twice" in messages[5]


@pytest.mark.parametrize(
    ("shared", "line", "message"),
    [
        ("", 1, "needs its namespace"),
        ("- shop\n", 1, "needs its namespace"),
        ("llm: {model: m}\n", 1, "'namespace' is missing"),
        ("\nnamespace: 5\n", 2, "namespace: expected text, got 5: put it in quotes"),
        ("namespace: shop\nllm: m\n", 2, "llm: expected keys and values, got 'm'"),
        ("namespace: shop\nllm: {model: m\n", 3, "not valid YAML"),
        (b"namespace: shop\n# caf\xe9\n", 2, "the byte 0xe9 is not UTF-8"),
    ],
)
def test_a_file_that_is_not_as_it_should_be(tmp_path: Path, shared: str | bytes, line: int, message: str) -> None:
    [(file, found, said)] = problems(tmp_path, shared)
    assert (file, found) == ("namespace.yaml", line)
    assert message in said


def test_it_is_passed_over_only_where_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "namespace.yaml").symlink_to(tmp_path / "gone.yaml")
    with pytest.raises(SpecError, match=r"namespace\.yaml:1: cannot be read: No such file"):
        compiled(tmp_path, None)


def test_no_collection_has_its_name(tmp_path: Path) -> None:
    (tmp_path / "namespace.yaml").write_text(COLLECTION, encoding="utf-8")
    with pytest.raises(SpecError, match="give the collection's another name"):
        compile_file(tmp_path / "namespace.yaml")
