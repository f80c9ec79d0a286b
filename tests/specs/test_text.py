import enum
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cell_engine.errors import BadValueError
from cell_engine.specs.text import JSON_DEPTH, Json, clean, clean_text, shorten

any_text = st.text(st.characters())  # lone surrogates and U+0000 included

any_json: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(any_text)
def test_cleaned_text_can_be_stored_and_loses_nothing_else(text: str) -> None:
    cleaned = clean_text(text)
    assert "\x00" not in cleaned
    cleaned.encode("utf-8")
    assert cleaned == "".join(c for c in text if c != "\x00" and not 0xD800 <= ord(c) <= 0xDFFF)
    assert clean_text(cleaned) == cleaned


def test_a_surrogate_pair_that_is_one_character_stays() -> None:
    assert clean_text("a\U0001f600\ud83d\x00b") == "a\U0001f600b"


def test_subclasses_of_str_become_str() -> None:
    class Colour(str, enum.Enum):  # noqa: UP042 - the older kind, whose str() is not its value
        RED = "red"

    assert type(clean_text(Colour.RED)) is str
    assert clean_text(Colour.RED) == "red"


@given(any_json)
def test_json_is_cleaned_all_the_way_down(value: Json) -> None:
    cleaned = _clean_or_none(value)
    written = json.dumps(cleaned, allow_nan=False, ensure_ascii=False)
    written.encode("utf-8")
    assert "\\u0000" not in written.replace("\\\\", "")
    assert _clean_or_none(cleaned) == cleaned


def _clean_or_none(value: Json) -> Json:
    try:
        return clean(value)
    except BadValueError as error:
        assert "occurs twice" in str(error)  # keys that differ only by what is cleaned away
        return None


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (math.nan, "nan"),
        ([math.inf], "inf"),
        (10**400, "range of a double"),
        ({1: "a"}, "the key 1 is not text"),
        ({"a": 1, "a\x00": 2}, "the key 'a' occurs twice"),
        ((1, 2), "tuple"),
        (b"x", "bytes"),
        ({"x": object()}, "not JSON"),
    ],
)
def test_what_is_not_json_is_refused(value: object, why: str) -> None:
    with pytest.raises(BadValueError, match=why):
        clean(value)


def test_nesting_is_bounded() -> None:
    def nest(depth: int) -> Json:
        value: Json = 0
        for _ in range(depth):
            value = [value]
        return value

    assert clean(nest(JSON_DEPTH)) == nest(JSON_DEPTH)
    with pytest.raises(BadValueError, match="nested"):
        clean(nest(JSON_DEPTH + 1))
    with pytest.raises(BadValueError, match="nested"):
        clean(nest(100_000))


@given(any_json)
def test_a_shortened_value_is_short_and_printable(value: Json) -> None:
    shown = shorten(value)
    assert len(shown) <= 80
    shown.encode("utf-8")
    assert "\x00" not in shown


def test_shortening_never_writes_out_the_whole_value() -> None:
    assert shorten("ab") == "'ab'"
    assert shorten("x" * 1_000_000).endswith("x…")
    assert "integer" in shorten(10**5000)
    assert len(shorten([10**5000, "x" * 500])) <= 80
