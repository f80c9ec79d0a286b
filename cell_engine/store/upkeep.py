"""The janitor's statements: what workers that died have left behind. Bounded, and safe when several run at once."""

from dataclasses import dataclass

from cell_engine.store.control import finish_cancel
from cell_engine.store.database import Connection, run
from cell_engine.store.results import end_dispatches

BATCH = 1000
DEAD_TUPLES = 10_000
KEEP_DAYS = 90
"""How long completions and attempts are kept; cells and dispatches are kept for ever."""


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What one round did: workers ended, visits given back, dispatches found to be over."""

    workers: int
    visits: int
    dispatches: int


def keep_up(connection: Connection) -> Upkeep:
    """One round: end workers whose lease ran out, give their visits back, end dispatches that are over."""
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
        ended += len(end_dispatches(connection, [one.id for one in open_]))
        if len(open_) < BATCH:
            return Upkeep(workers, visits, ended)
        after = open_[-1].id


def vacuum_work(connection: Connection) -> bool:
    """Vacuum `work` if that is worth it; the connection must not be in a transaction. Cheap, and safe beside others."""
    found = run(connection, "work_dead").fetchone()
    if found is None or found.tuples < DEAD_TUPLES:
        return False
    run(connection, "work_vacuum")
    return True


def keep_partitions(connection: Connection) -> list[str]:
    """Make the partitions that will be written next, drop those past KEEP_DAYS; returns the dropped.

    Takes a short exclusive lock when there is something to do; gives up after a second rather than hold up writers.
    """
    with connection.transaction():
        connection.execute("set local lock_timeout = '1s'")
        run(connection, "partitions_ensure")
        return [one.name for one in run(connection, "partitions_drop", days=KEEP_DAYS)]


def is_alone(connection: Connection, name: str) -> bool:
    """Whether nobody else is at `name`; if so, this transaction is, until it ends."""
    found = run(connection, "janitor_lock", name=name).fetchone()
    return found is not None and bool(found.alone)


def _reclaim(connection: Connection) -> int:
    """A batch of visits given back; 0 also when another janitor is at it."""
    with connection.transaction():
        if not is_alone(connection, "autofill.reclaim"):
            return 0
        reclaimed = len(run(connection, "reclaim_work", limit=BATCH).fetchall())
        run(connection, "slot_sweep")
    return reclaimed
