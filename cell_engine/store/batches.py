"""Batches: rows that arrived together, with all of their rows or not at all."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from cell_engine.errors import AutofillError
from cell_engine.specs.text import Json
from cell_engine.specs.version import Version
from cell_engine.store.collections import hold_version
from cell_engine.store.database import Connection, run, statement
from cell_engine.store.demands import RangeScope, dispatch_in_transaction
from cell_engine.store.rejected import REJECTED_KEPT, Rejected, keep_rejected
from cell_engine.store.results import end_dispatches


class InputsChangedError(AutofillError):
    """Rows were checked against input columns that have another type by now, or are gone: check them again."""


class FilesLoadedError(AutofillError):
    """Another load was first with some of the files: look which, and go on without them."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A contiguous range of row ids; empty when last_row < first_row. `rejected`: (line, reason), the first 1,000.

    `actor` loaded it. `dispatch_id` is known only to who has just added it: what its rows make due is computed in that.
    """

    id: int
    key: str
    source: str
    first_row: int
    last_row: int
    rejected: tuple[tuple[int, str], ...]
    rejected_rows: int
    loaded_at: datetime
    actor: str
    dispatch_id: int | None = field(default=None, compare=False)

    @property
    def rows(self) -> int:
        return self.last_row - self.first_row + 1


@dataclass(frozen=True, slots=True)
class BatchFile:
    """A file that is in a batch. `key` is of its content; its `rows` begin `offset` rows into the batch."""

    key: str
    name: str
    offset: int
    rows: int
    rejected_rows: int


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that is in, by its content: the key of its `batch` (its first, if it has several), its rows there, and
    what it was called when it came."""

    key: str
    batch: str
    name: str
    first_row: int
    last_row: int
    rejected_rows: int

    @property
    def rows(self) -> int:
        return self.last_row - self.first_row + 1


def find_files(connection: Connection, collection_id: int, keys: Sequence[str]) -> dict[str, FoundFile]:
    """Those of the files that are in, by key."""
    found = run(connection, "batch_files_find", collection_id=collection_id, keys=list(keys))
    return {one.key: FoundFile(*one) for one in found}


def list_files(connection: Connection, collection_id: int, batch_id: int, limit: int = 1000) -> list[FoundFile]:
    """The files of a batch, in the order of their rows."""
    found = run(connection, "batch_files_list", collection_id=collection_id, batch_id=batch_id, limit=limit)
    return [FoundFile(*one) for one in found]


def find_batches(connection: Connection, collection_id: int, keys: Sequence[str]) -> list[Batch]:
    """Those of the keys that are loaded, in arrival order."""
    return [_batch(one) for one in run(connection, "batch_find", collection_id=collection_id, keys=list(keys))]


def list_batches(connection: Connection, collection_id: int, *, after: int = 0, limit: int = 1000) -> list[Batch]:
    """A page in arrival order, of batches with an id above `after`."""
    return [_batch(one) for one in run(connection, "batch_list", collection_id=collection_id, after=after, limit=limit)]


def unknown_batches(
    connection: Connection, collection_id: int, known: Sequence[str], *, limit: int = 1000
) -> list[Batch]:
    """Those whose keys are not among the `known`, in arrival order. Reads all of the collection's."""
    found = run(connection, "batch_unknown", collection_id=collection_id, known=list(known), limit=limit)
    return [_batch(one) for one in found]


def count_batches(connection: Connection, collection_id: int) -> tuple[int, int]:
    """How many there are, and the highest id of one. Batches are never deleted: the same count is the same batches.

    Ids are given out before their batch commits, so that a lower one may come later.
    """
    found = run(connection, "batch_count", collection_id=collection_id).fetchone()
    assert found is not None
    return int(found.batches), int(found.latest)


def add_batch(
    connection: Connection,
    version: Version,
    key: str,
    rows: Sequence[Mapping[int, Json]],
    *,
    source: str,
    actor: str,
    rejected: Sequence[Rejected] = (),
    files: Sequence[BatchFile] = (),
    demand: bool = True,
) -> tuple[Batch, bool]:
    """Add `rows` (column id → accepted value; None or absent is missing) as one batch; returns it, and if it is new.

    `version` is what the values were checked against; it may be an older one whose input columns are as they are now,
    else this raises InputsChangedError and adds nothing. With `demand`, what the rows make due is dispatched in the
    same transaction. A known key changes nothing: the same content twice is the same batch, also when two loaders race.
    `files` are those that the rows are of: where one of them is in, this raises FilesLoadedError and adds nothing.
    """
    known = find_batches(connection, version.collection_id, [key])
    if known:
        return known[0], False

    def fill(batch_id: int, first_row: int) -> None:
        _copy(connection, version.collection_id, batch_id, first_row, rows)

    return make_batch(
        connection,
        version,
        key,
        len(rows),
        fill,
        source=source,
        actor=actor,
        rejected=rejected,
        files=files,
        demand=demand,
    )


def make_batch(
    connection: Connection,
    version: Version,
    key: str,
    rows: int,
    fill: Callable[[int, int], None],
    *,
    source: str,
    actor: str,
    rejected: Sequence[Rejected] = (),
    files: Sequence[BatchFile] = (),
    demand: bool = True,
    before: Callable[[], None] = lambda: None,
) -> tuple[Batch, bool]:
    """`add_batch` of so many rows, which `fill(batch id, first row id)` adds within the batch's transaction.

    `before` is called first in it: whatever it raises keeps the batch from being made.
    """
    collection_id = version.collection_id
    # A transaction of its own: the collection's lock is not held while rows stream in, and a gap hurts nobody.
    range_ = run(connection, "batch_reserve", collection_id=collection_id, rows=rows).fetchone()
    assert range_ is not None
    dispatch_id: int | None = None
    with connection.transaction():
        before()
        added = run(
            connection,
            "batch_insert",
            collection_id=collection_id,
            batch_id=range_.batch_id,
            key=key,
            source=source,
            first_row=range_.first_row,
            last_row=range_.first_row + rows - 1,
            rejected=json.dumps([(one.line, _reason(one)) for one in rejected[:REJECTED_KEPT]]),
            rejected_rows=len(rejected),
            actor=actor,
        ).fetchone()
        if added is not None:
            _add_files(connection, collection_id, range_.batch_id, range_.first_row, files)
            keep_rejected(connection, collection_id, rejected, batch_id=range_.batch_id)
            fill(range_.batch_id, range_.first_row)
            if demand and rows:
                dispatch_id, _ = dispatch_in_transaction(
                    connection,
                    collection_id,
                    RangeScope(((range_.first_row, range_.first_row + rows - 1),)),
                    reason="load",
                    actor=actor,
                )
            # Last: no apply waits while rows stream in, and the order of apply's own locks (the collection's first).
            check_inputs(version, hold_version(connection, collection_id))
    if dispatch_id is not None:
        end_dispatches(connection, [dispatch_id])
    (batch,) = find_batches(connection, collection_id, [key])
    return replace(batch, dispatch_id=dispatch_id), added is not None


def check_inputs(checked: Version, current: Version) -> None:
    """Raises InputsChangedError where rows checked against the one version may not fit the other."""
    types = {column.id: column.type for column in current.columns}
    for column in checked.input_columns:
        if types.get(column.id) != column.type:
            raise InputsChangedError(
                f"column {column.name!r} is {'of another type' if column.id in types else 'gone'} since the rows were "
                f"checked against version {checked.number}: check them again"
            )


def _copy(
    connection: Connection, collection_id: int, batch_id: int, first_row: int, rows: Sequence[Mapping[int, Json]]
) -> None:
    with connection.cursor() as cursor, cursor.copy(statement("rows_copy")) as copy:
        for row_id, row in enumerate(rows, first_row):
            inputs = {column: value for column, value in row.items() if value is not None}
            copy.write_row((collection_id, row_id, batch_id, json.dumps(inputs, ensure_ascii=False)))


def _add_files(
    connection: Connection, collection_id: int, batch_id: int, first_row: int, files: Sequence[BatchFile]
) -> None:
    if not files:
        return
    added = run(
        connection,
        "batch_files_insert",
        collection_id=collection_id,
        batch_id=batch_id,
        keys=[one.key for one in files],
        names=[one.name for one in files],
        first_rows=[first_row + one.offset for one in files],
        last_rows=[first_row + one.offset + one.rows - 1 for one in files],
        rejected_rows=[one.rejected_rows for one in files],
    )
    if added.rowcount < len(files):
        raise FilesLoadedError(f"{len(files) - added.rowcount} of {len(files)} files have been loaded meanwhile")


def _reason(line: Rejected) -> str:
    return line.reason if line.source is None else f"{line.source}: {line.reason}"


def _batch(one: Any) -> Batch:
    return Batch(
        one.id,
        one.key,
        one.source,
        one.first_row,
        one.last_row,
        tuple((line, reason) for line, reason in one.rejected),
        one.rejected_rows,
        one.loaded_at,
        one.actor,
    )
