"""What pydantic found wrong, in words for the author of a spec."""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from cell_engine.specs.text import shorten


def mistakes(
    invalid: ValidationError, known_keys: Iterable[str], nested: Mapping[str, type[BaseModel]] | None = None
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Each with the keys and list positions that lead to it. `known_keys` are those of the model that was met, `nested`
    the models within it by the keys that lead there, with dots."""
    for error in invalid.errors(include_url=False):
        inner = (nested or {}).get(".".join(part for part in error["loc"][:-1] if isinstance(part, str)))
        yield error["loc"], explain(error, known_keys if inner is None else inner.model_fields)


def explain(error: ErrorDetails, known_keys: Iterable[str]) -> str:
    """One line for `error`. `known_keys` are those that may stand where an unknown one was met."""
    kind, given = error["type"], error["input"]
    where = place(error["loc"])
    if kind == "missing":
        return f"{where!r} is missing"
    if kind == "extra_forbidden":
        known = sorted(known_keys)
        return f"unknown key {where!r}{suggest(str(error['loc'][-1]), known) or '; known keys: ' + ', '.join(known)}"
    if kind == "value_error":
        return f"{where}: {error['ctx']['error']}"
    if kind == "string_type" and isinstance(given, bool | int | float):
        return f"{where}: expected text, got {shorten(given)}: put it in quotes"
    got = "nothing" if given is None else shorten(given)
    if kind == "literal_error":
        expected = error["ctx"]["expected"]
        return f"{where}: expected {expected}, got {got}{suggest(str(given), expected.split(chr(39))[1::2])}"
    if kind in ("dict_type", "model_type"):
        return f"{where}: expected keys and values, got {got}"
    return f"{where}: {error['msg'].replace('Input should be', 'should be')}, got {got}"


def place(loc: Iterable[str | int]) -> str:
    """`loc` as people write it: deps[0].column."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).removeprefix(".")


def suggest(word: str, options: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the option closest to `word`, or nothing where none is close."""
    folded = {option.casefold(): option for option in options}
    close = get_close_matches(word.casefold(), folded, n=1)
    return f"; did you mean {folded[close[0]]!r}?" if close else ""
