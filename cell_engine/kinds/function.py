"""The ``function`` kind: a Python function, sync or async, called with the columns that it reads."""

from __future__ import annotations

import asyncio
import copy
import importlib
import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from cell_engine.errors import BadValueError, NotFoundError
from cell_engine.kinds.base import Answer, Call, Failure, Outcome
from cell_engine.kinds.threads import DaemonThreads, Job, Settled
from cell_engine.specs.version import Column

_THREADS = 32
_IDEMPOTENCY_KEY = "idempotency_key"
_WORDS_CHARACTERS = 350  # of an exception, so that the place it was raised at still fits into the message


@dataclass(frozen=True)
class _Function:
    call: Callable[..., Any]
    is_async: bool
    takes_key: bool


@dataclass(frozen=True)
class _Result:
    value: Any


class _Progress:
    """The job a call waits for in a thread, if any: a deadline is told differently while it has not started."""

    job: Job | None = None


class FunctionKind:
    """Calls ``module:callable`` with one keyword argument per dependency, None for an optional one that is absent.

    A function with a parameter ``idempotency_key`` gets that, too: it may be called again after a crash. Sync
    functions run in threads. One that outlives its deadline is given up, but goes on until it returns by itself.
    """

    name = "function"

    def __init__(self) -> None:
        self._functions: dict[str, _Function] = {}
        self._threads = DaemonThreads(_THREADS)

    def check(self, column: Column) -> None:
        """Raises NotFoundError, naming the column, if its function cannot be imported here."""
        self._imported(column)

    def at_once(self, call: Call) -> Outcome | None:
        """The outcome of a sync function whose column says `inline`, once it is imported."""
        if not call.column.settings.get("inline"):
            return None
        function = self._functions.get(_name(call.column))
        if function is None or function.is_async:
            return None
        try:
            result = function.call(**_arguments(function, call))
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001 - as in `_run`
            return Failure("function_error", _told(error, function.call))
        return _answer(call, result)

    def provider(self, column: Column) -> None:
        """Nobody's limits but the worker's own."""

    async def compute(self, call: Call) -> Outcome:
        """Call the function; what it raises is the cell's ``function_error``, with the place it was raised at."""
        progress = _Progress()
        try:
            async with asyncio.timeout(call.deadline):
                result = await self._run(call, progress)
        except TimeoutError:
            return Failure("transient", self._late(call, progress))
        if isinstance(result, Failure):
            return result
        return _answer(call, result.value)

    async def close(self) -> None:
        """Let the threads end; functions that still run are not waited for."""
        self._threads.close()

    async def _run(self, call: Call, progress: _Progress) -> _Result | Failure:
        name = _name(call.column)
        try:
            function = self._functions.get(name) or await self._import_in_thread(call.column, progress)
        except NotFoundError as error:
            return Failure("function_error", str(error))
        work = partial(function.call, **_arguments(function, call))
        try:
            if function.is_async:
                result = await work()
            else:
                # Not raised again: a StopIteration would change on its way out of a coroutine.
                result, raised = await self._in_thread(work, progress)
                if raised is not None:
                    return Failure("function_error", _told(raised, function.call))
            return _Result(await result if inspect.isawaitable(result) else result)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # the deadline, or the worker that stops
            return Failure("function_error", _told(error, function.call))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a function raises is that cell's error
            return Failure("function_error", _told(error, function.call))

    async def _import_in_thread(self, column: Column, progress: _Progress) -> _Function:
        """For the function of a version that was applied since the worker started: importing it may block."""
        function, raised = await self._in_thread(partial(self._imported, column), progress)
        if raised is not None:
            raise raised
        return cast(_Function, function)

    async def _in_thread(self, work: Callable[[], Any], progress: _Progress) -> Settled:
        progress.job = self._threads.submit(work)
        return await progress.job.done

    def _imported(self, column: Column) -> _Function:
        name = _name(column)
        if name not in self._functions:
            self._functions[name] = _import(name, column)
        return self._functions[name]

    def _late(self, call: Call, progress: _Progress) -> str:
        name, seconds = _name(call.column), f"{call.deadline:g} s"
        if progress.job is not None and not progress.job.started:
            return f"{name} did not start within {seconds}: all {self._threads.most} threads are busy."
        return f"{name} did not return within {seconds}. Raise the column's timeout if it needs longer."


def _name(column: Column) -> str:
    return str(column.settings["name"])


def _answer(call: Call, result: Any) -> Outcome:
    try:
        return Answer(call.column.type.accept(result))
    except BadValueError as error:
        return Failure("schema", f"The result of {_name(call.column)} does not fit: {error}")


def _arguments(function: _Function, call: Call) -> dict[str, Any]:
    arguments: dict[str, Any] = {_IDEMPOTENCY_KEY: call.idempotency_key} if function.takes_key else {}
    for column, value in call.inputs.items():
        # A copy: other columns of the row read the same value, perhaps at the same time.
        arguments[call.names[column]] = copy.deepcopy(value)
    return arguments


def _import(name: str, column: Column) -> _Function:
    module_name, _, path = name.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
        for attribute in path.split("."):
            found = getattr(found, attribute)
    except (Exception, SystemExit) as error:  # importing runs the module, which may do anything
        raise _missing(name, column, _words(error)) from error
    if not callable(found):
        raise _missing(name, column, f"it is not a function but {type(found).__name__}")
    return _Function(
        call=found,
        is_async=inspect.iscoroutinefunction(found) or inspect.iscoroutinefunction(type(found).__call__),
        takes_key=_IDEMPOTENCY_KEY in _parameters(found),
    )


def _missing(name: str, column: Column, why: str) -> NotFoundError:
    return NotFoundError(
        f"Column {column.name!r} calls the function {name!r}, which this process does not have: {why}. "
        "Set function.name to the module:callable of a module installed where the workers run."
    )


def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    try:
        return frozenset(inspect.signature(function).parameters)
    except ValueError:  # some builtins have no signature
        return frozenset()


def _told(error: BaseException, function: Callable[..., Any]) -> str:
    """The exception's words and where it was raised: in the function's own module if that is on the way."""
    frames = [(frame.f_globals.get("__name__", "?"), line) for frame, line in traceback.walk_tb(error.__traceback__)]
    foreign = [place for place in frames if not str(place[0]).startswith(__package__ or __name__)]
    own = [place for place in foreign if place[0] == getattr(function, "__module__", None)]
    at = (own or foreign)[-1:]
    return _words(error) + "".join(f" at {module}:{line}" for module, line in at)


def _words(error: BaseException) -> str:
    """``ValueError: …``, also for an exception whose own text cannot be had."""
    words = "".join(traceback.format_exception_only(error)).strip()
    return words if len(words) <= _WORDS_CHARACTERS else words[: _WORDS_CHARACTERS - 1] + "…"
