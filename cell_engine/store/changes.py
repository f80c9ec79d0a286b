"""What people change in cells: a value of their own, or giving it up again; and taking a change back.

A change is one dispatch: what depends on it is demanded in the same transaction (R6), as one signal. A person's value
is always the one shown, and no machine writes it (R5).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from cell_engine.errors import AutofillError, BadValueError, NotFoundError
from cell_engine.specs.text import Json
from cell_engine.specs.version import Version
from cell_engine.store.admission import admit
from cell_engine.store.collections import hold_version
from cell_engine.store.database import Connection, run
from cell_engine.store.demands import insert_dispatch, lock_rows, lock_work, raise_rows
from cell_engine.store.results import end_dispatches


class ConflictError(AutofillError):
    """A change cannot be taken back: somebody has changed one of its cells again, or their column's type."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One cell of one change: what the person's side of it was, and became. `set` false: there was, or is, none."""

    id: int
    row_id: int
    column_id: int
    reason: Literal["edit", "reset", "undo", "redo"]
    actor: str
    changed_at: datetime
    was_set: bool
    was: Json
    now_set: bool
    now: Json
    dispatch_id: int
    reverts: int | None


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a cell's person's side shall be; no value at all when `is_set` is false."""

    is_set: bool
    value: Json = None


def edit(connection: Connection, collection_id: int, row_id: int, values: Mapping[int, Json], *, actor: str) -> int:
    """A person's values for cells of one row, by column id; None is a blank, which is a value too.

    Returns the dispatch's id. Raises NotFoundError for a row or column that does not exist, BadValueError for a value
    that does not fit its type, AdmissionError when a limit refuses it for now (so do reset, undo and redo).
    """
    with connection.transaction():
        admit(connection, collection_id)
        version = hold_version(connection, collection_id)
        wanted = {column: _Wanted(True, _accept(version, column, value)) for column, value in values.items()}
        dispatch_id, displaced, _ = _change(connection, version, {row_id: wanted}, "edit", actor)
    end_dispatches(connection, [dispatch_id, *displaced])
    return dispatch_id


def reset(connection: Connection, collection_id: int, row_id: int, columns: Sequence[int], *, actor: str) -> int:
    """Give up a person's values: the AI's answer, or the loaded value, is shown again, and refreshed if it is outdated.

    Returns the dispatch's id. Raises NotFoundError for a row or column that does not exist, and when none of the cells
    has a person's value.
    """
    with connection.transaction():
        admit(connection, collection_id)
        version = hold_version(connection, collection_id)
        for column in columns:
            _column_name(version, column)
        wanted = {column: _Wanted(False) for column in columns}
        dispatch_id, displaced, changed = _change(connection, version, {row_id: wanted}, "reset", actor)
        if not changed:
            names = ", ".join(_column_name(version, column) for column in columns)
            raise NotFoundError(f"row {row_id} has no value of a person in {names}: there is nothing to reset")
    end_dispatches(connection, [dispatch_id, *displaced])
    return dispatch_id


def undo(connection: Connection, collection_id: int, *, actor: str) -> int:
    """Take back the actor's latest change that is not taken back yet; returns the dispatch's id.

    Raises NotFoundError when there is none, ConflictError when somebody has changed a cell, or its type, since.
    """
    return _revert(connection, collection_id, "undo", actor)


def redo(connection: Connection, collection_id: int, *, actor: str) -> int:
    """Take back the actor's latest undo, unless the actor has changed something since; returns the dispatch's id.

    Raises NotFoundError when there is none, ConflictError when somebody has changed a cell, or its type, since.
    """
    return _revert(connection, collection_id, "redo", actor)


def history(
    connection: Connection,
    collection_id: int,
    *,
    row_id: int | None = None,
    column_id: int | None = None,
    before: int = 2**62,
    limit: int = 50,
) -> list[Entry]:
    """People's changes, latest first, of the collection, a row or a cell; a page of those with an id under `before`."""
    found = run(
        connection,
        "history_page",
        collection_id=collection_id,
        row_id=row_id,
        column_id=column_id,
        before=before,
        limit=limit,
    )
    return [Entry(*one) for one in found]


def _revert(connection: Connection, collection_id: int, reason: Literal["undo", "redo"], actor: str) -> int:
    with connection.transaction():
        admit(connection, collection_id)
        version = hold_version(connection, collection_id)
        # One at a time per collection and actor: two undos at once are two changes taken back, not one twice.
        connection.execute(
            "select pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"autofill.revert {collection_id} {actor}"]
        )
        target = run(connection, f"change_find_{reason}", collection_id=collection_id, actor=actor).fetchone()
        if target is None:
            raise NotFoundError(f"{actor} has nothing to {reason} in this collection")
        rows = {one.row_id for one in run(connection, "change_entries", dispatch_id=target.id)}
        lock_rows(connection, collection_id, sorted(rows))
        wanted: dict[int, dict[int, _Wanted]] = {}
        # Read again under the rows' locks: nobody comes in between any more.
        for one in run(connection, "change_entries", dispatch_id=target.id):
            if one.overtaken_by is not None:
                raise ConflictError(
                    f"cannot {reason}: row {one.row_id}, column {_column_name(version, one.column_id)!r} was changed "
                    f"again by {one.overtaken_by} at {one.overtaken_at:%Y-%m-%d %H:%M:%S}"
                )
            try:
                was = _accept(version, one.column_id, one.was) if one.column_id in version.by_id else one.was
            except BadValueError as error:
                raise ConflictError(f"cannot {reason}: what row {one.row_id} held does not fit now: {error}") from None
            wanted.setdefault(one.row_id, {})[one.column_id] = _Wanted(one.was_set, was)
        dispatch_id, displaced, _ = _change(connection, version, wanted, reason, actor, reverts=target.id)
    end_dispatches(connection, [dispatch_id, *displaced])
    return dispatch_id


def _change(
    connection: Connection,
    version: Version,
    wanted: Mapping[int, Mapping[int, _Wanted]],
    reason: str,
    actor: str,
    reverts: int | None = None,
) -> tuple[int, list[int], int]:
    """One change of cells (row id → column id → what it shall be) and the demand that follows from it.

    Returns the dispatch, dispatches whose end this may have been, and how many cells it touched.
    """
    collection_id = version.collection_id
    rows = lock_rows(connection, collection_id, list(wanted))
    # Before the cells: finalize locks a row's work and then its cells.
    met = lock_work(connection, collection_id, rows)
    dispatch_id, signal = insert_dispatch(connection, version, reason=reason, actor=actor, reverts=reverts)
    changed = 0
    for row_id in rows:
        cells = wanted[row_id]
        values = [cell.value for cell in cells.values()]
        changed += run(
            connection,
            "change_cells",
            collection_id=collection_id,
            row_id=row_id,
            dispatch_id=dispatch_id,
            actor=actor,
            signal=signal,
            columns=list(cells),
            sets=[cell.is_set for cell in cells.values()],
            values=[None if value is None else json.dumps(value, ensure_ascii=False) for value in values],
        ).rowcount
    touched = {column for cells in wanted.values() for column in cells}
    likely = [*touched, *(dependent for column in touched for dependent in version.dependents(column))]
    return dispatch_id, raise_rows(connection, version, rows, met, dispatch_id, likely), changed


def _accept(version: Version, column_id: int, value: Json) -> Json:
    name = _column_name(version, column_id)
    if value is None:
        return None
    try:
        return version.by_id[column_id].type.accept(value)
    except BadValueError as error:
        raise BadValueError(f"column {name!r}: {error}") from None


def _column_name(version: Version, column_id: int) -> str:
    column = version.by_id.get(column_id)
    if column is None:
        raise NotFoundError(f"no column with id {column_id} in version {version.number}")
    return column.name
