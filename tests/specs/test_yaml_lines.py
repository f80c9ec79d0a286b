import re
from typing import Any

import pytest

from cell_engine.errors import SpecError
from cell_engine.specs.yaml_lines import Document, read


def problems(text: str) -> list[tuple[int, str]]:
    try:
        found = read(text, "f.yaml").problems
    except SpecError as error:
        found = error.problems
    assert all(problem.file == "f.yaml" for problem in found)
    return [(problem.line, problem.message) for problem in found]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("0870", "0870"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("0x1f", "0x1f"),
        ("1_000", "1_000"),
        (".inf", ".inf"),
        ("'12'", "12"),
        ("!!str 12", "12"),
        ("12", 12),
        ("-3", -3),
        ("0", 0),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("true", True),
        ("False", False),
        ("", None),
        ("~", None),
        ("null", None),
        ("[a, 1]", ["a", 1]),
        ("{a: {b: c}}", {"a": {"b": "c"}}),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: Any) -> None:
    document = read(f"x: {text}\n", "f.yaml")
    assert document.problems == []
    assert document.data == {"x": value}
    assert type(document.data["x"]) is type(value)


TEXT = """\
# a comment
first: 1
nested:
  list:
    - {a: 1,
       b: 2}
    -
      c: 3
block: |
  no
  {{one}} and
  {{two}}
folded: >-
  {{one}}

  {{two}}
plain: a
  {{one}} b
  c {{ two
  }}
quoted: "x
  {{one}} \\
  {{two}}"
escaped: "\\x7b{one}} \\
  {{two}}"
"""


@pytest.fixture
def document() -> Document:
    return read(TEXT, "f.yaml")


def test_every_value_has_its_line(document: Document) -> None:
    assert document.line(("first",)) == 2
    assert document.line(("nested", "list", 0, "a")) == 5
    assert document.line(("nested", "list", 0, "b")) == 6
    assert document.line(("nested", "list", 1, "c")) == 8
    assert document.line(("block",)) == 9


def test_what_is_not_there_has_the_line_of_what_is_around_it(document: Document) -> None:
    assert document.line(("nested", "list", 1, "missing", "deeper")) == 8
    assert document.line(("missing",)) == 2


@pytest.mark.parametrize(
    ("key", "lines"),
    [("block", [11, 12]), ("folded", [14, 16]), ("plain", [18, 19]), ("quoted", [22, 23]), ("escaped", [24, 24])],
)
def test_lines_within_a_text(document: Document, key: str, lines: list[int]) -> None:
    pattern = re.compile(r"\{\{\s*\w+\s*\}\}")
    assert len(pattern.findall(document.data[key])) == 2
    assert document.lines_within((key,), pattern, 2) == lines


def test_duplicate_keys_are_found_at_any_depth() -> None:
    assert problems("a: 1\nb: {c: 1, d: 2, c: 3}\na: 2\n") == [
        (2, "the key 'c' is given twice, first in line 2"),
        (3, "the key 'a' is given twice, first in line 1"),
    ]


def test_a_key_that_differs_by_quotes_alone_is_the_same() -> None:
    assert [line for line, _ in problems("a: 1\n'a': 2\n")] == [2]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\nb: [1,\nc: 2", 3, "not valid YAML"),
        ("a: 1\n\tb: 2", 2, "not valid YAML"),
        ("a: b: c", 1, "mapping values are not allowed"),
        ("a: 1\n---\nb: 2", 2, "single document"),
        ("a: *nowhere", 1, "undefined alias"),
        ("a: 'x", 1, "not valid YAML"),
        ("a: 1\nb: \x07", 2, r"U\+0007 is not allowed"),
        ("a: &x\n  - *x", 1, "without end"),
        ("a: !!python/name:os.system x", 1, "tag"),
        ("a: !mine\n  b: c", 1, "tag '!mine'"),
        ("a: 1\nb: !!int x", 2, "'x' is not 'int'"),
        ("a: 1\n? [b]\n: 2", 2, "a key must be a word"),
        ('a: 1\nb: "\\0"', 2, r"U\+0000"),
        ('a: 1\nb: "\\ud800"', 2, "lone surrogate"),
        ("[" * 50_000, 1, "nested too deeply"),
    ],
)
def test_what_is_refused_names_its_line(text: str, line: int, message: str) -> None:
    found = problems(text)
    assert [found_line for found_line, _ in found] == [line]
    assert re.search(message, found[0][1])


def test_aliases_repeat_a_value_but_not_without_bound() -> None:
    assert read("a: &x [1, 2]\nb: *x", "f.yaml").data == {"a": [1, 2], "b": [1, 2]}
    bomb = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))
    assert "without end" in problems(bomb)[0][1]


def test_an_empty_document_is_nothing() -> None:
    assert read("# only a comment\n", "f.yaml").data is None
    assert read("\ufeffa: 1", "f.yaml").data == {"a": 1}
