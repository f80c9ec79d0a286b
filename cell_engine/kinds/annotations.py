"""A function's annotations held against the columns it reads and fills: what can never fit is told before any call.

Only what is certain: an annotation that says nothing, or that may fit, is no mismatch.
"""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Union

from cell_engine.callables import IDEMPOTENCY_KEY
from cell_engine.specs.types import ColumnType

_NUMBERS = (int, float)
_AWAITABLES = (collections.abc.Awaitable, collections.abc.Coroutine, collections.abc.Generator)

_GIVEN: dict[str, tuple[type, ...]] = {"number": _NUMBERS, "integer": (int,), "boolean": (bool,), "list": (list,)}
"""What a function gets of a column, by its type; of all others text, and of type json anything."""

_TAKEN: dict[str, tuple[type, ...]] = {
    "number": (*_NUMBERS, Decimal),
    "integer": (int,),
    "boolean": (bool,),
    "date": (str, date),
    "datetime": (str, datetime),
    "list": (list,),
}
"""What a column takes as a result, by its type; all others text, and type json anything."""


def mismatches(
    function: Callable[..., Any], filled: ColumnType, read: Mapping[str, tuple[ColumnType, bool]]
) -> list[str]:
    """What of `function` cannot fit. `filled` is its own column's type; `read`, by argument, the type of each column
    that it reads, and whether that may be absent."""
    try:
        parameters = inspect.signature(function).parameters
    except (ValueError, TypeError):  # some builtins have no signature
        return []
    hints = _hints(function)
    found = list(_arguments(parameters, read))
    for name, (column_type, is_optional) in read.items():
        hint = hints.get(name, Any)
        wrong = [given for given in _given(column_type) if not _admits(hint, given)]
        if wrong:
            found.append(
                f"its argument {name} is annotated {_shown(hint)}, and column {name} of type {column_type.name} gives "
                f"{' or '.join(one.__name__ for one in wrong)}"
            )
        elif is_optional and name in hints and not _admits(hint, types.NoneType):
            found.append(
                f"its argument {name} is annotated {_shown(hint)}, and column {name} is optional: it may be None"
            )
    result = _awaited(hints.get("return", Any))
    if not _may_fill(result, filled):
        found.append(f"it is annotated to return {_shown(result)}, which never fits type {filled.name}")
    return found


def _arguments(
    parameters: Mapping[str, inspect.Parameter], read: Mapping[str, tuple[ColumnType, bool]]
) -> collections.abc.Iterator[str]:
    takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    by_name = {
        name
        for name, one in parameters.items()
        if one.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    }
    for name in read:
        if name not in by_name and not takes_any:
            yield f"it takes no argument {name}, by which the column it reads is given"
    for name, one in parameters.items():
        needed = one.default is inspect.Parameter.empty and one.kind not in (
            inspect.Parameter.VAR_KEYWORD,
            inspect.Parameter.VAR_POSITIONAL,
        )
        if needed and name not in read and name != IDEMPOTENCY_KEY:
            yield f"it needs an argument {name}, and the column reads none of that id"


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    called = function if inspect.isroutine(function) or inspect.isclass(function) else type(function).__call__
    try:
        return typing.get_type_hints(called)
    except Exception:  # noqa: BLE001 - names that only a type checker knows, or whatever evaluating them does
        return {}


def _given(column_type: ColumnType) -> tuple[type, ...]:
    return () if column_type.name == "json" else _GIVEN.get(column_type.name, (str,))


def _may_fill(hint: Any, filled: ColumnType) -> bool:
    """Whether some value of `hint` fits the column."""
    if filled.name == "json":
        return True
    options = _options(hint)
    if filled.name == "choice":
        words = [one for one in options if isinstance(one, str)]
        if words and len(words) == len(options):
            folded = {choice.casefold() for choice in filled.choices}
            return any(word.casefold() in folded for word in words)
    return any(_is_taken(option, taken) for option in options for taken in _TAKEN.get(filled.name, (str,)))


def _is_taken(option: Any, taken: type) -> bool:
    """Whether a value of `option` may be a `taken`; bool is no int here, nor a datetime a date, as in a cell."""
    if option in (Any, object):
        return True
    if not isinstance(option, type):
        return type(option) is taken
    if {option, taken} & {bool, datetime}:
        return option is taken
    return _is_subclass(option, taken) or _is_subclass(taken, option)


def _admits(hint: Any, given: type) -> bool:
    """Whether a value of the class `given` is one of `hint`."""
    return any(_takes(option, given) for option in _options(hint))


def _takes(option: Any, given: type) -> bool:
    if option is Any:
        return True
    if not isinstance(option, type):
        return type(option) is given
    return _is_subclass(given, option) or (given is int and option in (float, complex))


def _options(hint: Any) -> list[Any]:
    """The classes, and the values of Literals, that a hint stands for; Any for what says nothing."""
    origin = typing.get_origin(hint)
    if hint is None:
        return [types.NoneType]
    if origin in (Union, types.UnionType):
        return [option for one in typing.get_args(hint) for option in _options(one)]
    if origin is typing.Literal:
        return list(typing.get_args(hint))
    if origin is typing.Annotated:
        return _options(typing.get_args(hint)[0])
    if isinstance(hint, typing.NewType):
        return _options(hint.__supertype__)
    found = origin or hint
    return [found] if isinstance(found, type) else [Any]


def _awaited(hint: Any) -> Any:
    """Of a sync function that returns an awaitable: what that comes to."""
    return (typing.get_args(hint) or (Any,))[-1] if typing.get_origin(hint) in _AWAITABLES else hint


def _is_subclass(one: type, other: type) -> bool:
    try:
        return issubclass(one, other)
    except TypeError:  # a protocol that cannot be asked at run time
        return True


def _shown(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and typing.get_origin(hint) is None else str(hint)
