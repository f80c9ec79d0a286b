"""Facts under labels that an instruction names, and the lines that state them."""

from __future__ import annotations

from datetime import date

import pytest

from cell_engine.offline_model.facts import first_amount, first_date, stated
from cell_engine.offline_model.grounds import Cell, Ground, stated_ground

ASKED = 'When does it begin? It may be stated as "Start date" or “Effective date”.'


@pytest.mark.parametrize(
    "line",
    ["Effective date: 1 March 2026", "**Effective date:** 1 March 2026", "- effective date : 1 March 2026",
     "Effective date\t1 March 2026", "| Effective date | 1 March 2026 |", "Effective date:1 March 2026"],
)  # fmt: skip
def test_what_stands_behind_a_label_at_the_start_of_a_line(line: str) -> None:
    assert stated(ASKED, f"A contract\n{line}\nEnd date: 2 March 2027") == "1 March 2026"


def test_only_labels_in_quotes_and_only_at_the_start_of_a_line_count() -> None:
    assert stated("Give the start date.", "Start date: 1 March 2026") is None
    assert stated(ASKED, "It has no start date: that is unknown.\nThe Start dates: none") is None
    assert stated(ASKED, "Effective date: b\nStart date: a") == "a"  # the first that is named


@pytest.mark.parametrize("text", ["1 March 2026", "March 1, 2026", "2026-03-01", "on 1. March 2026, at noon"])
def test_dates_as_people_write_them(text: str) -> None:
    assert first_date(f"from {text} to 31 December 2027") == date(2026, 3, 1)


def test_what_is_no_date_is_none() -> None:
    assert first_date("30 February 2026, 1 Smarch 2026, 2026-13-01") is None


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("EUR 48,500.00", 48500),
        ("£1,234,567.50 a year", 1234567.5),
        ("120 000 CHF", 120000),
        ("17", 17),
        ("none", None),
    ],
)
def test_amounts(text: str, amount: float | None) -> None:
    assert first_amount(text) == amount


def test_the_line_that_states_it_is_what_the_answer_rests_on() -> None:
    cells = [Cell("a", "Nothing here."), Cell("b", "A contract\n**Effective date:** 1 March 2026\nThe end.")]
    assert stated_ground(cells, ASKED) == Ground("b", "**Effective date:** 1 March 2026")
    assert stated_ground(cells, "When does it begin?") is None
