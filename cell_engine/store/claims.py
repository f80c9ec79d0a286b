"""A worker's way into the queue: its life, its slots, the rows it claims and what it reads of them.

Claiming takes two transactions. The first, under the claim lock, gives out slots and waits for nothing; the second,
outside it, takes rows against those slots and waits for nobody either: what somebody holds is skipped. Both commit
asynchronously: a lost claim is only claimed again, since its token loses every compare-and-swap.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from cell_engine.plan import Asked, Cell, Row
from cell_engine.store.database import Connection, run

WAKE_LIMIT = 1000
WINDOW_ROWS = 20_000
SWEEP_WINDOWS = 10


class WorkerEndedError(Exception):
    """The janitor has ended this worker: its lease ran out. It may claim no more under this id."""


@dataclass(frozen=True, slots=True)
class Token:
    """What a visit must show to change anything: the worker's start and its claim counter (R2)."""

    worker_id: UUID
    claim: int


@dataclass(frozen=True, slots=True)
class RowKey:
    collection_id: int
    row_id: int


@dataclass(slots=True)
class Reading:
    """Everything a visit plans with, of one snapshot. `signal` is the latest demand it covers, `raised` how
    often demand had come; `deaths` are workers that have died with the row in flight."""

    key: RowKey
    token: Token
    job_type: str
    priority: str
    signal: int
    raised: int
    dispatch_id: int
    asked: dict[int, Asked]
    attempts: dict[int, int]
    deaths: int
    version: int
    batch_id: int
    row: Row


@dataclass(slots=True)
class Claimed:
    """What one claim brought. `swept` are dispatches whose sweep closed in it: their end may have come."""

    visits: list[Reading] = field(default_factory=list)
    swept: list[int] = field(default_factory=list)


def register(
    connection: Connection, worker_id: UUID, *, host: str, pid: int, job_types: Sequence[str], lease: float
) -> None:
    """A worker starts. `lease` is seconds without a heartbeat after which its work is somebody else's."""
    run(
        connection,
        "worker_register",
        worker_id=worker_id,
        host=host,
        pid=pid,
        job_types=list(job_types),
        lease=lease,
    )


def beat(connection: Connection, worker_id: UUID) -> None:
    """Raises WorkerEndedError when the janitor was faster."""
    if run(connection, "worker_beat", worker_id=worker_id).fetchone() is None:
        raise WorkerEndedError(str(worker_id))


def goodbye(connection: Connection, worker_id: UUID) -> None:
    run(connection, "worker_goodbye", worker_id=worker_id)


def claim(
    connection: Connection,
    token: Token,
    job_types: Sequence[str],
    slots: int,
    sweep_slots: int,
    freed: Mapping[int, int],
) -> Claimed:
    """Claim up to `slots` rows of these pools, at most `sweep_slots` of them from sweeps, and read them.

    `freed` are slots by collection id that releases have given up since the last claim. Raises WorkerEndedError when
    the worker was ended meanwhile; then it has taken nothing. After any other error `recover` must come before the
    next claim: what was taken is not known.
    """
    with connection.transaction():
        _asynchronously(connection)
        give_back(connection, token.worker_id, freed)
        run(connection, "wake_delayed", limit=WAKE_LIMIT)
    with connection.transaction():
        _asynchronously(connection)
        run(connection, "claim_lock")
        lanes = run(
            connection,
            "claim_quota",
            worker_id=token.worker_id,
            job_types=list(job_types),
            slots=slots,
            sweep_slots=sweep_slots,
        ).fetchall()
    return _take(connection, token, lanes)


def recover(connection: Connection, worker_id: UUID, claim_number: int | None) -> None:
    """After slots were asked for in vain: the worker's slots are what it has in flight. With the number of a claim that
    failed, perhaps half-way, its rows go back too: nobody visits them.

    The caller makes sure that none of the worker's transactions run beside this one, and forgets what it had `freed`.
    """
    with connection.transaction():
        run(connection, "worker_fence", worker_id=worker_id)
        if claim_number is not None:
            run(connection, "claim_undo", worker_id=worker_id, claim=claim_number)
        run(connection, "slot_settle", worker_id=worker_id)


def _take(connection: Connection, token: Token, lanes: Sequence[Any]) -> Claimed:
    claimed = Claimed()
    with connection.transaction():
        _asynchronously(connection)
        if run(connection, "worker_hold", worker_id=token.worker_id).fetchone() is None:
            raise WorkerEndedError(str(token.worker_id))
        queued = [lane for lane in lanes if lane.queued]
        keys: list[RowKey] = []
        if queued:
            keys += _keys(
                run(
                    connection,
                    "claim_queued",
                    worker_id=token.worker_id,
                    claim=token.claim,
                    collections=[lane.collection_id for lane in queued],
                    job_types=[lane.job_type for lane in queued],
                    slots=[lane.queued for lane in queued],
                )
            )
        for lane in lanes:
            if lane.swept:
                keys += _sweep(connection, token, lane, claimed)
        unused: Counter[int] = Counter()
        for lane in lanes:
            unused[lane.collection_id] += lane.queued + lane.swept
        unused.subtract(key.collection_id for key in keys)
        give_back(connection, token.worker_id, unused)
        claimed.visits = read(connection, token.worker_id, [(key, token.claim) for key in keys])
    return claimed


def _sweep(connection: Connection, token: Token, lane: Any, claimed: Claimed) -> list[RowKey]:
    """The next rows of the lane's oldest open sweep, as work of this worker.

    A sweep whose only rows left are held by somebody does not keep the ones behind it waiting. One that is limited to
    some cells examines a few windows before it gives up for this time.
    """
    after = 0
    for _ in range(SWEEP_WINDOWS):
        window = run(
            connection,
            "sweep_window",
            collection_id=lane.collection_id,
            job_type=lane.job_type,
            slots=lane.swept,
            after=after,
            window=WINDOW_ROWS,
        ).fetchall()
        if not window:
            return []
        started = _walk(connection, token, lane.collection_id, window, claimed)
        if started or any(one.locked for one in window):
            return started
        if any(one.row_id is not None for one in window):
            after = window[0].sweep_id
    return []


def _walk(
    connection: Connection, token: Token, collection_id: int, window: Sequence[Any], claimed: Claimed
) -> list[RowKey]:
    """A window of a sweep: its locked rows become work, the others holes, and the cursor passes them all."""
    sweep_id, cursor = window[0].sweep_id, window[0].cursor
    chosen = [one.row_id for one in window if one.row_id is not None]
    locked = [one.row_id for one in window if one.locked]
    met = {one.row_id: one.state for one in run(connection, "lock_work_skip", collection_id=collection_id, rows=locked)}
    fresh = [row_id for row_id in locked if row_id not in met]
    raised = [row_id for row_id, state in met.items() if state is not None]
    if raised:
        displaced = run(connection, "demand_raise", dispatch_id=window[0].dispatch_id, rows=raised, priority="sweep")
        claimed.swept += [one.owner for one in displaced]
    started = _keys(
        run(
            connection,
            "sweep_start",
            sweep_id=sweep_id,
            worker_id=token.worker_id,
            claim=token.claim,
            fresh=fresh,
            queued=[row_id for row_id, state in met.items() if state == "queued"],
        )
    )
    passed = {*fresh, *raised}
    advanced = run(
        connection,
        "sweep_advance",
        sweep_id=sweep_id,
        cursor=cursor,
        taken=list(passed),
        missed=[row_id for row_id in chosen if row_id not in passed],
    ).fetchone()
    if advanced is not None and advanced.closed:
        claimed.swept.append(advanced.dispatch_id)
    return started


def widen(connection: Connection, worker_id: UUID, visits: Sequence[tuple[RowKey, int]]) -> list[tuple[RowKey, int]]:
    """One more slot for each of these visits (key, claim), as far as the caps go; returns those that have it."""
    with connection.transaction():
        _asynchronously(connection)
        run(connection, "claim_lock")
        granted = {
            one.collection_id: one.slots
            for one in run(
                connection,
                "slot_more",
                worker_id=worker_id,
                collections=[key.collection_id for key, _ in visits],
            )
        }
    if not granted:
        return []
    chosen: list[tuple[RowKey, int]] = []
    left = Counter(granted)
    for key, claim_number in visits:
        if left[key.collection_id] > 0:
            left[key.collection_id] -= 1
            chosen.append((key, claim_number))
    with connection.transaction():
        _asynchronously(connection)
        widened = [
            (RowKey(one.collection_id, one.row_id), one.claim)
            for one in run(connection, "visits_widen", worker_id=worker_id, **_columns(chosen))
        ]
        unused = Counter(granted)
        unused.subtract(key.collection_id for key, _ in widened)
        give_back(connection, worker_id, unused)
    return widened


def give_back(connection: Connection, worker_id: UUID, slots: Mapping[int, int]) -> None:
    """Slots by collection id that were given and not used."""
    unused = {collection: count for collection, count in slots.items() if count}
    if unused:
        run(connection, "slot_return", worker_id=worker_id, collections=list(unused), slots=list(unused.values()))


def reread(connection: Connection, worker_id: UUID, visits: Sequence[tuple[RowKey, int]]) -> list[Reading]:
    """`read`, of visits that new demand has come for: their hint is cleared."""
    if not visits:
        return []
    with connection.transaction():
        held = _keys(run(connection, "visits_lock", worker_id=worker_id, **_columns(visits)))
        run(
            connection,
            "visits_clean",
            collections=[key.collection_id for key in held],
            rows=[key.row_id for key in held],
        )
        return read(connection, worker_id, visits)


def read(connection: Connection, worker_id: UUID, visits: Sequence[tuple[RowKey, int]]) -> list[Reading]:
    """What visits plan with, read now; a visit that is no longer this worker's is left out."""
    if not visits:
        return []
    return [_reading(worker_id, one) for one in run(connection, "read_visits", worker_id=worker_id, **_columns(visits))]


def dirty(connection: Connection, worker_id: UUID) -> list[tuple[RowKey, int]]:
    """The worker's visits (key, claim) that new demand has come for; they read it themselves, in order with what they
    store."""
    return [
        (RowKey(one.collection_id, one.row_id), one.claim)
        for one in run(connection, "visits_dirty", worker_id=worker_id)
    ]


def mark(connection: Connection, worker_id: UUID, calling: Mapping[tuple[RowKey, int], Iterable[int]]) -> None:
    """Show the columns that each visit (key, claim) is calling just now."""
    if not calling:
        return
    with connection.transaction():
        _asynchronously(connection)
        run(
            connection,
            "visits_mark",
            worker_id=worker_id,
            columns=["{" + ",".join(map(str, columns)) + "}" for columns in calling.values()],
            **_columns(list(calling)),
        )


def _asynchronously(connection: Connection) -> None:
    run(connection, "transaction_claiming")


def _keys(found: Iterable[Any]) -> list[RowKey]:
    return [RowKey(one.collection_id, one.row_id) for one in found]


def _columns(visits: Sequence[tuple[RowKey, int]]) -> dict[str, list[int]]:
    return {
        "collections": [key.collection_id for key, _ in visits],
        "rows": [key.row_id for key, _ in visits],
        "claims": [claim_number for _, claim_number in visits],
    }


def _reading(worker_id: UUID, one: Any) -> Reading:
    return Reading(
        key=RowKey(one.collection_id, one.row_id),
        token=Token(worker_id, one.claim),
        job_type=one.job_type,
        priority=one.priority,
        signal=one.signal,
        raised=one.raised,
        dispatch_id=one.dispatch_id,
        asked={int(column): _asked(value) for column, value in one.demand.items()},
        attempts={int(column): count for column, count in one.attempts.items()},
        deaths=one.deaths,
        version=one.version,
        batch_id=one.batch_id,
        row=Row(
            inputs={int(column): value for column, value in one.inputs.items()},
            change=one.change,
            cells={cell[0]: _cell(cell) for cell in one.cells or ()},
            deleted=one.deleted,
        ),
    )


def _asked(value: Sequence[Any]) -> Asked:
    # Three of them where code that knew no conditions wrote it.
    signal, forced, dispatch, *conditions = value
    only_if = conditions[0] if conditions else None
    return Asked(signal, forced, dispatch, None if only_if is None else tuple(only_if))


def _cell(cell: Sequence[Any]) -> Cell:
    _, user_set, user_value, ai_value, mark_, called, demanded, change, read_change, error_class = cell
    return Cell(
        user_set=user_set,
        user_value=user_value,
        ai_value=ai_value,
        fingerprint=None if mark_ is None else bytes.fromhex(mark_),
        called=called,
        demanded=demanded,
        change=change,
        read_change=read_change,
        error_class=error_class,
    )
