"""Cleaning on the way in: what JSON and PostgreSQL can both hold, and values shortened for messages."""

import math
import re
import reprlib
from typing import TypeAlias

from cell_engine.errors import BadValueError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

JSON_DEPTH = 256
"""How deep a value may nest: well below what Python's json and PostgreSQL's jsonb can walk from any caller's stack."""

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""What makes a spreadsheet take a text for a formula, and run it: the text of a cell may come from anywhere."""

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 200
_SHORT.maxlist = _SHORT.maxdict = 8


def clean_text(text: str) -> str:
    """`text` without U+0000 and lone surrogates, which PostgreSQL stores in no text and no jsonb."""
    # str.__str__: a subclass (an enum, a numpy string) must not travel on as itself.
    text = str.__str__(text)
    if "\x00" not in text:
        try:
            text.encode()  # four times as fast as the pattern, far more on ASCII
        except UnicodeEncodeError:
            pass
        else:
            return text
    return _UNSTORABLE.sub("", text)


def clean(value: object) -> Json:
    """`value` as JSON, its texts and keys cleaned.

    Raises BadValueError for what JSON cannot say or two readers would read differently: other types, NaN and
    infinities, numbers no double reaches, nesting beyond JSON_DEPTH, two keys that are one once cleaned.
    """
    return _clean(value, JSON_DEPTH)


def _clean(value: object, depth: int) -> Json:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return clean_text(value)
    if type(value) is int:
        if not fits_double(value):
            raise BadValueError(f"type json: {shorten(value)} is beyond the range of a double")
        return value
    if type(value) is float:
        if not math.isfinite(value):
            raise BadValueError(f"type json: {value!r} is not a JSON number")
        return value
    if depth == 0:
        raise BadValueError(f"type json: nested more than {JSON_DEPTH} deep")
    if isinstance(value, list):
        return [_clean(item, depth - 1) for item in value]
    if isinstance(value, dict):
        cleaned: dict[str, Json] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise BadValueError(f"type json: the key {shorten(key)} is not text")
            name = clean_text(key)
            if name in cleaned:
                raise BadValueError(f"type json: the key {shorten(name)} occurs twice")
            cleaned[name] = _clean(item, depth - 1)
        return cleaned
    raise BadValueError(f"type json: {shorten(value)} ({type(value).__name__}) is not JSON")


def fits_double(number: int) -> bool:
    """Whether a double reaches `number`, so that every reader of JSON and every numeric cast takes it."""
    try:
        float(number)
    except OverflowError:
        return False
    return True


def shorten(value: object, limit: int = 80) -> str:
    """A repr of at most `limit` characters, for messages: it never carries a whole long value."""
    if isinstance(value, str):
        shown = repr(str.__str__(value)[: limit + 1])
    else:
        try:
            shown = _SHORT.repr(value)
        except ValueError:  # Python writes out no integer of more than 4,300 digits
            shown = f"<a {type(value).__name__} with a huge integer>"
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
