"""Python functions by the name that a spec gives them, ``module:callable``: found, called; what they raise, in words.

Imports little: each process that calls one (cell_engine.kinds.pool) imports this first.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

IDEMPOTENCY_KEY = "idempotency_key"
_WORDS_CHARACTERS = 350  # of an exception, so that the place it was raised at still fits into the message


@dataclass(frozen=True)
class Function:
    """``module`` is where it is defined, which need not be where its name finds it; None where that cannot be told.

    Pickled by its name: to unpickle it is to find it there.
    """

    name: str
    call: Callable[..., Any]
    is_async: bool
    takes_key: bool
    module: str | None

    def __reduce__(self) -> tuple[Callable[[str], Function], tuple[str]]:
        return find, (self.name,)


class MissingError(Exception):
    """There is no such function here; the words say why."""


def find(name: str) -> Function:
    """The function of that name; its module is imported. Raises MissingError."""
    module_name, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
        for attribute in path.split("."):
            found = getattr(found, attribute)
    except (Exception, SystemExit) as error:  # importing runs the module, which may do anything
        raise MissingError(words(error)) from error
    if not callable(found):
        raise MissingError(f"it is not a function but {type(found).__name__}")
    return Function(
        name=name,
        call=found,
        is_async=inspect.iscoroutinefunction(found) or inspect.iscoroutinefunction(type(found).__call__),
        takes_key=IDEMPOTENCY_KEY in _parameters(found),
        module=getattr(found, "__module__", None),
    )


def call_here(function: Function, arguments: Mapping[str, Any]) -> tuple[Any, str | None]:
    """Call it in this process, an async one in a loop of its own: (result, None), or (None, what it raised)."""
    try:
        result = function.call(**arguments)
        return (asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result), None
    except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001 - that is the call's error
        return None, raised_words(error, function.call)


async def _awaited(result: Any) -> Any:
    return await result


def raised_words(error: BaseException, function: Callable[..., Any]) -> str:
    """The exception's words and where it was raised: in the function's own module if that is on the way."""
    frames = [(frame.f_globals.get("__name__", "?"), line) for frame, line in traceback.walk_tb(error.__traceback__)]
    foreign = [place for place in frames if not str(place[0]).startswith(_OURS)]
    own = [place for place in foreign if place[0] == getattr(function, "__module__", None)]
    at = (own or foreign)[-1:]
    return words(error) + "".join(f" at {module}:{line}" for module, line in at)


_OURS = (__name__, "cell_engine.kinds")


def words(error: BaseException) -> str:
    """``ValueError: …``, also for an exception whose own text cannot be had."""
    told = "".join(traceback.format_exception_only(error)).strip()
    return told if len(told) <= _WORDS_CHARACTERS else told[: _WORDS_CHARACTERS - 1] + "…"


def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    try:
        return frozenset(inspect.signature(function).parameters)
    except ValueError:  # some builtins have no signature
        return frozenset()
