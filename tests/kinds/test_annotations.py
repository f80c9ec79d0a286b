"""Annotations against columns: what never fits is named, what may fit is let through."""

from __future__ import annotations

from typing import Any

import pytest

from cell_engine.kinds.annotations import mismatches
from cell_engine.specs.types import ColumnType
from tests.kinds import annotated
from tests.kinds.helpers import INTEGER, TEXT

NUMBER = ColumnType("number")
BOOLEAN = ColumnType("boolean")
DATE = ColumnType("date")
DATETIME = ColumnType("datetime")
JSON = ColumnType("json")
TEXTS = ColumnType("list", items="text")
LEVEL = ColumnType("choice", ("low", "high"))


@pytest.mark.parametrize(
    ("function", "read", "filled"),
    [
        (annotated.text_to_int, TEXT, INTEGER),
        (annotated.text_to_int, LEVEL, NUMBER),
        (annotated.text_to_int, JSON, INTEGER),
        (annotated.text_to_int_later, TEXT, INTEGER),
        (annotated.promises_int, DATE, INTEGER),
        (annotated.nothing_said, TEXT, BOOLEAN),
        (annotated.anything, TEXTS, DATE),
        (annotated.unknown, INTEGER, DATE),
        (annotated.union, INTEGER, TEXT),
        (annotated.union, TEXT, NUMBER),
        (annotated.literal, TEXT, LEVEL),
        (annotated.literal, TEXT, TEXT),
        (annotated.number, INTEGER, NUMBER),
        (annotated.number, NUMBER, NUMBER),
        (annotated.whole, BOOLEAN, BOOLEAN),
        (annotated.items, TEXTS, TEXTS),
        (annotated.mapping, JSON, JSON),
        (annotated.moment, DATETIME, DATETIME),
        (annotated.lengths, TEXT, INTEGER),
        (len, TEXT, INTEGER),
    ],
)
def test_what_may_fit_is_let_through(function: Any, read: ColumnType, filled: ColumnType) -> None:
    found = mismatches(function, filled, {"a": (read, False)})
    assert found == ([] if function is not len else found)


@pytest.mark.parametrize(
    ("function", "read", "filled", "said"),
    [
        (annotated.text_to_int, TEXT, TEXT, "it is annotated to return int, which never fits type text"),
        (annotated.text_to_int_later, TEXT, TEXT, "return int, which never fits type text"),
        (annotated.promises_int, TEXT, TEXTS, "return int, which never fits type list"),
        (annotated.text_to_int, TEXT, BOOLEAN, "return int, which never fits type boolean"),
        (annotated.whole, INTEGER, NUMBER, "return bool, which never fits type number"),
        (annotated.number, NUMBER, INTEGER, "return float, which never fits type integer"),
        (annotated.moment, TEXT, DATE, "return datetime, which never fits type date"),
        (annotated.other_literal, TEXT, LEVEL, "return typing.Literal['medium'], which never fits type choice"),
        (annotated.mapping, JSON, TEXTS, "which never fits type list"),
        (
            annotated.text_to_int,
            INTEGER,
            INTEGER,
            "its argument a is annotated str, and column a of type integer gives int",
        ),
        (annotated.whole, NUMBER, BOOLEAN, "its argument a is annotated int, and column a of type number gives float"),
        (annotated.decimal, NUMBER, NUMBER, "and column a of type number gives int or float"),
        (annotated.day, DATE, DATE, "its argument a is annotated date, and column a of type date gives str"),
        (annotated.mapping, TEXTS, JSON, "and column a of type list gives list"),
        (annotated.lengths, TEXTS, INTEGER, "its argument a is annotated str, and column a of type list gives list"),
    ],
)
def test_what_never_fits_is_named(function: Any, read: ColumnType, filled: ColumnType, said: str) -> None:
    (found,) = mismatches(function, filled, {"a": (read, False)})
    assert said in found


def test_arguments_are_the_columns_that_are_read() -> None:
    assert mismatches(annotated.needs_more, TEXT, {"a": (TEXT, False), "b": (TEXT, False)}) == [
        "it takes no argument b, by which the column it reads is given",
        "it needs an argument c, and the column reads none of that id",
    ]
    assert mismatches(annotated.text_to_int, INTEGER, {"a": (TEXT, True)}) == [
        "its argument a is annotated str, and column a is optional: it may be None"
    ]
    assert mismatches(annotated.union, TEXT, {"a": (TEXT, True)}) == []
    assert mismatches(annotated.anything, TEXT, {"a": (TEXT, True), "b": (DATE, True)}) == []
