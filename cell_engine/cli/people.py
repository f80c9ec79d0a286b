"""Commands for people who work with collections: apply, edit, reprocess, retry, show, status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cell_engine.cli.asking import DryRun, MaxCost, Yes, ask_first, print_estimate
from cell_engine.cli.common import (
    LARGEST_ID,
    AsJson,
    CollectionName,
    RowId,
    Wait,
    actor,
    computed_column,
    follow,
    full_name,
    named_column,
    open_database,
    warn_without_workers,
)
from cell_engine.errors import BadValueError, NotFoundError, SpecError
from cell_engine.prices import dollars

if TYPE_CHECKING:
    from cell_engine.specs.version import Column, Version

_Columns = Annotated[
    list[str] | None, typer.Option(help="Only this computed column; may be repeated. Default: all on-change ones.")
]
_Rows = Annotated[list[int] | None, typer.Option(min=1, max=LARGEST_ID, help="Only this row id; may be repeated.")]
_Batches = Annotated[list[str] | None, typer.Option(help="Only this batch, by its key; may be repeated.")]


def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The collection's YAML.")],
) -> None:
    """Make a collection's definition its current version, and recompute what that changes.

    The same definition again changes nothing.
    """
    from cell_engine.kinds.function_check import spec_problems
    from cell_engine.specs.compile import compile_file
    from cell_engine.store.applying import apply as apply_spec

    spec = compile_file(file)
    problems = spec_problems(spec, file)
    if problems:
        raise SpecError(problems)
    with open_database() as connection:
        applied = apply_spec(connection, spec, actor=actor())
        name = applied.collection.full_name
        if not applied.created:
            typer.echo(f"{name}: unchanged, version {applied.version.number}")
            return
        typer.echo(f"{name}: version {applied.version.number}")
        if applied.removed:
            typer.echo(
                f"no longer in it: {', '.join(applied.removed)} (their cells are kept, and are back when they are)",
                err=True,
            )
        if applied.dispatch_id is not None:
            typer.echo(f"recomputing {', '.join(applied.changed)} in dispatch {applied.dispatch_id}")
            warn_without_workers(connection, applied.version, applied.changed)


def edit(
    collection: CollectionName,
    row: RowId,
    values: Annotated[
        list[str] | None,
        typer.Argument(metavar="COLUMN=VALUE", help="New values, written as the column's type is in a CSV file."),
    ] = None,
    blank: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Leave this cell empty, and keep it so; may be repeated."),
    ] = None,
    wait: Wait = False,
) -> None:
    """Set cells of a row by hand: yours is the value that is shown, and no machine overwrites it.

    All values of one command are one change; what depends on them is recomputed at once. `COLUMN=` is the empty text,
    which is a value and fits text columns only; a cell without a value is `--blank COLUMN`.
    """
    from cell_engine.store.changes import edit as edit_row
    from cell_engine.store.collections import find_collection, load_version

    with open_database() as connection:
        found = find_collection(connection, full_name(collection))
        version = load_version(connection, found.id)
        changes = _changes(version, values or [], blank or [])
        dispatch_id = edit_row(connection, found.id, row, changes, actor=actor())
        dependents = {name for column in changes for name in version.dependents(column)}
        names = [one.name for one in version.computed if one.id in dependents and one.mode == "on_change"]
        recomputing = f"; recomputing {', '.join(names)}" if names else ""
        typer.echo(f"row {row}: dispatch {dispatch_id}{recomputing}")
        warn_without_workers(connection, version, names)
        if wait:
            follow(connection, dispatch_id)


def reprocess(
    collection: CollectionName,
    column: _Columns = None,
    row: _Rows = None,
    batch: _Batches = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Only cells that are: empty, outdated, not_found, errors; may be repeated. "
            "What was not found is looked for anew, past the cache."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also cells that are up to date.")] = False,
    wait: Wait = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    max_cost: MaxCost = None,
    as_json: AsJson = False,
) -> None:
    """Bring cells up to date: those whose inputs or definition changed, and with --force all of them.

    What would cost more than a dollar (AUTOFILL_ASK_ABOVE) asks first.

    With --force or --only and no --column, every computed column is asked for. Cells set by hand are left alone, unless
    their column is named: then the answer underneath is refreshed.
    """
    only_if: list[str] = []
    for one in only or ():
        if one not in ("empty", "outdated", "not_found", "errors"):
            raise BadValueError(f"--only {one!r}: it is one of empty, outdated, not_found, errors")
        only_if += _error_conditions(None) if one == "errors" else [one]
    # Not found is an answer, and current: only a force has it looked for again.
    force = force or "not_found" in only_if
    _dispatch(
        collection, "reprocess", column, row, batch, only_if or None, force, wait, dry_run, yes, as_json, max_cost
    )


def retry(
    collection: CollectionName,
    error_class: Annotated[
        list[str] | None, typer.Option("--class", help="Only errors of this class; may be repeated. Default: all.")
    ] = None,
    column: _Columns = None,
    row: _Rows = None,
    batch: _Batches = None,
    wait: Wait = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    max_cost: MaxCost = None,
    as_json: AsJson = False,
) -> None:
    """Compute again the cells that ended in error; no other cell is called for."""
    conditions = _error_conditions(error_class)
    _dispatch(collection, "retry", column, row, batch, conditions, False, wait, dry_run, yes, as_json, max_cost)


def _error_conditions(classes: Sequence[str] | None) -> list[str]:
    from cell_engine.store.reading import FAILED

    unknown = sorted(set(classes or ()) - FAILED)
    if unknown:
        raise BadValueError(f"--class {unknown[0]!r}: it is one of {', '.join(sorted(FAILED))}")
    return [f"error:{one}" for one in sorted(classes or FAILED)]


def _dispatch(
    collection: str,
    reason: str,
    column: Sequence[str] | None,
    row: Sequence[int] | None,
    batch: Sequence[str] | None,
    only_if: Sequence[str] | None,
    force: bool,
    wait: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    max_cost: str | None,
) -> None:
    """One dispatch over rows, batches or the collection: estimated only, or asked about, told, perhaps waited for."""
    from cell_engine.estimate import estimate
    from cell_engine.store.batches import find_batches
    from cell_engine.store.collections import find_collection, load_version
    from cell_engine.store.demands import RangeScope, RowScope, dispatch

    limit = None if max_cost is None else dollars(max_cost)
    if row and batch:
        raise BadValueError("--row and --batch exclude each other")
    with open_database() as connection:
        found = find_collection(connection, full_name(collection))
        version = load_version(connection, found.id)
        columns = [computed_column(version, name).id for name in column or []]
        if (force or only_if is not None) and not columns:
            columns = [one.id for one in version.computed]
        scope: RowScope | RangeScope
        if row:
            scope = RowScope(tuple(row))
        elif batch:
            batches = find_batches(connection, found.id, batch)
            unknown = set(batch) - {one.key for one in batches}
            if unknown:
                raise NotFoundError(f"{found.full_name} has no batch {', '.join(sorted(unknown))}")
            scope = RangeScope(tuple((one.first_row, one.last_row) for one in batches if one.rows))
        else:
            scope = RangeScope(((1, found.next_row - 1),) if found.next_row > 1 else ())
        if isinstance(scope, RangeScope) and not scope.ranges:
            typer.echo(f"{found.full_name} has no rows there; nothing to do")
            return
        names = [version.by_id[one].name for one in columns] or [one.name for one in version.computed]
        if dry_run or not yes:
            cost = estimate(connection, found, version, scope, columns=columns, force=force, only_if=only_if)
            if dry_run:
                print_estimate(cost, as_json)
                return
            ask_first(cost, f"{reason} {', '.join(names)} of {found.full_name}", limit)
        dispatch_id = dispatch(
            connection,
            found.id,
            scope,
            columns=columns,
            force=force,
            only_if=only_if,
            reason=reason,
            actor=actor(),
            max_cost=limit,
        )
        typer.echo(f"{found.full_name}: dispatch {dispatch_id} for {', '.join(names)}")
        warn_without_workers(connection, version, names)
        if wait:
            follow(connection, dispatch_id)


def show(
    collection: CollectionName,
    rows: Annotated[int, typer.Option(min=1, max=10_000, help="How many rows.")] = 20,
    after: Annotated[int, typer.Option(min=0, help="Only rows behind this row id: the next page.")] = 0,
    column: Annotated[list[str] | None, typer.Option(help="Only this column; may be repeated.")] = None,
    row: Annotated[
        list[int] | None,
        typer.Option(
            min=1, max=LARGEST_ID, help="This row alone, at length: where each answer comes from; may be repeated."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print rows as people see them: your value where you set one, else the computed one, else the cell's status."""
    from cell_engine.cli import one_row, render
    from cell_engine.store.collections import find_collection, load_version
    from cell_engine.store.reading import page

    with open_database() as connection:
        found = find_collection(connection, full_name(collection))
        version = load_version(connection, found.id)
        names = [named_column(version, name).name for name in column or version.by_name]
        pages = [(one - 1, 1) for one in sorted(set(row))] if row else [(after, rows)]
        read = [page(connection, found.id, after=after, limit=limit) for after, limit in pages]
    inputs = [cell for of_page, _ in read for cell in of_page]
    cells = [cell for _, of_page in read for cell in of_page]
    by_row = render.rows_of(inputs, cells)
    wanted = [version.by_name[name] for name in names]
    for one in row or ():
        if one not in by_row:
            raise NotFoundError(f"{found.full_name} has no row {one}")
    if row:
        by_row = {row_id: by_column for row_id, by_column in by_row.items() if row_id in row}
    if as_json:
        render.print_json([_row_json(version, row_id, by_column, wanted) for row_id, by_column in by_row.items()])
        return
    screen = render.console()
    if row:
        for number, (row_id, by_column) in enumerate(by_row.items()):
            if len(by_row) > 1:
                screen.print(f"{chr(10) if number else ''}row {row_id}")
            for line in one_row.lines(version, wanted, by_column):
                screen.print(line, soft_wrap=True)
        return
    screen.print(render.rows_table(version, inputs, cells, names, screen.width))
    moved = [cell for cell in cells if cell.inputs_moved and version.by_id[cell.column_id].name in names]
    if moved:
        where = ", ".join(f"row {cell.row_id} {version.by_id[cell.column_id].name}" for cell in moved)
        screen.print(f"* inputs changed since you edited: {where}", soft_wrap=True)
    if len(by_row) == rows:
        screen.print(f"next page: --after {max(by_row)}")


def status(
    collection: Annotated[str | None, typer.Argument(metavar="[COLLECTION]", help="namespace/name")] = None,
    as_json: AsJson = False,
) -> None:
    """What there is and what goes on: the stack, workers, the queue, and collections with their cells by status."""
    from cell_engine.cli.status import print_status

    print_status(None if collection is None else full_name(collection), as_json)


def _row_json(version: Version, row_id: int, by_column: Mapping[int, Any], columns: Sequence[Column]) -> dict[str, Any]:
    from cell_engine.cli.one_row import waits_for

    cells: dict[str, Any] = {}
    for column in columns:
        cell = by_column.get(column.id)
        if column.kind is None:
            cells[column.name] = {"value": cell and cell.value, "edited": bool(cell and cell.edited)}
        elif cell is not None:
            cells[column.name] = {
                "value": cell.value,
                "status": cell.status,
                "error_class": cell.error_class,
                "error": cell.error,
                "model": cell.model,
                "inputs_moved": cell.inputs_moved,
                "details": cell.details,
                "proposed": cell.proposed,
                "waits_for": waits_for(version, column, by_column),
            }
    return {"row": row_id, "cells": cells}


def _changes(version: Version, values: Sequence[str], blank: Sequence[str]) -> dict[int, Any]:
    """Column id → new value, None for a blank. Raises BadValueError, NotFoundError."""
    changes: dict[int, Any] = {}
    for assignment in values:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise BadValueError(f"{assignment!r} is no COLUMN=VALUE")
        column = named_column(version, name)
        if column.id in changes:
            raise BadValueError(f"column {name!r} is given twice")
        try:
            changes[column.id] = column.type.parse(text)
        except BadValueError as error:
            hint = f" (for no value at all: --blank {name})" if not text else ""
            raise BadValueError(f"column {name!r}: {error}{hint}") from None
    for name in blank:
        column = named_column(version, name)
        if column.id in changes:
            raise BadValueError(f"column {name!r} is given twice")
        changes[column.id] = None
    if not changes:
        raise BadValueError("nothing to change: give COLUMN=VALUE or --blank COLUMN")
    return changes


COMMANDS = (apply, edit, reprocess, retry, show, status)
CONTEXT_SETTINGS: dict[str, dict[str, Any]] = {}
