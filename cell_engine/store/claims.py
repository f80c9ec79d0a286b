"""A worker's way into the queue: its life, its slots, the rows it claims and what it reads of them.

Claiming takes two transactions. The first, under the claim lock, gives out slots and waits for nothing; the second,
outside it, takes rows against those slots and waits for nobody either: what somebody holds is skipped. Both commit
asynchronously: a lost claim is only claimed again, since its token loses every compare-and-swap.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from psycopg.rows import tuple_row

from cell_engine.fairness import Share
from cell_engine.plan import Asked, Cell, Row
from cell_engine.store.arrays import numbers, texts
from cell_engine.store.database import Connection, run
from cell_engine.store.slots import give_back, give_more, give_out
from cell_engine.store.sweeping import sweep

WAKE_LIMIT = 1000
NO_BOUNDS: Mapping[tuple[int, str], int] = {}


class WorkerEndedError(Exception):
    """The janitor has ended this worker: its lease ran out. It may claim no more under this id."""


class Token(NamedTuple):
    """What a visit must show to change anything: the worker's start and its claim counter (R2)."""

    worker_id: UUID
    claim: int


class RowKey(NamedTuple):
    collection_id: int
    row_id: int


@dataclass(slots=True)
class Reading:
    """Everything a visit plans with. `signal` is the latest demand it covers, `raised` how
    often demand had come; `deaths` are workers that have died with the row in flight; `waits`
    how often it has waited for another row's call, on end; `waited` seconds that columns have for a file."""

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
    waits: int
    version: int
    batch_id: int
    row: Row
    waited: dict[int, float] = field(default_factory=dict)


@dataclass(slots=True)
class Claimed:
    """What one claim brought.

    `swept` are dispatches whose sweep closed in it: their end may have come. `goes_on`: there are sweeps of which
    nothing came this time, for there is more to look through, or another claimer walks them.
    """

    visits: list[Reading] = field(default_factory=list)
    swept: list[int] = field(default_factory=list)
    goes_on: bool = False


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
    bounds: Mapping[tuple[int, str], int] = NO_BOUNDS,
    bound: int | None = None,
) -> Claimed:
    """Claim up to `slots` rows of these pools, and read them; at most `sweep_slots` of them from sweeps, unless more
    edits wait than there is room for.

    `freed` are slots by collection id that releases have given up since the last claim. `bounds` are rows worth
    claiming by lane (collection id, job type), `bound` that of all other lanes; None: as many as there are. Raises
    WorkerEndedError when the worker was ended meanwhile; then it has taken nothing. After any other error `recover`
    must come before the next claim: what was taken is not known.
    """
    run(connection, "wake_delayed", limit=WAKE_LIMIT)
    with connection.transaction():
        lanes = give_out(connection, token.worker_id, job_types, slots, sweep_slots, freed, bounds, bound)
    return _take(connection, token, lanes)


def recover(connection: Connection, worker_id: UUID, claim_number: int | None) -> None:
    """After slots were asked for in vain: the worker's slots are what it has in flight. With the number of a claim that
    failed, perhaps half-way, its rows go back too: nobody visits them.

    The caller makes sure that none of the worker's transactions run beside this one, and forgets what it had `freed`.
    """
    with connection.transaction():
        run(connection, "worker_fence", worker_id=worker_id)
        if claim_number is not None:
            park(connection, run(connection, "claim_undo", worker_id=worker_id, claim=claim_number).fetchall())
        run(connection, "slot_settle", worker_id=worker_id)


def park(connection: Connection, rows: Sequence[Any]) -> None:
    """Let rows that the caller's transaction has just put back wait, if all dispatches that want them are paused.

    `rows` are the statement's: collection_id, row_id.
    """
    if rows:
        collections, row_ids = [one.collection_id for one in rows], [one.row_id for one in rows]
        run(connection, "work_park", collections=collections, rows=row_ids)


def _take(connection: Connection, token: Token, lanes: Sequence[Share]) -> Claimed:
    claimed = Claimed()
    with connection.transaction():
        if run(connection, "worker_hold", worker_id=token.worker_id).fetchone() is None:
            raise WorkerEndedError(str(token.worker_id))
        queued = [lane for lane in lanes if lane.urgent or lane.handed]
        keys: list[RowKey] = []
        begun: Sequence[tuple[Any, Sequence[Any]]] = ()
        if queued:
            keys += _keys(
                run(
                    connection,
                    "claim_queued",
                    worker_id=token.worker_id,
                    claim=token.claim,
                    collections=numbers([lane.collection_id for lane in queued]),
                    job_types=texts([lane.job_type for lane in queued]),
                    urgent=numbers([lane.urgent for lane in queued]),
                    handed=numbers([lane.handed for lane in queued]),
                )
            )
        sweeping = [lane for lane in lanes if lane.swept]
        if sweeping:
            swept = sweep(connection, token.worker_id, token.claim, sweeping)
            begun = swept.begun
            keys += [RowKey(*key) for key in swept.taken]
            claimed.swept = swept.dispatches
            claimed.goes_on = swept.goes_on or not (swept.begun or swept.taken)
        unused: Counter[int] = Counter()
        for lane in lanes:
            unused[lane.collection_id] += lane.slots
        unused.subtract(Counter([key.collection_id for key in keys]))
        for of, rows in begun:
            unused[of.collection_id] -= len(rows)
        give_back(connection, token.worker_id, unused)
    # When it has committed: until then nobody else walks the sweeps that were walked here.
    claimed.visits = read(connection, token.worker_id, [(key, token.claim) for key in keys], _begun(token, begun))
    return claimed


def widen(connection: Connection, worker_id: UUID, visits: Sequence[tuple[RowKey, int]]) -> list[tuple[RowKey, int]]:
    """One more slot for each of these visits (key, claim), as far as the caps go; returns those that have it."""
    with connection.transaction():
        granted = give_more(connection, worker_id, [key.collection_id for key, _ in visits])
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


def read(
    connection: Connection, worker_id: UUID, visits: Sequence[tuple[RowKey, int]], begun: Iterable[Reading] = ()
) -> list[Reading]:
    """What visits plan with, read now; a visit that is no longer this worker's is left out. Those `begun` in this claim
    were read with their locks, and lack the cells alone."""
    readings: dict[tuple[int, int], Reading] = {one.key: one for one in begun}
    if visits:
        for one in run(connection, "read_visits", worker_id=worker_id, **_columns(visits)).fetchall():
            readings[one.collection_id, one.row_id] = _reading(worker_id, one)
    if readings:
        collections, rows = zip(*readings, strict=True)
        found = run(connection, "read_cells", collections=numbers(collections), rows=numbers(rows))
        found.row_factory = tuple_row
        # All at once: looped over, a cursor fetches row by row, in Python (1.7 µs a row against 1.3).
        for collection_id, row_id, column_id, *cell in found.fetchall():
            readings[collection_id, row_id].row.cells[column_id] = Cell(*cell)
    return list(readings.values())


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
    run(connection, "transaction_asynchronous")


def _keys(found: Iterable[Any]) -> list[RowKey]:
    return [RowKey(one.collection_id, one.row_id) for one in found]


def _columns(visits: Sequence[tuple[RowKey, int]]) -> dict[str, str]:
    return {
        "collections": numbers([key.collection_id for key, _ in visits]),
        "rows": numbers([key.row_id for key, _ in visits]),
        "claims": numbers([claim_number for _, claim_number in visits]),
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
        asked=_all_asked(one.demand),
        attempts={int(column): count for column, count in one.attempts.items()} if one.attempts else {},
        deaths=one.deaths,
        waits=one.waits,
        version=one.version,
        batch_id=one.batch_id,
        row=Row(
            inputs={int(column): value for column, value in one.inputs.items()},
            change=one.change,
            deleted=one.deleted,
        ),
        waited={int(column): seconds for column, seconds in one.waited.items()} if one.waited else {},
    )


def _begun(token: Token, begun: Iterable[tuple[Any, Sequence[Any]]]) -> list[Reading]:
    """Readings of rows that were no work before, and so have what their sweep asks for, and have not been tried."""
    readings = []
    for of, rows in begun:
        job_type, signal, dispatch_id, version = of.job_type, of.signal, of.dispatch_id, of.version
        asked = _all_asked(of.demand)
        for one in rows:
            inputs = {int(column): value for column, value in one.inputs.items()}
            row = Row(inputs, one.change, {}, one.deleted)
            key = RowKey(one.collection_id, one.row_id)
            # By position, in the order of its fields: by name it takes twice as long.
            readings.append(
                Reading(
                    key,
                    token,
                    job_type,
                    "sweep",
                    signal,
                    0,
                    dispatch_id,
                    asked.copy(),
                    {},
                    0,
                    0,
                    version,
                    one.batch_id,
                    row,
                )
            )
    return readings


def _all_asked(demand: Mapping[str, Sequence[Any]] | None) -> dict[int, Asked]:
    return {int(column): _asked(value) for column, value in demand.items()} if demand else {}


def _asked(value: Sequence[Any]) -> Asked:
    # Three of them where code that knew no conditions wrote it.
    signal, forced, dispatch, *conditions = value
    only_if = conditions[0] if conditions else None
    return Asked(signal, forced, dispatch, None if only_if is None else tuple(only_if))
