import json
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cell_engine.errors import BadValueError
from cell_engine.specs.types import ColumnType

TEXT = ColumnType("text")
NUMBER = ColumnType("number")
INTEGER = ColumnType("integer")
BOOLEAN = ColumnType("boolean")
DATE = ColumnType("date")
DATETIME = ColumnType("datetime")
CHOICE = ColumnType("choice", ("developers", "Data scientists", "Straße"))
LIST = ColumnType("list", items="integer")
JSON = ColumnType("json")
URL = ColumnType("url")
FILE = ColumnType("file")
ALL = [TEXT, NUMBER, INTEGER, BOOLEAN, DATE, DATETIME, CHOICE, LIST, JSON, URL, FILE]

by_name = pytest.mark.parametrize("column_type", ALL, ids=lambda column_type: column_type.name)


def cases(table: list[tuple[ColumnType, Any, Any]]) -> list[Any]:
    """The rows as parameters, with ids of their own: some values have no repr."""
    return [pytest.param(*row, id=f"{row[0].name}-{index}") for index, row in enumerate(table)]


ACCEPTED: list[tuple[ColumnType, Any, Any]] = [
    (TEXT, "0870", "0870"),
    (TEXT, "", ""),
    (TEXT, " a\x00\ud800b ", " ab "),
    (NUMBER, 12, 12),
    (NUMBER, 0.1, 0.1),
    (NUMBER, 10**30, 10**30),
    (NUMBER, Decimal("12.50"), 12.5),
    (NUMBER, Decimal("0.10000000000000001"), 0.1),
    (INTEGER, -(2**63), -(2**63)),
    (INTEGER, 2**63 - 1, 2**63 - 1),
    (BOOLEAN, True, True),
    (BOOLEAN, False, False),
    (DATE, "2024-02-29", "2024-02-29"),
    (DATE, date(2024, 2, 29), "2024-02-29"),
    (DATETIME, "2026-11-29T13:00:00Z", "2026-11-29T13:00:00+00:00"),
    (DATETIME, "2026-11-29T13:00+05:30", "2026-11-29T13:00:00+05:30"),
    (DATETIME, "2026-11-29T13:00:00.5-01:00", "2026-11-29T13:00:00.500000-01:00"),
    (DATETIME, datetime(2026, 11, 29, 13, tzinfo=UTC), "2026-11-29T13:00:00+00:00"),
    # Local mean time of Amsterdam until 1937: no ISO 8601 offset has seconds.
    (DATETIME, datetime(1900, 1, 1, tzinfo=timezone(timedelta(seconds=1172))), "1899-12-31T23:40:28+00:00"),
    (CHOICE, "developers", "developers"),
    (CHOICE, "DATA SCIENTISTS", "Data scientists"),
    (CHOICE, "STRASSE", "Straße"),
    (LIST, [], []),
    (LIST, [1, -2], [1, -2]),
    (ColumnType("list", ("a", "b"), "choice"), ["A", "b"], ["a", "b"]),
    (ColumnType("list", items="json"), [False, {"a": [1.5, None]}], [False, {"a": [1.5, None]}]),
    (JSON, {"a": [1, None, "x\x00"], "b": {}}, {"a": [1, None, "x"], "b": {}}),
    (JSON, "text", "text"),
    (JSON, False, False),
    (URL, "https://example.org/a?b=c#d", "https://example.org/a?b=c#d"),
    (URL, "HTTP://[::1]:8080", "HTTP://[::1]:8080"),
    (URL, "https://例え.jp/ü", "https://例え.jp/ü"),
    (FILE, "2024/acme corp.pdf", "2024/acme corp.pdf"),
    (FILE, "cafe\u0301/..a", "caf\u00e9/..a"),
]


@pytest.mark.parametrize(("column_type", "value", "stored"), cases(ACCEPTED))
def test_accepts(column_type: ColumnType, value: Any, stored: Any) -> None:
    accepted = column_type.accept(value)
    assert accepted == stored
    assert type(accepted) is type(stored)
    assert column_type.accept(json.loads(json.dumps(accepted))) == accepted


REFUSED: list[tuple[ColumnType, Any, Any]] = [
    (TEXT, 870, "expected text, not an integer"),
    (TEXT, b"x", "expected text, not bytes"),
    (FILE, 7, "expected a path, not an integer"),
    (FILE, "", "empty name"),
    (FILE, "/etc/passwd", "is absolute"),
    (FILE, "a/../b", "leads elsewhere"),
    (FILE, "./a", "leads elsewhere"),
    (FILE, "a//b", "empty name"),
    (FILE, "a/", "empty name"),
    (FILE, "a\\b", "a backslash"),
    (FILE, "a\x00b", r"U\+0000"),
    (FILE, "a\ud800b", r"U\+D800"),
    (FILE, "a\nb", r"U\+000A"),
    (FILE, "s3://bucket/a", "empty name"),
    (FILE, "é" * 128, "more than 255 bytes"),
    (FILE, "ab/" * 1400 + "x", "more than 4,096 bytes"),
    (NUMBER, "12", "expected a number, not text"),
    (NUMBER, True, "expected a number, not a boolean"),
    (NUMBER, math.nan, "not a finite number"),
    (NUMBER, -math.inf, "not a finite number"),
    (NUMBER, 10**400, "beyond the range"),
    (NUMBER, Decimal("NaN"), "not a finite number"),
    (NUMBER, Decimal("12345678901234567890.12"), "lose digits"),
    (NUMBER, Decimal("1e400"), "lose digits"),
    (NUMBER, Decimal("1e-400"), "lose digits"),
    (INTEGER, True, "expected an integer, not a boolean"),
    (INTEGER, "12", "expected an integer, not text"),
    (INTEGER, 1.0, "expected an integer, not a number"),
    (INTEGER, Decimal(1), "expected an integer, not a number"),
    (INTEGER, 2**63, "beyond 64 bits"),
    (INTEGER, 10**5000, "beyond 64 bits"),
    (BOOLEAN, 1, "expected true or false, not an integer"),
    (BOOLEAN, "true", "expected true or false, not text"),
    (DATE, "2023-02-29", "day"),
    (DATE, "20240229", "YYYY-MM-DD"),
    (DATE, "2024-W09-4", "YYYY-MM-DD"),
    (DATE, "2024-02-29T00:00:00Z", "YYYY-MM-DD"),
    (DATE, "２０２４-02-29", "YYYY-MM-DD"),
    (DATE, "2024-02-29\n", "YYYY-MM-DD"),
    (DATE, datetime(2024, 2, 29, tzinfo=UTC), "expected a date, not datetime"),
    (DATE, 20240229, "expected a date, not an integer"),
    (DATETIME, "2026-11-29T13:00:00", "carries no offset"),
    (DATETIME, datetime(2026, 11, 29), "carries no offset"),
    (DATETIME, "2026-11-29 13:00:00Z", "ISO 8601"),
    (DATETIME, "2026-11-29", "ISO 8601"),
    (DATETIME, "2026-11-29T13:00:00.1234567Z", "ISO 8601"),
    (DATETIME, "2026-11-29T25:00:00Z", "hour"),
    (DATETIME, "2026-11-29T13:00:00+25:00", "offset"),
    (DATETIME, "2026-11-29T13:00:00+01", "ISO 8601"),
    (DATETIME, datetime(1, 1, 1, tzinfo=timezone(timedelta(seconds=90))), "UTC"),
    (DATETIME, date(2026, 11, 29), "expected a date and time, not date"),
    (CHOICE, "developer", "not one of the choices"),
    (CHOICE, " developers", "not one of the choices"),
    (CHOICE, "", "not one of the choices"),
    (CHOICE, 1, "not an integer"),
    (LIST, (1, 2), "expected a list, not tuple"),
    (LIST, "[1]", "expected a list, not text"),
    (LIST, [1, "2"], "item 2: type integer: '2'"),
    (LIST, [None], "item 1: type integer: None"),
    (JSON, {"a": math.nan}, "not a JSON number"),
    (JSON, {1: 2}, "key"),
    (JSON, {"when": date(2024, 1, 1)}, "not JSON"),
    (URL, "example.org", "http:// or https://"),
    (URL, "ftp://example.org", "http:// or https://"),
    (URL, "javascript:alert(1)", "http:// or https://"),
    (URL, "https://", "no host"),
    (URL, "https:///path", "no host"),
    (URL, "https://:80/", "no host"),
    (URL, "https://example.org:port/", "[Pp]ort"),
    (URL, "https://[::1/", "IPv6"),
    (URL, " https://example.org", "no spaces"),
    (URL, "https://exa\tmple.org", "no spaces"),
    (URL, "https://example.org\\@evil.test", "backslash"),
    (URL, "https://example.org/\x00", "no spaces"),
    (URL, "https://example.org/\ud800", "no spaces"),
    (URL, 1, "expected a URL"),
]


@pytest.mark.parametrize(("column_type", "value", "why"), cases(REFUSED))
def test_refuses(column_type: ColumnType, value: Any, why: str) -> None:
    with pytest.raises(BadValueError, match=why) as refused:
        column_type.accept(value)
    assert str(refused.value).startswith("type ")


PARSED: list[tuple[ColumnType, Any, Any]] = [
    (TEXT, "0870", "0870"),
    (TEXT, "", ""),
    (TEXT, " true ", " true "),
    (NUMBER, "42", 42),
    (NUMBER, "1.0", 1.0),
    (NUMBER, "1e3", 1000.0),
    (NUMBER, "-0.5E-2", -0.005),
    (NUMBER, "0.10000000000000001", 0.1),
    (NUMBER, "0.1000000000000000055511151231257827021181583404541015625", 0.1),
    (NUMBER, "123456789012345678901234567890", 123456789012345678901234567890),
    (INTEGER, "0", 0),
    (INTEGER, "-7", -7),
    (BOOLEAN, "TRUE", True),
    (BOOLEAN, "False", False),
    (DATE, "2024-02-29", "2024-02-29"),
    (DATETIME, "2026-11-29T13:00Z", "2026-11-29T13:00:00+00:00"),
    (CHOICE, "Developers", "developers"),
    (LIST, "[1, 2]", [1, 2]),
    (ColumnType("list", items="text"), '["a,b", ""]', ["a,b", ""]),
    (JSON, '{"a": [1, 2.5, null]}', {"a": [1, 2.5, None]}),
    (JSON, '"\\ud800\\u0000x"', "x"),
    (URL, "http://example.org", "http://example.org"),
]


@pytest.mark.parametrize(("column_type", "text", "value"), cases(PARSED))
def test_parses(column_type: ColumnType, text: str, value: Any) -> None:
    parsed = column_type.parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


UNPARSED: list[tuple[ColumnType, Any, Any]] = [
    (INTEGER, "1e3", "use type number"),
    (INTEGER, "1.0", "use type number"),
    (INTEGER, "0870", "leading zero; use type text"),
    (INTEGER, "-0", "expected digits|use type number"),
    (INTEGER, "+5", "expected digits"),
    (INTEGER, " 5", "expected digits"),
    (INTEGER, "5\n", "expected digits"),
    (INTEGER, "1_000", "expected digits"),
    (INTEGER, "1,000", "expected digits"),
    (INTEGER, "５", "expected digits"),
    (INTEGER, "", "expected digits"),
    (INTEGER, "9" * 19, "beyond 64 bits"),
    (INTEGER, "9" * 10_000, "beyond 64 bits"),
    (NUMBER, "0870", "leading zero; use type text"),
    (NUMBER, "NaN", "expected a number"),
    (NUMBER, "Infinity", "expected a number"),
    (NUMBER, "1e999", "lose digits"),
    (NUMBER, "1e-999", "lose digits"),
    (NUMBER, "1e9999999", "expected a number"),
    (NUMBER, "0.12345678901234567890", "lose digits"),
    (NUMBER, "9" * 10_000, "beyond the range"),
    (NUMBER, ".5", "expected a number"),
    (NUMBER, "1,5", "expected a number"),
    (NUMBER, "", "expected a number"),
    (BOOLEAN, "yes", "expected true or false"),
    (BOOLEAN, "1", "expected true or false"),
    (BOOLEAN, "", "expected true or false"),
    (LIST, "1,2", "not JSON"),
    (LIST, '{"a": 1}', "expected a list, not an object"),
    (LIST, '["1"]', "item 1"),
    (JSON, "{'a': 1}", "not JSON"),
    (JSON, "NaN", "NaN"),
    (JSON, '{"a": Infinity}', "Infinity"),
    (JSON, '{"a": 1, "a": 2}', "same key twice"),
    (JSON, "[" * 100_000, "not JSON"),
    (JSON, "1" * 5_000, "not JSON"),
    (JSON, "1e999", "not a JSON number"),
    (JSON, "null", "leave the cell empty"),
    (JSON, "", "not JSON"),
]


@pytest.mark.parametrize(("column_type", "text", "why"), cases(UNPARSED))
def test_refuses_to_parse(column_type: ColumnType, text: str, why: str) -> None:
    with pytest.raises(BadValueError, match=why) as refused:
        column_type.parse(text)
    assert len(str(refused.value)) < 300


@by_name
def test_null_is_no_value(column_type: ColumnType) -> None:
    with pytest.raises(BadValueError, match="leave the cell empty"):
        column_type.accept(None)


@by_name
def test_messages_never_carry_a_whole_long_value(column_type: ColumnType) -> None:
    if column_type in (TEXT, JSON):
        return  # they accept it
    with pytest.raises(BadValueError) as refused:
        column_type.accept("secret " * 1000)
    assert str(refused.value).startswith(f"type {column_type.name}: 'secret ")
    assert len(str(refused.value)) < 250


anything = st.one_of(
    st.text(st.characters()),
    st.integers(),
    st.floats(),
    st.booleans(),
    st.decimals(),
    st.dates(),
    st.datetimes(timezones=st.none() | st.timezones()),
    st.lists(st.integers() | st.text(), max_size=3),
    st.dictionaries(st.text(), st.floats(), max_size=3),
    st.sampled_from(["https://a.b", "2024-01-01", "2024-01-01T00:00Z", "developers", "[1]", "true", "-1", "1.50"]),
)


@by_name
@given(value=anything)
def test_what_is_accepted_is_json_and_accepted_again_unchanged(column_type: ColumnType, value: object) -> None:
    try:
        accepted = column_type.accept(value)
    except BadValueError:
        return
    written = json.dumps(accepted, allow_nan=False, ensure_ascii=False)
    written.encode("utf-8")
    assert column_type.accept(json.loads(written)) == accepted


@by_name
@given(text=st.text(st.characters()) | st.from_regex(r"[-+0-9.eE]{1,20}", fullmatch=True))
def test_what_parses_is_accepted_unchanged(column_type: ColumnType, text: str) -> None:
    try:
        parsed = column_type.parse(text)
    except BadValueError:
        return
    assert column_type.accept(parsed) == parsed


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_integer_parses_from_its_own_spelling(number: int) -> None:
    assert INTEGER.parse(str(number)) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_double_parses_from_its_shortest_and_its_longer_spellings(number: float) -> None:
    assert NUMBER.parse(repr(number)) == number
    assert NUMBER.parse(f"{number:.17g}") == number


@given(st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-(10**12), max_value=10**12))
def test_amounts_up_to_fifteen_digits_are_numbers(amount: Decimal) -> None:
    accepted = NUMBER.accept(amount)
    assert isinstance(accepted, float)
    assert f"{accepted:.2f}" == str(amount) or amount == 0


@by_name
def test_schema_of_strict_structured_output(column_type: ColumnType) -> None:
    schema = column_type.json_schema()
    assert schema["type"] in {"string", "number", "integer", "boolean", "array"}
    json.dumps(schema)


def test_schemas_say_what_fits() -> None:
    assert CHOICE.json_schema() == {"type": "string", "enum": ["developers", "Data scientists", "Straße"]}
    assert LIST.json_schema() == {"type": "array", "items": {"type": "integer"}}
    many = ColumnType("list", ("a", "b"), "choice")
    assert many.json_schema() == {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}


def test_answers_of_type_json_come_as_text() -> None:
    assert JSON.accept_answer('{"a": [1]}') == {"a": [1]}
    assert JSON.accept_answer('"text"') == "text"
    with pytest.raises(BadValueError, match="not JSON"):
        JSON.accept_answer("text")
    with pytest.raises(BadValueError, match="expected JSON text"):
        JSON.accept_answer({"a": 1})
    assert ColumnType("list", items="json").accept_answer(["1", '{"a": 2}']) == [1, {"a": 2}]
    assert LIST.accept_answer([1]) == [1]
    assert TEXT.accept_answer("0870") == "0870"
    with pytest.raises(BadValueError):
        INTEGER.accept_answer("12")


@pytest.mark.parametrize(
    "arguments",
    [("string",), ("choice",), ("text", ("a",)), ("list",), ("text", (), "text"), ("list", ("a",), "text")],
)
def test_a_type_that_makes_no_sense_is_refused(arguments: Any) -> None:
    with pytest.raises(ValueError, match="type"):
        ColumnType(*arguments)


@by_name
def test_types_survive_json(column_type: ColumnType) -> None:
    assert ColumnType.from_json(json.loads(json.dumps(column_type.to_json()))) == column_type
