"""The janitor's statements: what workers that died have left behind. Bounded, and safe when several run at once."""

from dataclasses import dataclass
from typing import Any

import psycopg

from cell_engine.store.admission import count_backlog
from cell_engine.store.claims import park
from cell_engine.store.control import finish_cancel, settle
from cell_engine.store.database import Connection, run
from cell_engine.store.holds import expire
from cell_engine.store.results import end_dispatches

BATCH = 1000
LIVE_TUPLES, DEAD_TUPLES = 100, 10_000
KEEP_DAYS = 90
"""How long completions, attempts, syncs and rejected lines are kept; cells and dispatches are kept for ever."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What one round did: workers ended, visits given back, dispatches found to be over."""

    workers: int
    visits: int
    dispatches: int


def keep_up(connection: Connection) -> Upkeep:
    """One round: end workers whose lease ran out, give their visits back, end dispatches and holds that are over."""
    expire(connection)
    workers = len(run(connection, "reclaim_workers").fetchall())
    visits = 0
    while (reclaimed := _reclaim(connection)) > 0:
        visits += reclaimed
    ended = after = 0
    while True:
        open_ = run(connection, "dispatches_open", after=after, limit=BATCH).fetchall()
        for one in open_:
            if one.canceled:
                finish_cancel(connection, one.id)  # whoever canceled it may have died half-way
            elif one.unsettled_at is not None:
                settle(connection, one.id, one.unsettled_at)  # likewise
        ended += len(end_dispatches(connection, [one.id for one in open_]))
        if len(open_) < BATCH:
            count_backlog(connection)
            return Upkeep(workers, visits, ended)
        after = open_[-1].id


def vacuum_work(connection: Connection) -> bool:
    """Rid `work` of its dead tuples if that is worth it; returns whether it did. The connection must not be in a
    transaction. Safe beside others.

    Vacuumed only in use, for the planner takes it for as large as it is then. At rest it is emptied instead,
    and its size unknown again.
    """
    state = run(connection, "work_state").fetchone()
    if state is None:
        return False
    if state.dead >= DEAD_TUPLES:
        if _live(connection, LIVE_TUPLES) == LIVE_TUPLES:
            run(connection, "work_vacuum")
            return True
    elif state.taken_for != 0:
        return False
    try:
        with connection.transaction():
            run(connection, "work_lock")
            if _live(connection, 1):
                return False
            run(connection, "work_truncate")
            return True
    except psycopg.errors.LockNotAvailable:
        return False


def keep_partitions(connection: Connection) -> list[str]:
    """Make the partitions that will be written next, drop those past KEEP_DAYS; returns the dropped.

    Takes a short exclusive lock when there is something to do; gives up after a second rather than hold up writers.
    """
    with connection.transaction():
        connection.execute("set local lock_timeout = '1s'")
        run(connection, "partitions_ensure")
        return [one.name for one in run(connection, "partitions_drop", days=KEEP_DAYS)]


def trim_loads(connection: Connection) -> int:
    """Forget syncs and rejected lines past KEEP_DAYS, some at a time; returns how many. Waits for nobody."""
    trimmed = 0
    for name in ("rejected_trim", "sync_trim"):
        tuples = BATCH
        while tuples == BATCH:
            found: Any = run(connection, name, days=KEEP_DAYS, limit=BATCH).fetchone()
            tuples = found.tuples
            trimmed += tuples
    return trimmed


def is_alone(connection: Connection, name: str) -> bool:
    """Whether nobody else is at `name`; if so, this transaction is, until it ends."""
    found = run(connection, "janitor_lock", name=name).fetchone()
    return found is not None and bool(found.alone)


def _live(connection: Connection, limit: int) -> int:
    """How many rows `work` has; counts no further than `limit`."""
    found = run(connection, "work_live", limit=limit).fetchone()
    assert found is not None
    return int(found.live)


def _reclaim(connection: Connection) -> int:
    """A batch of visits given back; 0 also when another janitor is at it."""
    with connection.transaction():
        if not is_alone(connection, "autofill.reclaim"):
            return 0
        reclaimed = run(connection, "reclaim_work", limit=BATCH).fetchall()
        park(connection, reclaimed)
        run(connection, "slot_sweep")
        run(connection, "provider_sweep")
    return len(reclaimed)
