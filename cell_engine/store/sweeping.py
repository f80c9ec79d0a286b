"""Rows of sweeps become work: the part of a claim that reads straight from the cursors, all its lanes at once.

A claim of 500 rows may be of as many lanes; lane by lane it was four round trips each, a third of the queue's own cost.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from cell_engine.fairness import Share
from cell_engine.store.arrays import numbers, texts
from cell_engine.store.database import Connection, run

WINDOW_ROWS = 20_000
SWEEP_WINDOWS = 10


@dataclass(slots=True)
class Swept:
    """What is now this worker's: sweeps with their rows just begun, as the statements have them, and (collection id,
    row id) of those that were queued already. `dispatches` are those whose end may have come. `goes_on`: a sweep for
    few has found nothing yet in all that was examined."""

    begun: list[tuple[Any, list[Any]]] = field(default_factory=list)
    taken: list[tuple[int, int]] = field(default_factory=list)
    dispatches: list[int] = field(default_factory=list)
    goes_on: bool = False


def sweep(connection: Connection, worker_id: UUID, claim: int, lanes: Sequence[Share]) -> Swept:
    """The next rows of the oldest open sweep of each lane, up to its `swept` slots, as work of this claim."""
    swept = Swept()
    of_collection: dict[int, list[Share]] = defaultdict(list)
    for lane in lanes:
        of_collection[lane.collection_id].append(lane)
    # Lanes of one collection after another: they may come to the same row.
    while any(of_collection.values()):
        _sweep_apart(connection, worker_id, claim, [one.pop() for one in of_collection.values() if one], swept)
    return swept


def _sweep_apart(connection: Connection, worker_id: UUID, claim: int, lanes: Sequence[Share], swept: Swept) -> None:
    """Lanes of different collections, side by side.

    A sweep whose only rows left are held by somebody does not keep the ones behind it waiting. One that is limited to
    some cells examines a few windows before it gives up for this time.
    """
    after = {lane.collection_id: 0 for lane in lanes}
    for _ in range(SWEEP_WINDOWS):
        if not lanes:
            return
        windows: dict[int, list[Any]] = defaultdict(list)
        for one in run(
            connection,
            "sweep_windows",
            collections=numbers([lane.collection_id for lane in lanes]),
            job_types=texts([lane.job_type for lane in lanes]),
            slots=numbers([lane.swept for lane in lanes]),
            afters=numbers([after[lane.collection_id] for lane in lanes]),
            window=WINDOW_ROWS,
        ).fetchall():
            windows[one.collection_id].append(one)
        if not windows:
            return
        served = _walk(connection, worker_id, claim, list(windows.values()), swept)
        for collection_id, window in windows.items():
            if any(one.is_locked for one in window):
                served.add(collection_id)
            elif any(one.row_id is not None for one in window):
                after[collection_id] = window[0].sweep_id
        lanes = [lane for lane in lanes if lane.collection_id in windows and lane.collection_id not in served]
    swept.goes_on = swept.goes_on or bool(lanes)


def _walk(
    connection: Connection, worker_id: UUID, claim: int, windows: Sequence[Sequence[Any]], swept: Swept
) -> set[int]:
    """Windows of sweeps: their locked rows become work, the others holes, and the cursors pass them all. Returns the
    collections of which there were rows to have."""
    locked = [one for window in windows for one in window if one.is_locked]
    met = _met(connection, locked) if locked else {}
    walked = [_divide(window, met) for window in windows]
    for one in walked:
        if one.raised:
            displaced = run(
                connection,
                "demand_raise",
                dispatch_id=one.dispatch_id,
                rows=one.raised,
                job_type=None,
                priority="sweep",
            )
            swept.dispatches += [each.owner for each in displaced]
    queued = [key for key, state in met.items() if state == "queued"]
    fresh = {one.sweep_id: one.fresh for one in walked}
    served: set[int] = set()
    for one in run(
        connection,
        "sweep_take",
        worker_id=worker_id,
        claim=claim,
        sweeps=numbers([one.sweep_id for one in walked]),
        cursors=numbers([one.cursor for one in walked]),
        fresh=texts([numbers([row.row_id for row in one.fresh]) for one in walked]),
        raised=texts([numbers(one.raised) for one in walked]),
        missed=texts([numbers(one.missed) for one in walked]),
        queued_collections=numbers([collection_id for collection_id, _ in queued]),
        queued_rows=numbers([row_id for _, row_id in queued]),
    ).fetchall():
        if one.closed:
            swept.dispatches.append(one.dispatch_id)
            continue
        served.add(one.collection_id)
        if one.sweep_id is None:
            swept.taken.append((one.collection_id, one.row_id))
        else:
            swept.begun.append((one, fresh[one.sweep_id]))
    return served


@dataclass(slots=True)
class _Walked:
    """A window divided: rows without work, rows whose work is raised, and those somebody holds."""

    sweep_id: int
    dispatch_id: int
    cursor: int
    fresh: list[Any]
    raised: list[int]
    missed: list[int]


def _divide(window: Sequence[Any], met: Mapping[tuple[int, int], str | None]) -> _Walked:
    first = window[0]
    passed = [one for one in window if one.row_id is not None]
    # The cursor passes what was chosen, and all that was examined when the window came up short.
    cursor = first.examined if len(passed) < first.slots else first.cursor
    divided = _Walked(
        first.sweep_id, first.dispatch_id, max([cursor, *(one.row_id for one in passed if not one.is_hole)]), [], [], []
    )
    for one in passed:
        key = (one.collection_id, one.row_id)
        if not one.is_locked or (key in met and met[key] is None):
            divided.missed.append(one.row_id)
        elif key in met:
            divided.raised.append(one.row_id)
        else:
            divided.fresh.append(one)
    return divided


def _met(connection: Connection, locked: Sequence[Any]) -> dict[tuple[int, int], str | None]:
    """The state of work that is there already, by (collection id, row id); None where somebody else holds it."""
    found = run(
        connection,
        "lock_work_skip",
        collections=numbers([one.collection_id for one in locked]),
        rows=numbers([one.row_id for one in locked]),
    )
    return {(one.collection_id, one.row_id): one.state for one in found}
