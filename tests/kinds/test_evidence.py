"""Quotes are found as models copy them, where they stand, and nowhere else."""

import unicodedata
from typing import Literal, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cell_engine.kinds.evidence import QUOTE_CHARACTERS, Claim, Span, Text, check
from cell_engine.specs.text import Json

CONTRACT = (
    "This agree-\nment is made on 3 March 2024\fbetween “Ärzte–Haus” GmbH\u00a0& Co. KG and the long-\nterm tenant."
)


@pytest.mark.parametrize(
    ("quote", "stands"),
    [
        ("agreement is made", "agree-\nment is made"),
        ("agree- ment IS made", "agree-\nment is made"),
        ("long-term tenant", "long-\nterm tenant"),
        ("3 March 2024 between", "3 March 2024\fbetween"),
        ('"Ärzte-Haus" GmbH & Co. KG', "“Ärzte–Haus” GmbH\u00a0& Co. KG"),
        ("'Ä", None),
        ("«Ärzte—Haus» gmbh", "“Ärzte–Haus” GmbH"),
        ('"between “Ärzte"', "between “Ärzte"),
        ("A\u0308rzte", "Ärzte"),
        ("Ｔｅｎａｎｔ", "tenant"),
        ("  tenant. ", "tenant."),
        ("arzte", None),
        ("ten", None),
        ("3 March 202", None),
        ("agreement … made", None),
        ("", None),
        (" ", None),
        ('""', None),
    ],
)
def test_a_quote_is_found_where_it_stands(quote: str, stands: str | None) -> None:
    span = Text(CONTRACT).locate(quote)
    assert (None if span is None else CONTRACT[span.start : span.end]) == stands


@pytest.mark.parametrize(
    ("quote", "text", "found"),
    [
        ("5 million", "15 million", False),
        ("5 million", "1.5 million", False),
        ("1", "1.5", False),
        ("1", "costs 1. 5 more", True),
        ("fish", "selfish fish", True),
        ("cafe", "cafe\u0301", False),
        ("漢字", "常用漢字表", True),
        ("ﬁnd", "find", True),
        ("STRASSE", "straße", True),
        ("pre- and post-war", "pre- and postwar", True),
        ("-5 degrees", "at -5 degrees", True),
        ("2024-03-01", "on 2024 03 01", False),
    ],
)
def test_no_word_and_no_number_is_cut(quote: str, text: str, found: bool) -> None:
    assert (Text(text).locate(quote) is not None) == found


Form: TypeAlias = Literal["NFC", "NFD", "NFKC", "NFKD"]
TEXTS = st.text(alphabet="abcß ÄeÉfi\u0301ﬁ-–“”'\n\f\u00a0\u00ad.,1½2Ａ漢" + "\u200b", max_size=30)


def reads(text: str) -> bool:
    """Whether there is more to it than marks, and no mark of a letter that it does not have."""
    stripped = text.strip()
    return any(one.isalnum() for one in text) and not unicodedata.combining((stripped or " ")[0])


@given(TEXTS, TEXTS.filter(reads), TEXTS)
def test_what_is_cut_out_of_a_text_is_found_in_it_again(before: str, quote: str, after: str) -> None:
    text = f"{before} {quote} {after}"
    span = Text(text).locate(quote)
    assert span is not None
    assert 0 <= span.start < span.end <= len(text)


@given(TEXTS, TEXTS.filter(reads), st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]), st.booleans())
def test_a_copy_in_another_form_is_found_at_the_same_place(before: str, quote: str, form: Form, upper: bool) -> None:
    text = f"{before}\nqq {quote.strip()} qq"
    copy = unicodedata.normalize(form, f"qq {quote.strip()} qq")
    span = Text(text).locate("  ".join((copy.upper() if upper else copy).split()))
    assert span is not None
    assert (text[span.start :].startswith("qq"), text[: span.end].endswith("qq")) == (True, True)


@given(st.text(), st.text())
def test_any_two_texts_come_to_an_end(quote: str, text: str) -> None:
    span = Text(text).locate(quote)
    assert span is None or 0 <= span.start < span.end <= len(text)


def test_evidence_says_column_words_place_and_page() -> None:
    inputs: dict[str, Json] = {
        "title": "Lease", "contract": CONTRACT, "notes": None,
        "document": {"text": "page one\fpage two\fpage three", "page_count": 3},
        "tags": ["first", "second"],
    }  # fmt: skip
    claims = [
        Claim("contract", "agreement"),
        Claim("title", "long-term"),  # of another column
        Claim("document", "Page  two"),
        Claim("tags", '"first", "second"'),
        Claim("notes", "nothing"),
        Claim("elsewhere", "Lease"),
    ]
    checked = check(claims, inputs)
    long = CONTRACT.index("long")
    assert checked.evidence == [
        {"column": "contract", "quote": "agree-\nment", "start": 5, "end": 16, "page": 1},
        {"column": "contract", "quote": "long-\nterm", "start": long, "end": long + 10, "page": 2},
        {"column": "document", "quote": "page two", "start": 9, "end": 17, "page": 2},
        {"column": "tags", "quote": '"first", "second"', "start": 1, "end": 18},
        {"column": "title", "quote": "Lease", "start": 0, "end": 5},
    ]
    assert checked.missing == [Claim("notes", "nothing")]


def test_a_long_quote_is_kept_in_part_with_the_place_of_all_of_it() -> None:
    text = "word " * 1000
    (entry,) = check([Claim("a", text)], {"a": text}).evidence
    assert isinstance(entry, dict)
    assert (len(str(entry["quote"])), entry["start"], entry["end"]) == (QUOTE_CHARACTERS, 0, len(text) - 1)


def test_a_long_text_is_looked_through_once() -> None:
    text = "Some words, and 'quotes' – of a well-\nknown kind.\n" * 4_000
    assert Text(text).locate("of a wellknown kind. Some words, and") == Span(27, 65)
