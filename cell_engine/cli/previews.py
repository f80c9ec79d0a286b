"""The command that tries a changed column on some rows before it is applied: preview."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cell_engine.cli.asking import Yes, ask_first
from cell_engine.cli.common import LARGEST_ID, AsJson, CollectionName, actor, full_name, open_database
from cell_engine.errors import AutofillError
from cell_engine.prices import as_dollars, shown, spent

if TYPE_CHECKING:
    from cell_engine.preview import Prepared, Preview

MOST_ROWS = 200


def preview(
    collection: CollectionName,
    column: Annotated[str, typer.Option(help="The column whose prompt, model or other settings were changed.")],
    spec: Annotated[Path, typer.Option(metavar="FILE", help="The collection's YAML with the change.")],
    rows: Annotated[int, typer.Option(min=1, max=MOST_ROWS, help="How many rows, drawn at random.")] = 10,
    row: Annotated[
        list[int] | None, typer.Option(min=1, max=LARGEST_ID, help="This row id instead; may be repeated.")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Try a changed column on some rows: old and new answers side by side, how far they agree, and what it costs.

    No cell is touched, and nothing is applied. The calls are real, made by this process and paid for by the namespace;
    what would cost more than a dollar (AUTOFILL_ASK_ABOVE) asks first. `autofill apply FILE` takes the change over.
    """
    import asyncio

    from cell_engine import preview as previews
    from cell_engine.embedded import database_url
    from cell_engine.settings import get_settings
    from cell_engine.specs.compile import compile_file
    from cell_engine.store.collections import find_collection, load_version

    changed = compile_file(spec)
    with open_database() as connection:
        found = find_collection(connection, full_name(collection))
        version = load_version(connection, found.id)
        prepared = previews.prepare(connection, found, version, changed, column, rows=row or (), count=rows)
    for one in prepared.skipped if row else ():
        typer.echo(f"row {one.row_id} is left out: {one.reason}", err=True)
    if not prepared.calls:
        typer.echo(f"{found.full_name} has no row with all that {column} reads; nothing was tried")
        return
    if prepared.column.hash == version.by_id[prepared.column.id].hash:
        typer.echo(
            f"{column} is defined as it is in version {version.number}: its answers are asked for again", err=True
        )
    if not yes:
        ask_first(prepared.estimate, f"preview of {column} on {len(prepared.calls)} rows of {found.full_name}", None)
    try:
        done = asyncio.run(previews.run(database_url(get_settings()), prepared, actor=actor()))
    except AutofillError:
        _tell_of_offline_model(prepared)
        raise
    if as_json:
        from cell_engine.cli import render

        render.print_json(_as_json(prepared, done))
    else:
        _print(prepared, done)
    if done.stopped is not None:
        typer.echo(f"stopped: {done.stopped}", err=True)
        raise typer.Exit(1)


def _tell_of_offline_model(prepared: Prepared) -> None:
    """The stack gives its address to the workers that it starts, and not to this process."""
    from cell_engine.settings import get_settings
    from cell_engine.stack.state import read_state

    state = read_state(get_settings().home)
    url = state.urls.get("offline model") if state is not None and state.is_up else None
    if url is not None and prepared.column.kind == "llm" and not os.environ.get("OPENAI_API_KEY"):
        typer.echo(
            f"Here an offline model answers the workers; with OPENAI_BASE_URL={url} OPENAI_API_KEY=any before the "
            "command it answers this one, too.",
            err=True,
        )


def _print(prepared: Prepared, done: Preview) -> None:
    from rich.table import Table
    from rich.text import Text

    from cell_engine.cli import render
    from cell_engine.plan import PROPOSED

    screen = render.console()
    table = Table("row", "now", "", "changed")
    table.add_column("cost", justify="right")
    for one in done.tried:
        now = (
            render.one_line(one.before.value) if one.before.value is not None else f"({one.before.state or 'no value'})"
        )
        if one.before.state == PROPOSED and one.before.value is not None:
            now = f"{PROPOSED}: {now}"
        new = render.one_line(one.value) if one.error_class is None else f"{one.error_class}: {one.error}"
        if one.not_found is not None:
            new = f"(not found: {one.not_found})"
        mark = {True: Text("=", style="green"), False: Text("≠", style="red"), None: Text("")}[one.agrees]
        cost = "" if one.model is None else shown(one.cost)
        table.add_row(str(one.row_id), f"{'* ' if one.before.by_hand else ''}{now}", mark, render.one_line(new), cost)
    screen.print(table)
    if any(one.before.by_hand for one in done.tried):
        screen.print("* set by hand")
    if done.compared:
        share = 100 * done.agreeing / done.compared
        screen.print(f"{done.agreeing} of {done.compared} agree ({share:.0f} %), white space folded")
    differing = [one for one in done.changes(prepared.column.type) if one[0] != one[1]]
    if differing:
        changes = Table("now", "changed")
        changes.add_column("rows", justify="right")
        for before, after, rows in differing:
            names = ["(not found)" if value is None else render.one_line(value, 60) for value in (before, after)]
            changes.add_row(*names, str(rows))
        screen.print(changes)
    if done.failed:
        screen.print("in error: " + ", ".join(f"{count} {name}" for name, count in sorted(done.failed.items())))
    if any(one.model is not None for one in done.tried):
        cost_before, known = done.cost_before
        then = f"; the present answers of {known} of them had cost {shown(cost_before)}" if known else ""
        paid = spent(done.cost, done.unpriced)
        screen.print(f"{len(done.tried)} rows: {paid}{then}; booked in dispatch {done.dispatch_id}", soft_wrap=True)


def _as_json(prepared: Prepared, done: Preview) -> dict[str, Any]:
    cost, known = done.cost_before
    return {
        "collection": prepared.collection.full_name,
        "column": prepared.column.name,
        "version": prepared.version.number,
        "dispatch": done.dispatch_id,
        "rows": [
            asdict(one)
            | {"cost": as_dollars(one.cost), "before": asdict(one.before) | {"cost": as_dollars(one.before.cost)}}
            for one in done.tried
        ],
        "skipped": [asdict(one) for one in prepared.skipped],
        "compared": done.compared,
        "agreeing": done.agreeing,
        "agreement": done.agreeing / done.compared if done.compared else None,
        "changes": [
            {"before": before, "after": after, "rows": rows}
            for before, after, rows in done.changes(prepared.column.type)
        ],
        "failed": done.failed,
        "cost": as_dollars(done.cost),
        "unpriced": done.unpriced,
        "cost_before": as_dollars(cost) if known else None,
        "stopped": done.stopped,
    }


COMMANDS: tuple[Callable[..., None], ...] = (preview,)
CONTEXT_SETTINGS: dict[str, dict[str, Any]] = {}
