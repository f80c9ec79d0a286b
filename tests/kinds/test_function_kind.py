"""Functions, sync and async: what they get, what becomes of what they return and raise, deadlines."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from cell_engine.errors import NotFoundError
from cell_engine.kinds.base import Answer, Failure, Outcome
from cell_engine.kinds.function import FunctionKind
from cell_engine.specs.text import Json
from cell_engine.specs.types import ColumnType
from cell_engine.specs.version import Column
from tests.kinds import functions
from tests.kinds.helpers import INTEGER, TEXT, call, column, function_column

pytestmark = pytest.mark.anyio


async def _failure(kind: FunctionKind, name: str, deadline: float = 10) -> Failure:
    outcome = await kind.compute(call(function_column(name), "x", deadline=deadline))
    assert isinstance(outcome, Failure)
    return outcome


@pytest.mark.parametrize("name", ["length", "length_later", "Lengths.static", "callable_object"])
async def test_sync_and_async_callables(function: FunctionKind, name: str) -> None:
    assert await function.compute(call(function_column(name), "four")) == Answer(4)


async def test_arguments_are_named_as_the_columns_and_absent_ones_are_none(function: FunctionKind) -> None:
    outcome = await function.compute(call(function_column("both", TEXT, deps=2), "x", None))
    assert outcome == Answer("x+None")


async def test_a_function_that_asks_for_it_gets_the_idempotency_key(function: FunctionKind) -> None:
    assert await function.compute(call(function_column("with_key", TEXT), "x")) == Answer("x/key-1")


async def test_a_sync_function_does_not_run_in_the_event_loop(function: FunctionKind) -> None:
    outcome = await function.compute(call(function_column("thread_name", TEXT), "x"))
    assert isinstance(outcome, Answer)
    assert str(outcome.value).startswith("function-")


async def test_a_function_cannot_change_the_inputs_of_others(function: FunctionKind) -> None:
    given: list[Json] = [1, 2]
    assert await function.compute(call(function_column("mutates"), given)) == Answer(3)
    assert given == [1, 2]


@pytest.mark.parametrize(("name", "said"), [("returns_text", "expected an integer"), ("returns_nothing", "null")])
async def test_a_result_that_does_not_fit_the_type_is_a_schema_failure(
    function: FunctionKind, name: str, said: str
) -> None:
    failure = await _failure(function, name)
    assert failure.error_class == "schema"
    assert said in failure.message
    assert name in failure.message


async def test_a_result_is_cleaned(function: FunctionKind) -> None:
    outcome = await function.compute(call(function_column("returns_text", TEXT), "a\x00b\ud800"))
    assert outcome == Answer("ab")


async def test_an_exception_names_the_line_that_raised_it(function: FunctionKind) -> None:
    source, start = inspect.getsourcelines(functions.fails)
    line = start + next(at for at, text in enumerate(source) if "raise" in text)
    failure = await _failure(function, "fails")
    assert failure == Failure("function_error", f"ValueError: no number in 'x' at tests.kinds.functions:{line}")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fails_below", "LookupError"),
        ("fails_later", "ValueError: invalid literal"),
        ("times_out_by_itself", "TimeoutError: the socket timed out"),
        ("exits", "SystemExit: I quit"),
        ("stops_iteration", "StopIteration"),
        ("fails_without_words", "Unprintable"),
        ("awaits_something_canceled", "CancelledError"),
    ],
)
async def test_whatever_a_function_raises_is_the_cells_error(function: FunctionKind, name: str, said: str) -> None:
    failure = await _failure(function, name)
    assert failure.error_class == "function_error"
    assert said in failure.message
    assert "functions:" in failure.message
    assert await function.compute(call(function_column("length"), "four")) == Answer(4)


async def test_wrong_arguments_are_told(function: FunctionKind) -> None:
    outcome = await function.compute(call(function_column("length", deps=2), "x", "y"))
    assert isinstance(outcome, Failure)
    assert "unexpected keyword argument 'b'" in outcome.message


async def test_messages_are_short_and_hold_no_secrets(function: FunctionKind) -> None:
    outcome = await function.compute(call(function_column("leaks"), "verysecretverysecret"))
    assert isinstance(outcome, Failure)
    assert "verysecret" not in outcome.message
    assert len(outcome.message) <= 500
    assert " at tests.kinds.functions:" in outcome.message


@pytest.mark.parametrize("name", ["blocks", "blocks_later"])
async def test_a_deadline_is_transient_and_nobody_waits_longer(function: FunctionKind, name: str) -> None:
    functions.unblock.clear()
    started = time.monotonic()
    failure = await _failure(function, name, deadline=0.2)
    functions.unblock.set()
    assert time.monotonic() - started < 5
    assert failure.error_class == "transient"
    assert f"{name} did not return within 0.2 s" in failure.message


async def test_functions_run_side_by_side_and_one_that_found_no_thread_says_so(function: FunctionKind) -> None:
    functions.unblock.clear()
    blocked = [asyncio.create_task(function.compute(call(function_column("blocks"), "x"))) for _ in range(32)]
    await asyncio.sleep(0)  # each has submitted its job
    late = await _failure(function, "length", deadline=0.2)
    functions.unblock.set()
    assert late.error_class == "transient"
    assert "did not start within 0.2 s: all 32 threads are busy" in late.message
    outcomes: list[Outcome] = await asyncio.gather(*blocked)
    assert outcomes == [Answer(1)] * 32
    # The job that was given up never ran, and the threads are free again.
    assert await function.compute(call(function_column("length"), "four")) == Answer(4)


async def test_cancel_goes_through(function: FunctionKind) -> None:
    task = asyncio.create_task(function.compute(call(function_column("blocks_later"), "x")))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no_such_module_at_all:f", "No module named"),
        ("tests.kinds.functions:no_such_function", "no_such_function"),
        ("tests.kinds.functions:not_a_function", "not a function but int"),
    ],
)
async def test_an_unknown_function_is_told_at_start_and_at_the_call(
    function: FunctionKind, name: str, said: str
) -> None:
    unknown = column("function", TEXT, {"name": name})
    with pytest.raises(NotFoundError, match="Column 'answer'") as told:
        function.check(unknown)
    assert said in str(told.value)
    outcome = await function.compute(call(unknown, "x"))
    assert outcome == Failure("function_error", str(told.value))


async def test_check_passes_for_a_known_function(function: FunctionKind) -> None:
    function.check(function_column("length"))


async def test_many_calls_use_few_threads(function: FunctionKind) -> None:
    naps = ColumnType("number")
    started = time.monotonic()
    outcomes = await asyncio.gather(
        *(function.compute(call(function_column("sleeps", naps), 0.01)) for _ in range(320))
    )
    assert outcomes == [Answer(0.01)] * 320
    assert time.monotonic() - started < 3


def test_a_function_that_never_returns_does_not_keep_the_process_from_ending() -> None:
    script = """
import asyncio
from cell_engine.kinds.function import FunctionKind
from tests.kinds.helpers import call, function_column
async def main():
    kind = FunctionKind()
    print((await kind.compute(call(function_column("blocks"), "x", deadline=0.1))).error_class)
    await kind.close()
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "transient"


async def test_an_inline_function_answers_at_once_where_it_is_called(function: FunctionKind) -> None:
    inline = call(_inline("thread_name"), "x")
    assert function.at_once(inline) is None  # not imported yet: that may take its time, in a thread
    assert isinstance(await function.compute(inline), Answer)
    assert function.at_once(inline) == Answer(threading.current_thread().name)
    assert function.at_once(call(function_column("thread_name", TEXT), "x")) is None


async def test_an_async_function_is_awaited_whatever_its_column_says(function: FunctionKind) -> None:
    later = call(_inline("length_later", INTEGER), "four")
    assert await function.compute(later) == Answer(4)
    assert function.at_once(later) is None


@pytest.mark.parametrize(("name", "error_class"), [("exits", "function_error"), ("returns_text", "schema")])
async def test_what_an_inline_function_does_wrong_is_its_cells_error(
    function: FunctionKind, name: str, error_class: str
) -> None:
    wrong = call(_inline(name, INTEGER), "x")
    outcomes = await function.compute(wrong), function.at_once(wrong)
    for outcome in outcomes:
        assert isinstance(outcome, Failure)
        assert outcome.error_class == error_class
    assert outcomes[0] == outcomes[1]


async def test_a_function_of_a_process_is_the_same_elsewhere(
    function: FunctionKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cell_engine.kinds.pool.PAUSE_SECONDS", 0.0)
    here = str(os.getpid())
    assert await function.compute(call(_process("place"), here)) == Answer("False key-1")
    assert await function.compute(call(_process("place_later"), here)) == Answer("False")
    assert await function.compute(call(_process("returns_text", INTEGER), "x")) == await function.compute(
        call(function_column("returns_text"), "x")
    )
    raised = [await function.compute(call(one, "x")) for one in (_process("fails"), function_column("fails"))]
    assert raised[0] == raised[1]
    late = await function.compute(call(_process("busy"), "x", deadline=0.3))
    assert late == Failure("transient", "tests.kinds.functions:busy: no result within 0.3 s: its process was ended")
    died = await function.compute(call(_process("leaves"), "x"))
    assert isinstance(died, Failure)
    assert died.error_class == "crashed"
    assert "ended its process, 3 times: exit code 3" in died.message
    assert function.at_once(call(_process("length", INTEGER), "four")) is None


async def test_a_function_that_is_not_allowed_is_not_even_imported(
    function: FunctionKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOFILL_FUNCTIONS", "acme.*")
    sys.modules.pop("this", None)
    outcome = await function.compute(call(column("function", TEXT, {"name": "this:c"}), "x"))
    assert isinstance(outcome, Failure)
    assert outcome.error_class == "function_error"
    assert "Column 'answer': the function 'this:c' is not allowed here: the operator adds this (the module)" in (
        outcome.message
    )
    assert "this" not in sys.modules


@pytest.mark.parametrize("name", ["sys.exit", "os.system", "getenv", "time.sleep"])
async def test_what_an_allowed_module_has_imported_is_not_allowed_with_it(function: FunctionKind, name: str) -> None:
    with pytest.raises(NotFoundError, match=r"'tests\.kinds\.functions:\S+' is defined in \w+, which is not allowed"):
        function.check(function_column(name))


async def test_what_is_named_in_full_may_be_defined_anywhere(
    function: FunctionKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOFILL_FUNCTIONS", "tests.kinds.functions:getenv")
    function.check(function_column("getenv"))
    with pytest.raises(NotFoundError, match="not allowed"):
        function.check(function_column("length"))


def _process(name: str, column_type: ColumnType = TEXT) -> Column:
    column = function_column(name, column_type)
    return replace(column, settings={**column.settings, "process": True})


def _inline(name: str, column_type: ColumnType = TEXT) -> Column:
    column = function_column(name, column_type)
    return replace(column, settings={**column.settings, "inline": True})
