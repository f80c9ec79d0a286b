"""Slots: the calls that workers may have in flight. They are given out under the claim lock, below every cap (R4).

Caps are read at every claim, so a changed one holds from the next on. Who gets how many is `fairness`'s to say.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from cell_engine.fairness import WALKS, Lane, Offer, Share, Space, shares
from cell_engine.store.arrays import numbers
from cell_engine.store.database import Connection, run

BACKLOG = 2000
"""Rows that sweeps have handed over to another lane (twice the cap, if that is more), or that wait to be tried again:
above it, they start no more."""


def give_out(
    connection: Connection,
    worker_id: UUID,
    job_types: Sequence[str],
    slots: int,
    sweep_slots: int,
    freed: Mapping[int, int],
    bounds: Mapping[tuple[int, str], int],
    bound: int | None,
) -> list[Share]:
    """Up to `slots` slots of the lanes the worker can serve, in the caller's transaction, after those `freed` have come
    back; see `claims.claim`."""
    run(connection, "claim_lock")
    give_back(connection, worker_id, freed)
    found = run(
        connection,
        "claim_lanes",
        worker_id=worker_id,
        job_types=list(job_types),
        slots=slots,
        backlog=BACKLOG,
        # Lanes that are bounded may hold least and want nothing: of all of them those are to be found that do.
        walks=None if bounds or bound is not None else WALKS,
    ).fetchall()
    if probes := [lane for lane in found if lane.is_probe]:
        bounds = {**bounds, **{tuple(lane[:2]): min(1, bounds.get(lane[:2], 1)) for lane in probes}}
    return _take(connection, worker_id, found, slots, sweep_slots, bounds, bound)


def give_more(connection: Connection, worker_id: UUID, collections: Sequence[int]) -> Counter[int]:
    """One slot more for each of these collections that there is room for, each as often as it is named; those given."""
    run(connection, "claim_lock")
    found = run(connection, "claim_rooms", collections=numbers(collections)).fetchall()
    more = _take(connection, worker_id, found, len(collections), 0, {}, None)
    return Counter({share.collection_id: share.slots for share in more})


def give_back(connection: Connection, worker_id: UUID, slots: Mapping[int, int]) -> None:
    """Slots by collection id that were given and not used."""
    unused = {collection: count for collection, count in slots.items() if count}
    if unused:
        run(connection, "slot_return", worker_id=worker_id, collections=list(unused), slots=list(unused.values()))


def _take(
    connection: Connection,
    worker_id: UUID,
    found: Sequence[Any],
    slots: int,
    sweep_slots: int,
    bounds: Mapping[tuple[int, str], int],
    bound: int | None,
) -> list[Share]:
    """`found`: of each lane what `Lane` has, then what `Space` has of its namespace, then the total cap and what is
    held of it."""
    if not found:
        return []
    lanes = [Lane._make(one[:9]) for one in found]
    of_space = {one[2]: one for one in found}
    spaces = {id: Space._make(one[9:13]) for id, one in of_space.items()}
    cap, held = found[0][13:15]
    given = shares(lanes, spaces, Offer(slots, sweep_slots, cap, held, bounds, bound))
    of_collections: Counter[int] = Counter()
    for share in given:
        of_collections[share.collection_id] += share.slots
    if not given:
        return []
    taken = run(
        connection,
        "slot_take",
        worker_id=worker_id,
        collections=numbers(of_collections),
        slots=numbers(of_collections.values()),
    ).fetchall()
    return given if taken else []
