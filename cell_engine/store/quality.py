"""What checks of a collection read: how many cells are in error, how many answers have evidence, what waits how long.

Set-wise, and by what is indexed: nothing here reads a cell's value but of rows that were chosen before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from cell_engine.store.database import Connection, run


@dataclass(frozen=True, slots=True)
class FailedCells:
    """Cells of one column and batch that show an error of one class."""

    column_id: int
    batch: str
    error_class: str
    cells: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """Of one column and batch: `answers`, those with a quote that was found in an input, those that also have one that
    was not; and `unsupported` cells, which have no answer for want of a quote."""

    column_id: int
    batch: str
    answers: int
    quoted: int
    unverified: int
    unsupported: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """What is due in a column. `since` when, for how many seconds (`age`), None where nothing is. `rows` are in the
    queue; `paused`: all that is not in it yet is.

    `refreshed_at`, of a column that is not on_change: when the last dispatch was made that named it and has ended,
    `dispatch_id`. `applied_at`: when the current version was. `now` is the database's clock.
    """

    column_id: int
    since: datetime | None
    age: float | None
    rows: int
    paused: bool | None
    refreshed_at: datetime | None
    dispatch_id: int | None
    applied_at: datetime
    now: datetime


def failed_cells(
    connection: Connection, collection_id: int, classes: Sequence[str], batches: Sequence[str] | None = None
) -> list[FailedCells]:
    """Those of all batches, or of some by key. Costs what there is in error."""
    found = run(
        connection,
        "quality_failed",
        collection_id=collection_id,
        classes=list(classes),
        batches=None if batches is None else list(batches),
    )
    return [FailedCells(*one) for one in found]


def counted_cells(
    connection: Connection, collection_id: int, batches: Sequence[str] | None = None
) -> dict[tuple[int, str], int]:
    """Cells that were computed or edited, by column id and batch key. Reads an index entry a cell."""
    found = run(
        connection,
        "quality_cells",
        collection_id=collection_id,
        batches=None if batches is None else list(batches),
    )
    return {(one.column_id, one.batch): one.cells for one in found}


def evidence_of(
    connection: Connection, collection_id: int, columns: Sequence[int], rows: Sequence[int]
) -> list[Evidence]:
    """Of these rows alone."""
    found = run(connection, "quality_evidence", collection_id=collection_id, columns=list(columns), rows=list(rows))
    return [Evidence(*one) for one in found]


def waiting(connection: Connection, collection_id: int) -> dict[int, Waiting]:
    """By the id of each computed column. Reads what is in the queue, once a column."""
    return {one.column_id: Waiting(*one) for one in run(connection, "quality_waiting", collection_id=collection_id)}
