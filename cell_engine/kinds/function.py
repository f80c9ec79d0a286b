"""The ``function`` kind: a Python function, sync or async, called with the columns that it reads."""

from __future__ import annotations

import asyncio
import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from cell_engine.callables import IDEMPOTENCY_KEY, Function, MissingError, call_here, find, raised_words
from cell_engine.errors import BadValueError, NotFoundError
from cell_engine.kinds.base import Answer, Call, Failure, Outcome
from cell_engine.kinds.pool import PoolError, ProcessPool
from cell_engine.kinds.threads import DaemonThreads, Job, Settled
from cell_engine.specs import allowed
from cell_engine.specs.version import Column

_THREADS = 32


@dataclass(frozen=True)
class _Result:
    value: Any


class _Progress:
    """The job a call waits for in a thread, if any: a deadline is told differently while it has not started."""

    job: Job | None = None


class FunctionKind:
    """Calls ``module:callable`` with one keyword argument per dependency, None for an optional one that is absent.

    A function with a parameter ``idempotency_key`` gets that, too: it may be called again after a crash. Sync
    functions run in threads: one that outlives its deadline is given up, but goes on until it returns by itself, and
    keeps its thread. Those of columns that say `process` run in processes, which are ended with the call's time.
    """

    name = "function"

    def __init__(self) -> None:
        self._functions: dict[str, Function] = {}
        self._threads = DaemonThreads(_THREADS)
        self._pool = ProcessPool()

    def check(self, column: Column) -> None:
        """Raises NotFoundError, naming the column, if its function cannot be imported here, or is not allowed."""
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
            return Failure("function_error", raised_words(error, function.call))
        return _answer(call, result)

    def provider(self, column: Column) -> None:
        """Nobody's limits but the worker's own."""

    async def compute(self, call: Call) -> Outcome:
        """Call the function; what it raises is the cell's ``function_error``, with the place it was raised at."""
        if call.column.settings.get("process"):
            return await self._compute_in_process(call)
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
        """Let the threads end; functions that still run are not waited for. Processes are ended."""
        self._threads.close()
        await self._pool.close()

    async def _compute_in_process(self, call: Call) -> Outcome:
        name = _name(call.column)
        try:
            function = self._functions.get(name) or await self._import_in_thread(call.column, _Progress())
            arguments = _arguments(function, call)
            result, raised = await self._pool.run(call_here, function, arguments, timeout=call.deadline)
        except NotFoundError as error:
            return Failure("function_error", str(error))
        except PoolError as error:
            return Failure(error.error_class, f"{name}: {error}")
        return Failure("function_error", raised) if raised is not None else _answer(call, result)

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
                    return Failure("function_error", raised_words(raised, function.call))
            return _Result(await result if inspect.isawaitable(result) else result)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # the deadline, or the worker that stops
            return Failure("function_error", raised_words(error, function.call))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a function raises is that cell's error
            return Failure("function_error", raised_words(error, function.call))

    async def _import_in_thread(self, column: Column, progress: _Progress) -> Function:
        """For the function of a version that was applied since the worker started: importing it may block."""
        function, raised = await self._in_thread(partial(self._imported, column), progress)
        if raised is not None:
            raise raised
        return cast(Function, function)

    async def _in_thread(self, work: Callable[[], Any], progress: _Progress) -> Settled:
        progress.job = self._threads.submit(work)
        return await progress.job.done

    def _imported(self, column: Column) -> Function:
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


def _arguments(function: Function, call: Call) -> dict[str, Any]:
    arguments: dict[str, Any] = {IDEMPOTENCY_KEY: call.idempotency_key} if function.takes_key else {}
    for column, value in call.inputs.items():
        # A copy: other columns of the row read the same value, perhaps at the same time.
        arguments[call.names[column]] = copy.deepcopy(value)
    return arguments


def _import(name: str, column: Column) -> Function:
    refusal = allowed.refusal(name)
    if refusal is not None:
        raise NotFoundError(f"Column {column.name!r}: {refusal}.")
    try:
        function = find(name)
    except MissingError as error:
        raise NotFoundError(
            f"Column {column.name!r} calls the function {name!r}, which this process does not have: {error}. "
            "Set function.name to the module:callable of a module installed where the workers run, and start "
            "them anew when it has changed."
        ) from error
    if not allowed.is_allowed_at(name, function.module):
        raise NotFoundError(
            f"Column {column.name!r}: {name!r} is defined in {function.module}, which is not allowed here: "
            f"the operator adds {name} to AUTOFILL_FUNCTIONS."
        )
    return function
