"""Everything that wants recomputation comes in here: one dispatch primitive for edits, loads and reprocesses.

A few rows become work at once; many become a sweep, whose cost does not depend on how many.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cell_engine.errors import BadValueError, NotFoundError
from cell_engine.specs.version import Version
from cell_engine.store.admission import admit
from cell_engine.store.collections import load_version
from cell_engine.store.database import Connection, run
from cell_engine.store.reading import dispatch_of
from cell_engine.store.results import end_dispatches


@dataclass(frozen=True, slots=True)
class RowScope:
    """A few rows, named: they go ahead of every sweep."""

    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RangeScope:
    """Contiguous ranges of row ids, both ends included: batches, or the whole collection."""

    ranges: tuple[tuple[int, int], ...]


def dispatch(
    connection: Connection,
    collection_id: int,
    scope: RowScope | RangeScope,
    *,
    columns: Sequence[int] = (),
    force: bool = False,
    only_if: Sequence[str] | None = None,
    reason: str,
    actor: str,
    key: str | None = None,
    max_cost: int | None = None,
) -> int:
    """Ask for cells to be brought up to date; returns the dispatch's id.

    `columns` are computed columns asked for by name; none means whatever is on-change and differs. Cells that are fresh
    are left alone unless `force`; with `only_if` (see `plan.matches`), so is every cell that is none of it. With a
    `key` that has been used, the dispatch it made is returned: asked twice, done once. Once it has cost `max_cost`
    (billionths of a dollar) it is paused. Raises NotFoundError for rows or columns that do not exist, and
    AdmissionError when a limit refuses it for now.
    """
    with connection.transaction():
        if key is not None:
            # Two askers with one key wait here, so that the second finds what the first made.
            connection.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"autofill.dispatch {key}"])
            known = dispatch_of(connection, key)
            if known is not None:
                return known
        admit(connection, collection_id, 1 if isinstance(scope, RangeScope) else _cells(scope.rows, columns))
        dispatch_id, displaced = dispatch_in_transaction(
            connection,
            collection_id,
            scope,
            columns=columns,
            force=force,
            only_if=only_if,
            reason=reason,
            actor=actor,
            key=key,
            max_cost=max_cost,
        )
    end_dispatches(connection, [dispatch_id, *displaced])
    return dispatch_id


def dispatch_in_transaction(
    connection: Connection,
    collection_id: int,
    scope: RowScope | RangeScope,
    *,
    columns: Sequence[int] = (),
    force: bool = False,
    only_if: Sequence[str] | None = None,
    reason: str,
    actor: str,
    key: str | None = None,
    max_cost: int | None = None,
) -> tuple[int, list[int]]:
    """`dispatch` as a part of the caller's transaction; also returns dispatches to be looked at for their end after
    it has committed."""
    if isinstance(scope, RangeScope):
        # The signals of sweeps are ordered by the collection's lock, and rows are those there under it.
        run(connection, "collection_lock", collection_id=collection_id)
        version = load_version(connection, collection_id)
        _check_columns(version, columns)
        rows = sum(last - first + 1 for first, last in scope.ranges)
        dispatch_id, _ = insert_dispatch(
            connection,
            version,
            reason=reason,
            actor=actor,
            columns=columns,
            force=force,
            only_if=only_if,
            key=key,
            max_cost=max_cost,
            rows=rows,
        )
        run(
            connection,
            "sweep_insert",
            dispatch_id=dispatch_id,
            collection_id=collection_id,
            job_type=_job_type(version, columns),
            first_rows=[first for first, _ in scope.ranges],
            last_rows=[last for _, last in scope.ranges],
        )
        return dispatch_id, []
    version = load_version(connection, collection_id)
    _check_columns(version, columns)
    rows_ = lock_rows(connection, collection_id, scope.rows)
    dispatch_id, _ = insert_dispatch(
        connection,
        version,
        reason=reason,
        actor=actor,
        columns=columns,
        force=force,
        only_if=only_if,
        key=key,
        max_cost=max_cost,
        rows=len(rows_),
        backlog=_cells(rows_, columns),
    )
    met = lock_work(connection, collection_id, rows_)
    return dispatch_id, raise_rows(connection, version, rows_, met, dispatch_id, columns)


def raise_rows(
    connection: Connection,
    version: Version,
    rows: Sequence[int],
    met: set[int],
    dispatch_id: int,
    likely: Sequence[int] = (),
    priority: Literal["edit", "sweep"] = "edit",
) -> list[int]:
    """The demand of a dispatch on rows that are locked, as is the work of those that have any (`met`).

    `likely` are columns that it makes due: where the rows start. `priority`: a sweep's is for what holds up no edit.
    Returns dispatches whose end this may have been.
    """
    displaced: list[int] = []
    job_type = _job_type(version, likely)
    if met:
        raised = run(
            connection,
            "demand_raise",
            dispatch_id=dispatch_id,
            rows=sorted(met),
            job_type=job_type,
            priority=priority,
        )
        displaced = [one.owner for one in raised]
    fresh = [row_id for row_id in rows if row_id not in met]
    if fresh:
        run(
            connection,
            "demand_queue",
            dispatch_id=dispatch_id,
            rows=fresh,
            job_type=job_type,
            priority=priority,
        )
    return displaced


def insert_dispatch(
    connection: Connection,
    version: Version,
    *,
    reason: str,
    actor: str,
    columns: Sequence[int] = (),
    force: bool = False,
    only_if: Sequence[str] | None = None,
    key: str | None = None,
    max_cost: int | None = None,
    rows: int = 0,
    backlog: int = 1,
    reverts: int | None = None,
) -> tuple[int, int]:
    """The dispatch itself, over `rows` rows; returns its id and its signal, taken here: hold the locks first.

    `backlog` are the cells it asks for row by row."""
    width = len(columns) or sum(column.mode == "on_change" for column in version.computed)
    made = run(
        connection,
        "dispatch_insert",
        collection_id=version.collection_id,
        reason=reason,
        actor=actor,
        columns=list(columns),
        force=force,
        key=key,
        total=rows * width,
        version=version.number,
        reverts=reverts,
        backlog=backlog,
        only_if=None if only_if is None else list(only_if),
        max_cost=max_cost,
    ).fetchone()
    assert made is not None
    return int(made.id), int(made.signal)


def lock_rows(connection: Connection, collection_id: int, rows: Sequence[int]) -> list[int]:
    """Lock rows, in order; returns their ids. Raises NotFoundError for one that does not exist, or is deleted."""
    wanted = sorted(set(rows))
    found = run(connection, "lock_rows", collections=[collection_id] * len(wanted), rows=wanted).fetchall()
    alive = {one.row_id for one in found if one.deleted_at is None}
    missing = [row_id for row_id in wanted if row_id not in alive]
    if missing:
        raise NotFoundError(f"no such row: {', '.join(map(str, missing[:5]))}")
    return wanted


def lock_work(connection: Connection, collection_id: int, rows: Sequence[int]) -> set[int]:
    """Lock the work of rows that are locked; returns those that have any."""
    found = run(connection, "lock_work", collections=[collection_id] * len(rows), rows=list(rows))
    return {one.row_id for one in found}


def _job_type(version: Version, columns: Sequence[int]) -> str:
    """The pool where the rows start: that of the first column likely to be due. A wrong guess is handed over."""
    wanted = set(columns) or {column.id for column in version.computed if column.mode == "on_change"}
    first = next((column for column in version.computed if column.id in wanted), None)
    return first.job_type if first is not None else "function"


def _cells(rows: Sequence[int], columns: Sequence[int]) -> int:
    """Cells asked for row by row; where none is named, a row is one."""
    return len(set(rows)) * max(1, len(columns))


def _check_columns(version: Version, columns: Sequence[int]) -> None:
    for column_id in columns:
        column = version.by_id.get(column_id)
        if column is None:
            raise NotFoundError(f"no column with id {column_id} in version {version.number}")
        if column.kind is None:
            raise BadValueError(f"column {column.name!r} is an input: only computed columns can be reprocessed")
