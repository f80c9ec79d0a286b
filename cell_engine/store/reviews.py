"""Review: answers that wait for a person, and what people, or a time-out, decide of them.

To accept is a person's act on the AI's answer: the answer is shown from then on, and it stays the AI's (R5). What reads
it is demanded in the same transaction, as by an edit (R6), and so is what reads a rejected one: it is blocked then.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby

from psycopg import Rollback

from cell_engine.specs.text import Json, clean_text
from cell_engine.store.admission import admit
from cell_engine.store.collections import hold_version
from cell_engine.store.database import Connection, run
from cell_engine.store.demands import insert_dispatch, lock_work, raise_rows
from cell_engine.store.results import end_dispatches

CHUNK = 500
"""Cells decided in one transaction, which holds their rows."""

TIME_OUT = "review time-out"
"""Who decides when nobody has."""

WHY_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class Proposal:
    """An answer that waits for review. `accepted`: the answer accepted before it, None where there was none. `since`
    tells it from a later one of its cell. `details` are what came with it, such as where it was found."""

    row_id: int
    column_id: int
    value: Json
    accepted: Json
    model: str | None
    version: int | None
    since: datetime
    details: dict[str, Json] | None


@dataclass(frozen=True, slots=True)
class Filter:
    """Which proposals: of these columns, in these ranges of row ids (both ends included; None: all), of this value
    (None: any)."""

    columns: tuple[int, ...]
    ranges: tuple[tuple[int, int], ...] | None = None
    value: Json = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided of one proposal: by whom, when, and, where it was rejected, perhaps why."""

    id: int
    row_id: int
    column_id: int
    accepted: bool
    actor: str
    decided_at: datetime
    value: Json
    why: str | None
    version: int | None
    model: str | None
    dispatch_id: int


@dataclass(slots=True)
class Decided:
    """How many cells, and the dispatches that what follows from them is computed in."""

    cells: int = 0
    dispatches: list[int] = field(default_factory=list)


def proposals(
    connection: Connection, collection_id: int, which: Filter, *, after: tuple[int, int] = (0, 0), limit: int = 50
) -> list[Proposal]:
    """What waits for review, in the order of rows; a page of what is behind the cell `after` (row id, column id)."""
    ranges = which.ranges
    found = run(
        connection,
        "review_page",
        collection_id=collection_id,
        columns=list(which.columns),
        first_rows=None if ranges is None else [first for first, _ in ranges],
        last_rows=None if ranges is None else [last for _, last in ranges],
        value=None if which.value is None else json.dumps(which.value, ensure_ascii=False),
        after_row=after[0],
        after_column=after[1],
        limit=limit,
    )
    return [Proposal(*one) for one in found]


def decide(
    connection: Connection,
    collection_id: int,
    which: Filter,
    *,
    accepted: bool,
    actor: str,
    why: str | None = None,
) -> Decided:
    """Accept or reject all that wait and are meant, some hundred cells a transaction.

    Raises AdmissionError when a limit refuses it for now; what was decided before that stays decided.
    """
    decided = Decided()
    after = (0, 0)
    is_bulk = False
    while page := proposals(connection, collection_id, which, after=after, limit=CHUNK):
        after = (page[-1].row_id, page[-1].column_id)
        # More than one go are work like a sweep's: they hold up nobody's edit.
        is_bulk = is_bulk or len(page) == CHUNK
        made = decide_these(connection, collection_id, page, accepted=accepted, actor=actor, why=why, is_bulk=is_bulk)
        decided.cells += made.cells
        decided.dispatches += made.dispatches
    return decided


def decide_these(
    connection: Connection,
    collection_id: int,
    seen: Sequence[Proposal],
    *,
    accepted: bool,
    actor: str,
    why: str | None = None,
    is_bulk: bool = False,
    is_admitted: bool = False,
) -> Decided:
    """Accept or reject these very answers, in one transaction; what has become another answer meanwhile, was overridden
    or decided by somebody else, is left alone. `is_admitted`: no limit is asked.

    Raises AdmissionError when a limit refuses it for now.
    """
    why = None if why is None else clean_text(why).strip()[:WHY_CHARACTERS] or None
    error = f"rejected by {actor}" + (f": {why}" if why else "")
    with connection.transaction() as transaction:
        rows = sorted({one.row_id for one in seen})
        if not is_admitted:
            admit(connection, collection_id, len(rows))
        version = hold_version(connection, collection_id)
        locked = run(connection, "lock_rows", collections=[collection_id] * len(rows), rows=rows).fetchall()
        alive = {one.row_id for one in locked if one.deleted_at is None}
        seen = [one for one in seen if one.row_id in alive]
        # Before the cells: finalize locks a row's work and then its cells.
        met = lock_work(connection, collection_id, rows)
        reason = "accept" if accepted else "reject"
        dispatch_id, signal = insert_dispatch(connection, version, reason=reason, actor=actor, backlog=len(rows))
        done = run(
            connection,
            "review_decide",
            collection_id=collection_id,
            rows=[one.row_id for one in seen],
            columns=[one.column_id for one in seen],
            seen=[one.since for one in seen],
            accepted=accepted,
            error=error,
            why=None if accepted else why,
            dispatch_id=dispatch_id,
            signal=signal,
        ).fetchall()
        # What nobody reads leads to nothing.
        led = sorted({one.row_id for one in done if version.readers.get(one.column_id)})
        likely = {reader for one in {one.column_id for one in done} for reader in version.dependents(one)}
        displaced = raise_rows(
            connection, version, led, met & set(led), dispatch_id, sorted(likely), "sweep" if is_bulk else "edit"
        )
        if not done:
            raise Rollback(transaction)
    end_dispatches(connection, [dispatch_id, *displaced])
    return Decided(len(done), [dispatch_id]) if done else Decided()


def decide_overdue(connection: Connection, limit: int = CHUNK) -> int:
    """One bounded step of the janitor: what nobody has reviewed in the time that its column gives is accepted or
    rejected, as it says there. Returns how many cells; several janitors at once decide none twice."""
    found = run(connection, "review_overdue", limit=limit).fetchall()
    cells = 0
    for (collection_id, outcome), group in groupby(found, key=lambda one: (one.collection_id, one.outcome)):
        seen = [Proposal(*one[1:9]) for one in group]
        cells += decide_these(
            connection,
            collection_id,
            seen,
            accepted=outcome == "accept",
            actor=TIME_OUT,
            why="nobody reviewed it in time",
            is_bulk=True,
            is_admitted=True,
        ).cells
    return cells


def decisions(
    connection: Connection,
    collection_id: int,
    *,
    row_id: int | None = None,
    column_id: int | None = None,
    before: int = 2**62,
    limit: int = 50,
) -> list[Decision]:
    """What was decided, latest first, of the collection, a row or a cell; a page of those with an id under `before`."""
    found = run(
        connection,
        "decisions_page",
        collection_id=collection_id,
        row_id=row_id,
        column_id=column_id,
        before=before,
        limit=limit,
    )
    return [Decision(*one) for one in found]
