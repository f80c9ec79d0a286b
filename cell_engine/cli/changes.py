"""Commands that take people's changes back, and list them: reset, undo, redo, history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from cell_engine.cli.common import (
    LARGEST_ID,
    AsJson,
    CollectionName,
    RowId,
    Wait,
    actor,
    follow,
    named_column,
    open_database,
)


def reset(
    collection: CollectionName,
    row: RowId,
    columns: Annotated[list[str], typer.Argument(metavar="COLUMN...", help="Cells that were set by hand.")],
    wait: Wait = False,
) -> None:
    """Give up values set by hand: the computed or loaded one is shown again, and refreshed if it is outdated."""
    from cell_engine.store import changes
    from cell_engine.store.collections import find_collection, load_version

    with open_database() as connection:
        found = find_collection(connection, collection)
        version = load_version(connection, found.id)
        wanted = [named_column(version, name).id for name in columns]
        dispatch_id = changes.reset(connection, found.id, row, wanted, actor=actor())
        typer.echo(f"row {row}: dispatch {dispatch_id}")
        if wait:
            follow(connection, dispatch_id)


def undo(collection: CollectionName, wait: Wait = False) -> None:
    """Take back your latest change of a collection's cells, unless somebody has changed them again."""
    from cell_engine.store import changes

    _revert(changes.undo, collection, wait)


def redo(collection: CollectionName, wait: Wait = False) -> None:
    """Take back your latest undo, unless you have changed something since."""
    from cell_engine.store import changes

    _revert(changes.redo, collection, wait)


def history(
    collection: CollectionName,
    row: Annotated[int | None, typer.Option(min=1, max=LARGEST_ID, help="Only this row id.")] = None,
    column: Annotated[str | None, typer.Option(help="Only this column.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many, latest first.")] = 20,
    as_json: AsJson = False,
) -> None:
    """What people changed: when, who, how, and what was there before."""
    from rich.table import Table

    from cell_engine.cli import render
    from cell_engine.store import changes
    from cell_engine.store.collections import find_collection, load_version

    with open_database() as connection:
        found = find_collection(connection, collection)
        version = load_version(connection, found.id)
        column_id = None if column is None else named_column(version, column).id
        entries = changes.history(connection, found.id, row_id=row, column_id=column_id, limit=limit)
    names = {one.id: one.name for one in version.columns}
    if as_json:
        render.print_json([_entry_json(entry, names) for entry in entries])
        return
    table = Table("when", "who", "change", "row", "column", "before", "after")
    for entry in entries:
        table.add_row(
            f"{entry.changed_at:%Y-%m-%d %H:%M:%S}",
            entry.actor,
            entry.reason,
            str(entry.row_id),
            names.get(entry.column_id, "(deleted)"),
            _side(entry.was_set, entry.was),
            _side(entry.now_set, entry.now),
        )
    render.console().print(table)


def _revert(function: Callable[..., int], collection: str, wait: bool) -> None:
    from cell_engine.store import changes
    from cell_engine.store.collections import find_collection, load_version

    with open_database() as connection:
        found = find_collection(connection, collection)
        dispatch_id = function(connection, found.id, actor=actor())
        version = load_version(connection, found.id)
        names = {one.id: one.name for one in version.columns}
        entries = [one for one in changes.history(connection, found.id, limit=1000) if one.dispatch_id == dispatch_id]
        for entry in reversed(entries):
            before, after = _side(entry.was_set, entry.was), _side(entry.now_set, entry.now)
            typer.echo(f"row {entry.row_id}, {names.get(entry.column_id, '(deleted)')}: {before} → {after}")
        typer.echo(f"{entries[0].reason} of dispatch {entries[0].reverts}: dispatch {dispatch_id}")
        if wait:
            follow(connection, dispatch_id)


def _side(is_set: bool, value: object) -> str:
    from cell_engine.cli import render

    if not is_set:
        return "(not set by hand)"
    return "(blank)" if value is None else render.one_line(value, 60)


def _entry_json(entry: Any, names: dict[int, str]) -> dict[str, Any]:
    return {
        "when": entry.changed_at,
        "actor": entry.actor,
        "change": entry.reason,
        "row": entry.row_id,
        "column": names.get(entry.column_id),
        "before": {"set": entry.was_set, "value": entry.was},
        "after": {"set": entry.now_set, "value": entry.now},
        "dispatch": entry.dispatch_id,
    }


COMMANDS: tuple[Callable[..., None], ...] = (reset, undo, redo, history)
CONTEXT_SETTINGS: dict[str, dict[str, Any]] = {}
