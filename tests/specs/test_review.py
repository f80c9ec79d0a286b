"""What a column says of review: which answers are held, and every way of saying it wrong."""

from dataclasses import replace

import pytest

from cell_engine.errors import SpecError
from cell_engine.plan import Cell, is_held
from cell_engine.specs.compile import compile_text
from cell_engine.specs.review import Review, Rule
from cell_engine.specs.text import Json
from cell_engine.specs.version import Column

SPEC = """\
namespace: n
name: c
columns:
  - {{name: a, type: text}}
  - name: b
    type: {type}
    kind: function
    deps: [a]
    function: {{name: "tests.functions:shape_1"}}
    {review}
"""
CHOICES = "list\n    items: choice\n    choices: [high, low]"
CHOICE = "choice\n    choices: [high, low]"


def column(type: str, review: str) -> Column:
    spec = compile_text(SPEC.format(type=type, review=f"review: {review}" if review else ""))
    return spec.bind({"a": 1, "b": 2})[1]


@pytest.mark.parametrize(
    ("type", "review", "held", "shown"),
    [
        ("text", "required", ["", "x"], [None]),
        (CHOICE, "{when: {choice: [high]}}", ["high"], ["low", None]),
        (CHOICES, "{when: {choice: [high]}}", [["low", "high"]], [["low"], []]),
        ("number", "{when: {above: 1000, below: 0}}", [1000.5, -1], [1000, 0, None]),
        ("boolean", "{when: {is: true}}", [True], [False]),
        ("boolean", "{when: {is: false}}", [False], [True]),
    ],
)  # fmt: skip
def test_a_rule_holds_what_it_names(type: str, review: str, held: list[Json], shown: list[Json]) -> None:
    made = column(type, review)
    assert all(is_held(made, None, value) for value in held)
    assert not any(is_held(made, None, value) for value in shown)
    assert Column.from_json(made.to_json()) == made


def test_an_answer_equal_to_the_accepted_one_is_not_held() -> None:
    made = column("number", "required")
    assert not is_held(made, Cell(ai_value=1.0), 1)
    assert is_held(made, Cell(ai_value=1.0), 2)
    proposed = Cell(ai_value=2, error_class="proposed", held={"accepted": 1})
    assert not is_held(made, proposed, 1)
    assert is_held(made, proposed, 2), "proposed before is not accepted"
    assert is_held(made, Cell(ai_value=2, error_class="rejected", held={}), 2)


def test_a_review_changes_no_answer_and_is_a_version_of_its_own() -> None:
    plain, reviewed = (compile_text(SPEC.format(type="text", review=one)) for one in ("", "review: required"))
    assert plain.columns[1].hash == reviewed.columns[1].hash
    assert plain.hash != reviewed.hash
    assert column("text", "{within: 3d, then: reject}").review == Review(None, 259_200.0, "reject")
    assert column(CHOICE, "{when: {choice: [low]}}").review == Review(Rule(("low",)))
    old = column("text", "").to_json()
    del old["review"]
    assert Column.from_json(old).review is None, "as code wrote it that knew no review"


def test_that_nothing_was_found_is_held_by_required_and_by_no_rule() -> None:
    made, ruled = column("number", "required"), column("number", "{when: {above: 1}}")
    said = Cell(fingerprint=b"now", details={"not_found": "It does not say."})
    for before in (None, Cell(), Cell(ai_value=1, fingerprint=b"now"), replace(said, error_class="rejected", held={})):
        assert is_held(made, before, None, is_not_found=True)
        assert not is_held(ruled, before, None, is_not_found=True)
    assert not is_held(made, said, None, is_not_found=True), "shown, and in other words perhaps"
    assert is_held(made, said, 1)
    assert not is_held(made, None, None), "empty without saying so"


@pytest.mark.parametrize(
    ("type", "review", "line", "problem"),
    [
        ("text", "yes", 10, "review: expected required or {when: …, within: …, then: …}, got 'yes'"),
        (CHOICE, "{when: {choice: [higher]}}", 11, "'higher' is none of the column's choices: ['high', 'low']"),
        ("text", "{when: {choice: [high]}}", 10, "choice is for columns of type choice, not text"),
        ("text", "{when: {above: 3}}", 10, "above is for columns of type number or integer, not text"),
        ("text", "{when: {is: true}}", 10, "is is for columns of type boolean, not text"),
        ("integer", "{when: {abov: 3}}", 10, "unknown key 'review.when.abov'; did you mean 'above'?"),
        ("integer", "{when: {}}", 10, "a rule is one of choice, above, below, is"),
        ("integer", "{whne: {above: 3}}", 10, "unknown key 'review.whne'; did you mean 'when'?"),
        ("integer", "{within: 3d}", 10, "within without then"),
        ("integer", "{then: accept}", 10, "then: accept after how long?"),
        ("integer", "{within: 3 days, then: accept}", 10, "'3 days' is no time for a review"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(type: str, review: str, line: int, problem: str) -> None:
    with pytest.raises(SpecError) as caught:
        column(type, review)
    (found,) = caught.value.problems
    assert found.line == line
    assert problem in found.message


def test_an_input_has_nothing_to_review() -> None:
    with pytest.raises(SpecError, match=r"an input column .* takes no 'review'"):
        compile_text("namespace: n\nname: c\ncolumns:\n  - {name: a, type: text, review: required}\n")
