"""What a sync has done, or would do and what that would cost, said for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from cell_engine.cli.asking import estimate_json, print_estimate
from cell_engine.cli.common import warn_without_workers

if TYPE_CHECKING:
    from cell_engine.estimate import Estimate
    from cell_engine.load import Synced
    from cell_engine.store.collections import Collection
    from cell_engine.store.database import Connection

_SHOWN = 20


def synced_json(done: Synced) -> dict[str, Any]:
    facts = {name: value for name, value in asdict(done).items() if name != "drawn"}
    return facts | {"batches": [batch.key for batch in done.batches]}


def say_synced(
    connection: Connection,
    collection: Collection,
    source: str,
    done: Synced,
    as_json: bool = False,
    more: dict[str, Any] | None = None,
) -> None:
    """Tell of it; with what it would cost, where it was only compared. ``more`` goes with it in JSON."""
    from cell_engine.cli import render

    would_cost = None if done.applied else _estimate(connection, collection, done)
    if as_json:
        estimate = {} if would_cost is None else {"estimate": estimate_json(would_cost)}
        render.print_json(synced_json(done) | estimate | (more or {}))
        return
    parts = [("new", done.inserted), ("changed", done.updated), ("back", done.restored), ("deleted", done.deleted)]
    told = ", ".join(f"{rows:,} {what}" for what, rows in parts if rows) or "nothing changed"
    would = "" if done.applied else "would be: "
    typer.echo(f"{collection.full_name}: {source}: {would}{told}, {done.unchanged:,} as they were")
    if done.withheld:
        typer.echo(
            f"{done.withheld:,} rows are not in it and stay: lines that could not be read may be theirs", err=True
        )
    if done.deleted and done.applied:
        typer.echo(f"`autofill restore {collection.full_name} --sync {done.number}` brings the deleted rows back")
    if would_cost is not None:
        print_estimate(would_cost, as_json=False)
    if done.dispatches:
        from cell_engine.store.collections import load_version

        typer.echo(computing(done.dispatches))
        version = load_version(connection, collection.id)
        warn_without_workers(connection, version, [column.name for column in version.computed])


def _estimate(connection: Connection, collection: Collection, done: Synced) -> Estimate:
    from cell_engine.estimate import estimate_changes
    from cell_engine.store.collections import load_version

    version = load_version(connection, collection.id)
    rows = done.inserted + done.updated + done.restored
    return estimate_changes(connection, collection, version, done.drawn, rows)


def computing(dispatches: Sequence[int]) -> str:
    shown = ", ".join(map(str, dispatches[:_SHOWN])) + (" …" if len(dispatches) > _SHOWN else "")
    return f"computing what they make due in dispatch {shown}"
