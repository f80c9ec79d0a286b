"""What the offline model says that it rests on: a sentence of the data, word for word; or that it was not found."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cell_engine.kinds.evidence import Claim, check
from cell_engine.offline_model.answers import complete
from cell_engine.specs import answer_shape
from cell_engine.specs.types import ColumnType

LEASE = (
    "# Lease\n\nThis **lease** is between Acme Ltd and Bolt GmbH. It begins on 2024-05-03, for 24 months.\f"
    "The rent is 1250.50 EUR a month! Nobody may terminate it early."
)


def ask(column_type: ColumnType, text: str, instruction: str = "What?", flaw: Any = None, **settings: Any) -> Any:
    settings = {"evidence": "required", **settings}
    schema = answer_shape.schema(column_type, settings, ["contract", "title"])
    content = complete(
        {
            "model": "any",
            "messages": [
                {"role": "user", "content": 'What?\n<column name="contract">On 1999-01-01 it ended.</column>'},
                {"role": "assistant", "content": "{}"},
                {
                    "role": "user",
                    "content": f'{instruction} <column name="title"></column><column name="contract">{text}</column>',
                },
                {"role": "user", "content": "That answer does not fit."},
            ],
            "response_format": {"type": "json_schema", "json_schema": {"name": "c", "strict": True, "schema": schema}},
        },
        flaw=flaw,
    ).content
    return json.loads(content)


@pytest.mark.parametrize(
    ("column_type", "value", "quote"),
    [
        (ColumnType("date"), "2024-05-03", "It begins on 2024-05-03, for 24 months."),
        (ColumnType("integer"), 24, "It begins on 2024-05-03, for 24 months."),
        (
            ColumnType("number", currency="EUR"),
            {"amount": 24, "unit": "EUR"},
            "It begins on 2024-05-03, for 24 months.",
        ),
        (ColumnType("choice", ("rent", "sale")), "rent", "The rent is 1250.50 EUR a month!"),
        (
            ColumnType("text"),
            "This lease is between Acme Ltd and Bolt GmbH. It begins on 2024-05-03, for 24 months.",
            "This **lease** is between Acme Ltd and Bolt GmbH.",
        ),
    ],
    ids=lambda one: one.name if isinstance(one, ColumnType) else "",
)
def test_an_answer_quotes_the_sentence_that_it_was_found_in(column_type: ColumnType, value: Any, quote: str) -> None:
    answer = ask(column_type, LEASE)
    assert answer["value"] == value or column_type.name == "text"
    assert answer["evidence"] == [{"column": "contract", "quote": quote}]
    claim = Claim("contract", quote)
    assert check([claim], {"contract": LEASE}).missing == []


@pytest.mark.parametrize(
    ("column_type", "text"),
    [
        (ColumnType("date"), "No date at all."),
        (ColumnType("number"), "No number at all."),
        (ColumnType("url"), "No address at all."),
        (ColumnType("choice", ("rent", "sale")), "Neither."),
        (ColumnType("boolean"), "Nothing of that."),
        (ColumnType("text"), ""),
    ],
    ids=lambda one: one.name if isinstance(one, ColumnType) else "",
)
def test_what_is_not_there_is_not_found(column_type: ColumnType, text: str) -> None:
    assert ask(column_type, text, "Is early termination allowed?") == {
        "evidence": [], "value": {"not_found": "The text does not say."},
    }  # fmt: skip


def test_a_column_that_has_to_answer_gets_one_without_evidence() -> None:
    answer = ask(ColumnType("date"), "No date at all.", not_found=False)
    assert answer == {"evidence": [], "value": "1970-01-01"}


def test_quotes_are_made_up_on_demand() -> None:
    answer = ask(ColumnType("date"), LEASE, flaw="unsupported")
    (quoted,) = answer["evidence"]
    assert check([Claim(**quoted)], {"contract": LEASE}).evidence == []
    assert answer["value"] == "2024-05-03"


@pytest.mark.parametrize(
    ("text", "unit"),
    [("It costs 5 EUR.", "EUR"), ("It costs € 5.", "EUR"), ("It costs 5 USD.", "other"), ("It costs 5.", "EUR")],
)
def test_an_amount_says_its_currency(text: str, unit: str) -> None:
    answer = ask(ColumnType("number", currency="EUR"), text, evidence=None)
    assert answer == {"value": {"amount": 5, "unit": unit}}
