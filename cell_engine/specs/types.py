"""The eleven column types: what a cell may hold. A value that does not fit is refused, never cast.

`accept` takes a value that already has a type (Parquet, a model's or a function's answer); `parse` takes text
(CSV, the command line). Both return JSON, cleaned; both raise BadValueError with a message that names the type and
a shortened value. Every JSON value they return is accepted again, unchanged.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal, cast, get_args
from urllib.parse import urlsplit

from cell_engine.errors import BadValueError
from cell_engine.specs.paths import check_path
from cell_engine.specs.text import Json, clean, clean_text, fits_double, shorten

__all__ = ["ColumnType", "ItemType", "Json", "ValueType", "clean", "clean_text", "shorten"]

ItemType = Literal["text", "number", "integer", "boolean", "date", "datetime", "choice", "json", "url", "file"]
ValueType = Literal["text", "number", "integer", "boolean", "date", "datetime", "choice", "list", "json", "url", "file"]

# What bigint holds, so that the typed view can cast every integer.
_INTEGER_MIN, _INTEGER_MAX = -(2**63), 2**63 - 1

_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?P<real>(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,6})?)")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+(?:\.[0-9]*)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
# Six digits of a second at most: fromisoformat drops further ones without a word.
_DATETIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?(?P<offset>\S*)")
_OFFSET = re.compile(r"Z|[-+][0-9]{2}:[0-9]{2}")
# urlsplit drops tabs and newlines; browsers read a backslash as a slash. Refuse both rather than guess.
_URL_FORBIDDEN = re.compile("[\x00-\x20\x7f-\xa0\u2028\u2029\ud800-\udfff\\\\]|\\s")

OTHER_UNIT = "other"
"""What a model says of an amount that is in another unit than the column's: no unit may be called so."""

_JSON_TEXT = "The JSON value, written as JSON text."


@dataclass(frozen=True)
class ColumnType:
    """A column's type: its name, the `choices` where values are choices, the type of a list's `items`.

    `unit` or `currency` (ISO 4217): what the column's numbers count. Values are numbers all the same; a model has to
    say that what it read was in it.
    """

    name: ValueType
    choices: tuple[str, ...] = ()
    items: ItemType | None = None
    unit: str | None = None
    currency: str | None = None

    def __post_init__(self) -> None:
        if self.name not in get_args(ValueType):
            raise ValueError(f"unknown type {self.name!r}")
        if (self.name == "list") != (self.items is not None):
            raise ValueError(f"type {self.name} with items {self.items!r}: a list has items, other types have none")
        if ("choice" in (self.name, self.items)) != bool(self.choices):
            raise ValueError(f"type {self.name} with choices {self.choices!r}: choices belong to type choice")

    def accept(self, value: object) -> Json:
        """`value` as this type's JSON. Raises BadValueError; null fits no type: an absent value is no value."""
        if value is None:
            raise self._bad(value, "null is not a value: leave the cell empty")
        return _ACCEPT[self.name](self, value)

    def parse(self, text: str) -> Json:
        """The value that `text` (a CSV field, an argument) writes out. Raises BadValueError.

        Text stays as it is, the empty one too; other types take one spelling each and no surrounding spaces. A list
        is a JSON array.
        """
        match self.name:
            case "integer":
                return self.accept(self._parse_integer(text))
            case "number":
                return self.accept(self._parse_number(text))
            case "boolean":
                return self._parse_boolean(text)
            case "list" | "json":
                return self.accept(self._parse_json(text))
            case _:
                return self.accept(text)

    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema of one value, within what strict structured output allows.

        Strict output cannot say "any JSON", so type json is asked for as JSON text: read answers by `accept_answer`.
        """
        match self.name:
            case "text":
                return {"type": "string"}
            case "number" | "integer" if self._measure is not None:
                return self._measured_schema(self._measure)
            case "number" | "integer" | "boolean":
                return {"type": self.name}
            case "date":
                return {"type": "string", "format": "date", "description": "YYYY-MM-DD"}
            case "datetime":
                described = "ISO 8601 with an offset, such as 2026-11-29T13:00:00+00:00"
                return {"type": "string", "format": "date-time", "description": described}
            case "choice":
                return {"type": "string", "enum": list(self.choices)}
            case "url":
                return {"type": "string", "description": "An absolute http or https URL."}
            case "file":
                return {"type": "string", "description": "The relative path of a file."}
            case "json":
                return {"type": "string", "description": _JSON_TEXT}
            case "list":
                return {"type": "array", "items": self._item_type.json_schema()}

    def accept_answer(self, value: object) -> Json:
        """Accepts a value that was asked for by `json_schema`, where json travels as text. Raises BadValueError."""
        if self.name == "json":
            if not isinstance(value, str):
                raise self._bad(value, "expected JSON text")
            return self.parse(value)
        if self.name == "list" and self.items == "json" and isinstance(value, list):
            return self._accept_items(value, self._item_type.accept_answer)
        if self._measure is not None:
            return self._accept_measured(value, self._measure)
        return self.accept(value)

    def as_answer(self, value: Json) -> Json:
        """A value as a model is to write it: what `accept_answer` takes back."""
        if self.name == "json":
            return json.dumps(value, ensure_ascii=False)
        if self.name == "list" and self.items == "json" and isinstance(value, list):
            return [json.dumps(item, ensure_ascii=False) for item in value]
        return value if self._measure is None else {"amount": value, "unit": self._measure}

    def to_json(self) -> dict[str, Json]:
        definition: dict[str, Json] = {"name": self.name}
        if self.choices:
            definition["choices"] = list(self.choices)
        if self.items:
            definition["items"] = self.items
        if self.unit:
            definition["unit"] = self.unit
        if self.currency:
            definition["currency"] = self.currency
        return definition

    @classmethod
    def from_json(cls, definition: Mapping[str, Any]) -> "ColumnType":
        more = (definition.get(key) for key in ("items", "unit", "currency"))
        return cls(definition["name"], tuple(definition.get("choices", ())), *more)

    @property
    def _measure(self) -> str | None:
        return self.unit or self.currency

    def _measured_schema(self, measure: str) -> dict[str, Any]:
        """The unit comes along: asked for the number alone, a model gives dollars for euros without a word."""
        what = f"the currency {measure} (ISO 4217)" if self.currency else f"the unit {measure}"
        said = f"{measure} if the amount is in {what}, or without any there; {OTHER_UNIT} if it is in another one."
        return {
            "type": "object",
            "properties": {
                "amount": {"type": self.name, "description": "The number alone, as it stands there: not converted."},
                "unit": {"type": "string", "enum": [measure, OTHER_UNIT], "description": said},
            },
            "required": ["amount", "unit"],
            "additionalProperties": False,
        }

    def _accept_measured(self, value: object, measure: str) -> Json:
        if not isinstance(value, dict) or value.keys() != {"amount", "unit"}:
            raise self._bad(value, 'expected an object with the keys "amount" and "unit"')
        if value["unit"] != measure:
            raise self._bad(value["amount"], f"not in {measure}, which is what this column holds; nothing is converted")
        return self.accept(value["amount"])

    @property
    def _item_type(self) -> "ColumnType":
        return ColumnType(cast(ItemType, self.items), self.choices)

    def _bad(self, value: object, why: str) -> BadValueError:
        shown = str(value)[:80] if isinstance(value, Decimal) else shorten(value)
        return BadValueError(f"type {self.name}: {shown}: {why}")

    def _accept_text(self, value: object) -> Json:
        if not isinstance(value, str):
            raise self._bad(value, f"expected text, not {_kind_of(value)}")
        return clean_text(value)

    def _accept_integer(self, value: object) -> Json:
        if type(value) is not int:
            raise self._bad(value, f"expected an integer, not {_kind_of(value)}")
        if not _INTEGER_MIN <= value <= _INTEGER_MAX:
            raise self._bad(value, "beyond 64 bits; use type text")
        return value

    def _accept_number(self, value: object) -> Json:
        if isinstance(value, Decimal):
            return self._to_double(value)
        if type(value) is int:
            if not fits_double(value):
                raise self._bad(value, "beyond the range of a double; use type text")
            return value
        if not isinstance(value, float):
            raise self._bad(value, f"expected a number, not {_kind_of(value)}")
        if not math.isfinite(value):
            raise self._bad(value, "not a finite number")
        return float(value)

    def _to_double(self, decimal: Decimal) -> float:
        """The double that, printed to as many digits as `decimal` has, is that number again: no digit is lost."""
        if not decimal.is_finite():
            raise self._bad(decimal, "not a finite number")
        double = float(decimal)
        digits = len(decimal.as_tuple().digits)
        # repr() is the shortest text that is this double; on a rounding tie the format breaks the other way.
        if math.isfinite(double) and decimal in (Decimal(repr(double)), Decimal(f"{double:.{digits}g}")):
            return double
        raise self._bad(str(decimal), "a double would lose digits; use type text")

    def _accept_boolean(self, value: object) -> Json:
        if not isinstance(value, bool):
            raise self._bad(value, f"expected true or false, not {_kind_of(value)}")
        return value

    def _accept_date(self, value: object) -> Json:
        if isinstance(value, date) and not isinstance(value, datetime):
            return value.isoformat()
        if not isinstance(value, str):
            raise self._bad(value, f"expected a date, not {_kind_of(value)}")
        if not _DATE.fullmatch(value):
            raise self._bad(value, "expected YYYY-MM-DD")
        try:
            return date.fromisoformat(value).isoformat()
        except ValueError as error:
            raise self._bad(value, str(error)) from None

    def _accept_datetime(self, value: object) -> Json:
        if isinstance(value, str):
            value = self._parse_datetime(value)
        if not isinstance(value, datetime):
            raise self._bad(value, f"expected a date and time, not {_kind_of(value)}")
        offset = value.utcoffset()
        if offset is None:
            raise self._bad(value.isoformat(), "carries no offset; add Z or one such as +01:00")
        if offset.total_seconds() % 60:  # local mean time: ISO 8601 has no seconds in an offset
            try:
                value = value.astimezone(UTC)
            except OverflowError:
                raise self._bad(value.isoformat(), "has an offset of seconds, and no UTC equivalent") from None
        return value.isoformat()

    def _parse_datetime(self, text: str) -> datetime:
        match = _DATETIME.fullmatch(text)
        if not match or not (match["offset"] == "" or _OFFSET.fullmatch(match["offset"])):
            raise self._bad(text, "expected ISO 8601 with an offset, such as 2026-11-29T13:00:00+00:00")
        try:
            return datetime.fromisoformat(text)
        except ValueError as error:
            raise self._bad(text, str(error)) from None

    def _accept_choice(self, value: object) -> Json:
        if not isinstance(value, str):
            raise self._bad(value, f"expected one of the choices, not {_kind_of(value)}")
        for choice in self.choices:
            if choice == value:
                return choice
        folded = value.casefold()
        for choice in self.choices:
            if choice.casefold() == folded:
                return choice
        raise self._bad(value, f"not one of the choices {shorten(list(self.choices), 200)}")

    def _accept_list(self, value: object) -> Json:
        if not isinstance(value, list):
            raise self._bad(value, f"expected a list, not {_kind_of(value)}")
        return self._accept_items(value, self._item_type.accept)

    def _accept_items(self, values: list[Any], accept: Callable[[object], Json]) -> list[Json]:
        accepted = []
        for position, value in enumerate(values, 1):
            try:
                accepted.append(accept(value))
            except BadValueError as error:
                raise BadValueError(f"type list: item {position}: {error}") from None
        return accepted

    def _accept_json(self, value: object) -> Json:
        return clean(value)

    def _accept_url(self, value: object) -> Json:
        if not isinstance(value, str):
            raise self._bad(value, f"expected a URL, not {_kind_of(value)}")
        if _URL_FORBIDDEN.search(value):
            raise self._bad(value, "a URL has no spaces, control characters or backslashes")
        try:
            parts = urlsplit(value)
            _ = parts.port  # raises for a port that is none
        except ValueError as error:
            raise self._bad(value, str(error)) from None
        if parts.scheme not in ("http", "https"):
            raise self._bad(value, "a URL starts with http:// or https://")
        if not parts.hostname:
            raise self._bad(value, "the URL names no host")
        return clean_text(value)

    def _accept_file(self, value: object) -> Json:
        if not isinstance(value, str):
            raise self._bad(value, f"expected a path, not {_kind_of(value)}")
        try:
            return check_path(value)
        except BadValueError as error:
            raise BadValueError(f"type file: {error}") from None

    def _parse_integer(self, text: str) -> int:
        if _INTEGER.fullmatch(text):
            if len(text) > 20:  # longer than any 64-bit integer, and int() refuses thousands of digits
                raise self._bad(text, "beyond 64 bits; use type text")
            return int(text)
        if _LEADING_ZERO.fullmatch(text):
            raise self._bad(text, "an integer would lose the leading zero; use type text")
        if _NUMBER.fullmatch(text):
            raise self._bad(text, "not written as an integer; use type number")
        raise self._bad(text, "expected digits, such as 42 or -7")

    def _parse_number(self, text: str) -> int | float:
        match = _NUMBER.fullmatch(text)
        if match:
            if match["real"]:
                return self._to_double(Decimal(text))
            if len(text) > 310:  # longer than the largest double
                raise self._bad(text, "beyond the range of a double; use type text")
            return int(text)
        if _LEADING_ZERO.fullmatch(text):
            raise self._bad(text, "a number would lose the leading zero; use type text")
        raise self._bad(text, "expected a number, such as 42, -0.5 or 1e3")

    def _parse_boolean(self, text: str) -> bool:
        match text.casefold():
            case "true":
                return True
            case "false":
                return False
        raise self._bad(text, "expected true or false")

    def _parse_json(self, text: str) -> Any:
        try:
            return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
        except (ValueError, RecursionError) as error:
            raise self._bad(text, f"not JSON: {shorten(str(error), 120)}") from None


_ACCEPT: dict[str, Callable[[ColumnType, object], Json]] = {
    "text": ColumnType._accept_text,
    "number": ColumnType._accept_number,
    "integer": ColumnType._accept_integer,
    "boolean": ColumnType._accept_boolean,
    "date": ColumnType._accept_date,
    "datetime": ColumnType._accept_datetime,
    "choice": ColumnType._accept_choice,
    "list": ColumnType._accept_list,
    "json": ColumnType._accept_json,
    "url": ColumnType._accept_url,
    "file": ColumnType._accept_file,
}


def _kind_of(value: object) -> str:
    """What a person calls the type of `value`."""
    names = {bool: "a boolean", int: "an integer", str: "text", list: "a list", dict: "an object"}
    if isinstance(value, float | Decimal):
        return "a number"
    return names.get(type(value), type(value).__name__)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise ValueError("an object has the same key twice")
    return unique
