"""What calls come to: an outcome, a result to store, the cell that it makes, the rest before another try."""

import random
from collections.abc import Mapping

from cell_engine.kinds.base import PAUSING, WAITING, Answer, Call, ErrorClass, Failure, Kind, Outcome
from cell_engine.log import get_logger
from cell_engine.plan import (
    BLOCKED,
    NOT_FOUND,
    PROPOSED,
    Cell,
    Current,
    Found,
    Unfound,
    Waiting,
    is_held,
)
from cell_engine.specs.text import Json
from cell_engine.specs.version import Column
from cell_engine.store.claims import Reading
from cell_engine.store.results import Result
from cell_engine.worker.calls import Called, Settled, Task

BACKOFF_SECONDS = (1.0, 60.0)

UNCOUNTED: frozenset[ErrorClass] = PAUSING | {"rate_limited", WAITING}
"""What costs a cell no attempt: told to wait, met by every cell of its lane alike, or a file that is still to come."""

log = get_logger(__name__)


def addressed(reading: Reading, column_id: int, read_change: int) -> Result:
    """A result for a cell of the reading, under its token and demand; what it says is still to be filled in."""
    return Result(
        reading.key,
        reading.token,
        column_id,
        reading.signal,
        reading.dispatch_id,
        reading.batch_id,
        reading.version,
        read_change,
    )


def found_by_plan(reading: Reading, step: Found) -> Result:
    """What a plan found without a call."""
    result = addressed(reading, step.column.id, step.read_change)
    if isinstance(step, Unfound):
        # An answer that no call was made for, as one from the cache: as new as the demand that it was planned with.
        result.cached, result.demanded = True, reading.signal
        result.fingerprint, result.details = step.fingerprint, {NOT_FOUND: step.reason}
        return result
    result.call = False
    if isinstance(step, Current):
        if step.stale:
            result.version = None
    elif isinstance(step, Waiting):
        result.state, result.version, result.demanded = "waiting", None, step.demanded
    else:
        result.fingerprint = step.fingerprint
        result.error_class = BLOCKED
        result.error = step.reason
        result.demanded = step.demanded
    return result


def review(column: Column, reading: Reading, result: Result) -> None:
    """An answer of a column whose answers people look at first is proposed, not shown."""
    if column.review is None:
        return
    if is_held(column, reading.row.cells.get(column.id), result.value, NOT_FOUND in (result.details or {})):
        result.state = "proposed"


def details_of(answer: Answer) -> Mapping[str, Json] | None:
    """What is stored beside an answer's value; with the reason, where there is none."""
    if answer.not_found is None:
        return answer.details
    return {**(answer.details or {}), NOT_FOUND: answer.not_found}


def outcome_at_once(kind: Kind, call: Call) -> Outcome | None:
    """`at_once` of a kind; what it raises is treated as what `compute` raises."""
    try:
        return kind.at_once(call)
    except Exception as error:  # noqa: BLE001 (one cell's error and never the worker's end)
        return _raised(error)


def settled(task: Task) -> Settled:
    """What has come of wanting a call. A kind answers or fails, and does not raise; if it does, that is one cell's
    error and never the worker's end."""
    error = task.exception()
    if error is not None:
        return Called(_raised(error))
    found = task.result()
    return Called(found) if isinstance(found, Answer | Failure) else found


def _raised(error: BaseException) -> Failure:
    log.error("a kind raised", error=repr(error))
    return Failure("crashed", f"{type(error).__name__}: {error}")


def cell_after(cell: Cell | None, result: Result, change: int) -> Cell:
    """The cell as the store has it after `result`; the change number is 0 where none moved."""
    before = cell or Cell()
    answers = result.call and result.error_class is None
    refreshed = not result.call and result.error_class is None
    held = result.state == "proposed" and result.error_class is None
    called = before.called
    if result.call:
        called = max(called, min(result.signal, result.demanded) if result.cached else result.signal)
    # By position, in the order of its fields, as elsewhere on this path: by name it takes twice as long.
    return Cell(
        before.user_set,
        before.user_value,
        result.value if answers else before.ai_value,
        before.fingerprint if refreshed else result.fingerprint,
        called,
        0 if result.call else max(before.demanded, result.demanded),
        change or before.change,
        result.read_change,
        PROPOSED if held else before.error_class if refreshed else result.error_class,
        result.details if answers else before.details,
        _held_after(before, result, held),
    )


def _held_after(before: Cell, result: Result, held: bool) -> Mapping[str, Json] | None:
    if not result.call or result.error_class is not None:
        return before.held
    if not held:
        return None
    return before.held if before.held is not None else {} if before.ai_value is None else {"accepted": before.ai_value}


def pause(failed: int, retry_after: float | None) -> float:
    """Seconds until the next try: exponential with jitter, and never sooner than the other side asked for."""
    shortest, longest = BACKOFF_SECONDS
    backoff = min(longest, shortest * 2.0 ** (failed - 1)) * random.uniform(0.5, 1.0)  # noqa: S311
    return max(backoff, retry_after or 0.0)
