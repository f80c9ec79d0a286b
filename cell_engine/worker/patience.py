"""Cells that wait for a file: when to look again, and when it has been long enough.

Since when a cell waits stands in `work.waiting`. Looking costs no attempt, and between two looks the row is delayed,
outside the claim's index: as long as it has waited so far, 30 s at most. A load that brings the file wakes it.
"""

import random
from dataclasses import replace

from cell_engine.kinds.base import WAITING, Failure, Outcome
from cell_engine.specs.files import WAIT_SECONDS
from cell_engine.specs.version import Column
from cell_engine.store.claims import Reading
from cell_engine.worker.outcomes import UNCOUNTED, pause
from cell_engine.worker.rest import Wait

LOOK_SECONDS = (1.0, 30.0)


def look(reading: Reading, column: Column, outcome: Outcome) -> Outcome:
    """``outcome``; one of class ``waiting`` says after how many seconds to look again, or is the cell's error once the
    column's time for it is over."""
    if not isinstance(outcome, Failure) or outcome.error_class != WAITING:
        return outcome
    limit = WAIT_SECONDS if column.files is None or column.files.wait is None else column.files.wait
    waited = reading.waited.get(column.id, 0.0)
    if waited >= limit:
        return replace(outcome, error_class="bad_input", message=f"{outcome.message} (waited for {_said(limit)})")
    shortest, longest = LOOK_SECONDS
    seconds = min(longest, max(shortest, waited, outcome.retry_after or 0.0)) * random.uniform(0.75, 1.0)  # noqa: S311
    # The last look is when the time is over, and not before.
    return replace(outcome, retry_after=max(min(seconds, limit - waited), 0.05))


def rest(failure: Failure, failed: int) -> Wait:
    """How long a column rests after a failure that is tried again, its ``failed``-th. What brings a file, an edit too,
    ends the wait for it."""
    if failure.error_class == WAITING:
        return Wait(failure.retry_after or LOOK_SECONDS[0], False)
    return Wait(pause(failed, failure.retry_after), failure.error_class in UNCOUNTED)


def _said(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:g}s"
