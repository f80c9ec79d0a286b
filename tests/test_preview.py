"""Old and new answers side by side: what counts as equal, and what is counted."""

import pytest

from cell_engine.preview.comparing import Before, Preview, Tried, agree
from cell_engine.specs.text import Json
from cell_engine.specs.types import ColumnType


@pytest.mark.parametrize(
    ("before", "after", "equal"),
    [
        ("a  b\n", "a b", True),
        ("a b", "A b", False),
        (1, 1.0, True),
        (True, 1, False),
        ({"a": 1, "b": "x "}, {"b": "x", "a": 1.0}, True),
        (["a", "b"], ["b", "a"], False),
    ],
)
def test_answers_agree_where_only_their_writing_differs(before: Json, after: Json, equal: bool) -> None:
    assert agree(before, after) is equal


def test_what_became_which_is_counted_of_few_values() -> None:
    pairs = [("low", "high"), ("low", "high"), ("high", "high"), (None, "low"), ("low", None)]
    tried = [
        Tried(
            row,
            Before(before),
            after,
            None if after else "refused",
            agrees=before == after if before and after else None,
        )
        for row, (before, after) in enumerate(pairs)
    ]
    preview = Preview(1, tried)
    assert (preview.compared, preview.agreeing, preview.failed) == (3, 1, {"refused": 1})
    assert preview.changes(ColumnType("choice", ("low", "high"))) == [("low", "high", 2), ("high", "high", 1)]
    assert preview.changes(ColumnType("text")) == []
