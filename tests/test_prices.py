"""Prices: which one a model has, what calls cost to the billionth of a dollar, and a file of the user's."""

from pathlib import Path

import pytest

from cell_engine.errors import BadValueError
from cell_engine.prices import DOLLAR, dollars, prices, shown, spent


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    prices.cache_clear()
    monkeypatch.setattr("cell_engine.settings.default_home", lambda: Path("/nowhere"))


def _own(monkeypatch: pytest.MonkeyPatch, folder: Path, text: str) -> None:
    (folder / "mine.yaml").write_text(text)
    monkeypatch.setenv("AUTOFILL_PRICES", str(folder / "mine.yaml"))


def test_a_dated_release_has_the_price_of_its_model() -> None:
    known = prices()
    mini = known.of("gpt-5-mini")
    assert mini is not None
    assert known.of("gpt-5-mini-2025-08-07") == known.of("gpt-5-mini-latest") == mini
    assert known.of("gpt-4o") != known.of("gpt-4o-mini"), "the longer name is another model, not a release"
    assert known.of("gpt-5-mini-turbo") is None
    assert known.of(None) is None


def test_every_price_has_a_date_and_a_source() -> None:
    assert all(price.source and price.date.year >= 2025 for price in prices().models.values())


def test_a_call_is_rounded_once_and_cached_tokens_are_among_those_in() -> None:
    nano = prices().of("gpt-5-nano")
    assert nano is not None
    assert nano.cost(1_000_000, 0, 0) == DOLLAR // 20
    assert nano.cost(1_000_000, 1_000_000, 0) == DOLLAR // 200
    assert nano.cost(1, 1, 0) == 5
    assert nano.cost(10, 20, 0) == 50, "more cached than there were: no credit for that"


def test_a_file_of_the_user_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ours = prices().of("gpt-4o")
    prices.cache_clear()
    _own(
        monkeypatch,
        tmp_path,
        "models:\n  gpt-5-mini: {in: 1, out: 3, source: our contract, date: 2026-11-01}\n"
        "  house: {in: 0, out: 0, source: our own machines, date: 2026-11-01}\n",
    )
    mini, house = prices().of("gpt-5-mini-2025-08-07"), prices().of("house")
    assert mini is not None
    assert house is not None
    assert (mini.tokens_in, mini.tokens_cached, mini.tokens_out) == (DOLLAR, DOLLAR, 3 * DOLLAR)
    assert house.cost(1_000, 0, 1_000) == 0
    assert prices().of("gpt-4o") == ours


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("models: [", "is no YAML"),
        ("gpt: 1", "expected `models:`"),
        ("models: {m: 3}", "mine.yaml: m: expected"),
        ("models: {m: {in: 1, out: 2, source: s}}", "mine.yaml: m: date is missing"),
        ("models: {m: {in: 1, out: x, source: s, date: 2026-01-01}}", "mine.yaml: m: 'x' is no price"),
        ("models: {m: {in: -1, out: 2, source: s, date: 2026-01-01}}", "mine.yaml: m: -1 is no price"),
        ("models: {m: {in: .nan, out: 2, source: s, date: 2026-01-01}}", "is no price"),
        ("models: {m: {in: 1, out: 2, source: s, date: soon}}", "date 'soon'"),
        ("models: {m: {in: 1, out: 2, per: call, source: s, date: 2026-01-01}}", "unknown per"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, said: str
) -> None:
    _own(monkeypatch, tmp_path, text)
    with pytest.raises(BadValueError, match=said):
        prices()


def test_a_file_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOFILL_PRICES", "/nowhere/prices.yaml")
    with pytest.raises(BadValueError, match=r"AUTOFILL_PRICES: /nowhere/prices\.yaml cannot be read"):
        prices()


def test_amounts_as_people_write_and_read_them() -> None:
    assert dollars("12.50") == dollars("$12.5") == 12_500_000_000
    assert dollars("1,000") == 1_000 * DOLLAR
    for wrong in ("", "twelve", "-1", "1e99", "nan"):
        with pytest.raises(BadValueError):
            dollars(wrong)
    assert [shown(cost) for cost in (0, 12_500_000_000, 420_000_000, 32_500, 1_234 * DOLLAR, None)] == [
        "$0.00", "$12.50", "$0.42", "$0.000032", "$1,234.00", "unknown",
    ]  # fmt: skip
    assert spent(0, 3) == "unknown (3 calls)"
    assert spent(DOLLAR, 1) == "$1.00 + unknown (1 call)"
    assert spent(DOLLAR, 0) == "$1.00"
