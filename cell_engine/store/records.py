"""What happened: calls made, answers replaced, cells completed, and lanes where nothing happens though it should."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from cell_engine.specs.text import Json
from cell_engine.store.database import Connection, run
from cell_engine.store.slots import BACKLOG


@dataclass(frozen=True, slots=True)
class Attempt:
    """Calls made for a column: one failure with its text, or the successes of one batch of answers. `cost` is in
    billionths of a dollar, None where it is not known or no model was reached."""

    id: int
    dispatch_id: int
    column_id: int
    row_ids: list[int]
    outcome: str
    error_class: str | None
    error: str | None
    worker_id: UUID
    model: str | None
    tokens_in: int
    tokens_out: int
    ended_at: datetime
    tokens_cached: int
    tokens_reasoning: int
    cost: int | None


@dataclass(frozen=True, slots=True)
class EarlierAnswer:
    """An answer that was shown until another one replaced it."""

    was: Json
    version: int | None
    model: str | None
    computed_at: datetime
    replaced_at: datetime
    dispatch_id: int
    details: dict[str, Json] | None


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in the completions: behind everything that was read. `Cursor()` is the beginning."""

    xid: str = "0"
    id: int = 0


@dataclass(frozen=True, slots=True)
class Completion:
    """Cells of one column and batch that ended alike in one transaction."""

    cursor: Cursor
    dispatch_id: int
    collection_id: int
    batch_id: int
    column_id: int
    outcome: str
    row_ids: list[int]
    completed_at: datetime


@dataclass(frozen=True, slots=True)
class Stalled:
    """A lane that has had something to do for so many seconds, and why nothing comes of it."""

    collection: str
    job_type: str
    seconds: float
    reason: str


def attempts(
    connection: Connection,
    collection_id: int,
    *,
    dispatch_id: int | None = None,
    column_id: int | None = None,
    row_id: int | None = None,
    failed: bool = False,
    before: int = 2**62,
    limit: int = 50,
) -> list[Attempt]:
    """Calls, latest first; with `failed`, all but the successes. A page of those with an id under `before`."""
    found = run(
        connection,
        "attempts_page",
        collection_id=collection_id,
        dispatch_id=dispatch_id,
        column_id=column_id,
        row_id=row_id,
        failed=failed,
        before=before,
        limit=limit,
    )
    return [Attempt(*one) for one in found]


def earlier_answers(
    connection: Connection, collection_id: int, row_id: int, column_id: int, limit: int = 50
) -> list[EarlierAnswer]:
    """What a cell had shown before, latest first."""
    found = run(
        connection, "answers_page", collection_id=collection_id, row_id=row_id, column_id=column_id, limit=limit
    )
    return [EarlierAnswer(*one) for one in found]


def completions_since(connection: Connection, cursor: Cursor, limit: int = 1000) -> list[Completion]:
    """Completions behind `cursor`; the last one's own cursor is where to go on. None is ever skipped.

    A writing transaction that stays open anywhere on the server holds them back: whether a dispatch has ended is for
    its `ended_at` to say.
    """
    found = run(connection, "completions_since", xid=cursor.xid, id=cursor.id, limit=limit)
    return [Completion(Cursor(xid, id), *rest) for xid, id, *rest in found]


def stalled(connection: Connection, seconds: float = 60.0) -> list[Stalled]:
    """Lanes that wait for longer than `seconds`, with the reason."""
    return [Stalled(*one) for one in run(connection, "stalled", seconds=seconds, backlog=BACKLOG)]
