"""The completions as an outbox: what of dispatches is to be told to others, each dispatch once it is whole.

A dispatch is told when it has ended and the cursor has passed its last completion. Then nothing of it comes any more,
and it is never met again.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime

from cell_engine.store.database import Connection, run
from cell_engine.store.reading import PartitionOutcome
from cell_engine.store.records import Cursor


@dataclass(frozen=True, slots=True)
class Page:
    """`dispatches` are whose completions it held, of which there were `completions`; `cursor` is where it ends."""

    cursor: Cursor
    dispatches: list[int]
    completions: int


@dataclass(frozen=True, slots=True)
class Ended:
    """A dispatch of which nothing is still to come. `collection` is the full name; `key` is the asker's.
    `is_tick`: it refreshed columns, as a schedule asks for."""

    id: int
    collection_id: int
    collection: str
    reason: str
    actor: str
    key: str | None
    created_at: datetime
    is_tick: bool


def begin(connection: Connection, limit: int) -> Page:
    """Where a reader without a cursor begins: at the end, with the dispatches of the last day and the open ones."""
    found = run(connection, "outbox_begin", limit=limit).fetchone()
    assert found is not None
    return Page(Cursor(found.xid, 0), found.dispatches, 0)


def page_after(connection: Connection, cursor: Cursor, limit: int) -> Page:
    """Behind `cursor`; an empty one where there is nothing. Held back as `completions_since` is."""
    found = run(connection, "outbox_page", xid=cursor.xid, id=cursor.id, limit=limit).fetchone()
    if found is None:
        return Page(cursor, [], 0)
    return Page(Cursor(found.xid, found.id), found.dispatches, found.completions)


def settled(connection: Connection, cursor: Cursor, dispatches: Collection[int], limit: int) -> list[Ended]:
    """Those of the dispatches of which nothing is still to come behind `cursor`, by id."""
    found = run(connection, "outbox_settled", dispatches=list(dispatches), xid=cursor.xid, id=cursor.id, limit=limit)
    return [Ended(*one) for one in found]


def outcomes_of(connection: Connection, dispatches: Collection[int]) -> dict[int, list[PartitionOutcome]]:
    """What they did, by dispatch; each by batch in arrival order, then column."""
    outcomes: dict[int, list[PartitionOutcome]] = {}
    for dispatch_id, *rest in run(connection, "outbox_outcomes", dispatches=list(dispatches)):
        outcomes.setdefault(dispatch_id, []).append(PartitionOutcome(*rest))
    return outcomes


def oldest_kept(connection: Connection) -> date | None:
    """Completions before that day are dropped."""
    found = run(connection, "outbox_oldest").fetchone()
    assert found is not None
    day: date | None = found.day
    return day


def open_runs(connection: Connection, limit: int) -> list[tuple[int, str | None]]:
    """Dispatches that runs have made and that have not ended: their ids and keys."""
    return [(one.id, one.key) for one in run(connection, "dispatches_of_runs", limit=limit)]
