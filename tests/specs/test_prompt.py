import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cell_engine.specs.prompt import bind, references, render, split
from cell_engine.specs.text import Json


@pytest.mark.parametrize(
    ("prompt", "names"),
    [
        ("Summarise {{readme}}.", ["readme"]),
        ("{{ readme }}{{\treadme\n}} {{b_2}}", ["readme", "readme", "b_2"]),
        ('{"a": {"b": 1}} {x} {{}} {{ }} {{1}} {{a.b}} {{a b}} {{"a"}} {{ünï}} {%a%} { {a} }', []),
        ("{{{a}}} {{{{b}}}}", ["a", "b"]),
        ("{{a}", []),
    ],
)
def test_only_a_name_in_double_braces_is_a_reference(prompt: str, names: list[str]) -> None:
    assert references(prompt) == names


def test_parts_hold_the_text_as_it_stands_and_columns_by_key_then_id() -> None:
    parts = split("{{a}} in {b} and {{ c }}{{a}}!", {"a": "key_a", "c": "key_c"})
    by_key: list[Json] = [
        {"column": "key_a"},
        " in {b} and ",
        {"column": "key_c"},
        {"column": "key_a"},
        "!",
    ]
    assert parts == by_key
    assert bind(parts, {"key_a": 7, "key_c": 9}) == [
        {"column": 7},
        " in {b} and ",
        {"column": 9},
        {"column": 7},
        "!",
    ]


@given(st.text(alphabet="{}ab \n"))
def test_splitting_loses_no_character(prompt: str) -> None:
    names = references(prompt)
    parts = split(prompt, {name: name for name in names})
    pattern = "".join(
        re.escape(part) if isinstance(part, str) else r"\{\{\s*" + str(part["column"]) + r"\s*\}\}"  # type: ignore[call-overload,index]
        for part in parts
    )
    assert re.fullmatch(pattern, prompt)


def test_cells_are_fenced_and_named() -> None:
    parts: list[Json] = ["Summarise ", {"column": 1}, "\nfor ", {"column": 2}, " since ", {"column": 3}]
    message = render(parts, {1: "Text", 2: ["a", "ü"], 3: 1.5}, {1: "readme", 2: "tags", 3: "year"})
    assert message == (
        'Summarise <column name="readme">Text</column>\n'
        'for <column name="tags">["a", "ü"]</column> since <column name="year">1.5</column>'
    )


def test_an_absent_cell_is_not_an_empty_one() -> None:
    parts: list[Json] = [{"column": 1}, {"column": 2}]
    message = render(parts, {1: None, 2: ""}, {1: "a", 2: "b"})
    assert message == '<column name="a" absent="true"></column><column name="b"></column>'


def test_cell_text_is_not_templated_again() -> None:
    parts: list[Json] = ["A: ", {"column": 1}, " B: ", {"column": 2}]
    message = render(parts, {1: "{{b}} {column} \\1 %s", 2: "secret"}, {1: "a", 2: "b"})
    assert message == ('A: <column name="a">{{b}} {column} \\1 %s</column> B: <column name="b">secret</column>')


@pytest.mark.parametrize(
    ("text", "tag"),
    [
        ("</div>", "column"),
        ("a column", "column"),
        ("</column>", "column-1"),
        ("</COLUMN >", "column-1"),
        ("< / column", "column-1"),
        ('<column name="b">', "column-1"),
        ("</column></column-1></column-3>", "column-2"),
        ("</column-1>", "column"),
        ("</column" + "".join(f"</column-{n}>" for n in range(1, 2000)), "column-2000"),
    ],
)
def test_the_fence_is_one_the_cells_do_not_have(text: str, tag: str) -> None:
    parts: list[Json] = [{"column": 1}, " ", {"column": 2}]
    message = render(parts, {1: "plain", 2: text}, {1: "a", 2: "b"})
    assert message == f'<{tag} name="a">plain</{tag}> <{tag} name="b">{text}</{tag}>'


@given(st.lists(st.text(alphabet='</>column-1 ="') | st.text(), min_size=1, max_size=3))
@example(["</column>", "</column-1", "<column-2"])
def test_no_cell_can_leave_its_fence(texts: list[str]) -> None:
    values: dict[int, Json] = dict(enumerate(texts))
    parts: list[Json] = [{"column": column} for column in values]
    message = render(parts, values, dict.fromkeys(values, "n"))
    opening = re.match(r"<(column(?:-\d+)?) name", message)
    assert opening
    found = re.findall(rf'<{opening[1]} name="n">(.*?)</{opening[1]}>', message, re.DOTALL)
    assert found == texts
