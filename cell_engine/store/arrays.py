"""Arrays for the batches of the hot path, as PostgreSQL's text form of them.

The driver's own way inspects every element, costs a microsecond for each (20 of a cell's 100, for its 20 columns), and
chooses the array's type by the largest number in it, so that one statement is prepared a dozen times over.
"""

from collections.abc import Iterable


def numbers(values: Iterable[float | bool | None]) -> str:
    """Numbers, truth values and nulls; the statement casts them: `%(rows)s::bigint[]`."""
    return _array(["null" if value is None else str(value) for value in values])


def texts(values: Iterable[str | None]) -> str:
    """Texts, and whatever a statement casts from a text; nulls."""
    return _array(["null" if value is None else _quote(value) for value in values])


def binaries(values: Iterable[bytes | None]) -> str:
    """Byte strings and nulls, for `bytea[]`."""
    # A backslash escapes the next one in an array.
    return _array(["null" if value is None else '"\\\\x' + value.hex() + '"' for value in values])


def _array(items: list[str]) -> str:
    # Nulls alone, as many of a batch's columns are: unnested beside others, an empty array is as many of them.
    return "{}" if items.count("null") == len(items) else f"{{{','.join(items)}}}"


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
