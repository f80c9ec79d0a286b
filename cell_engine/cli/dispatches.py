"""Commands that watch and stop dispatches: watch, cancel, pause, resume; and check, which looks for broken rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from cell_engine.cli.common import LARGEST_ID, AsJson, DispatchId, actor, follow, full_name, open_database
from cell_engine.errors import NotFoundError


def watch(dispatch: DispatchId, as_json: AsJson = False) -> None:
    """Show a dispatch's progress until it has ended; exit code 1 if cells ended in error. --json: as it is now.

    Cells are counted by what came of them: "up to date already" needed no call, "answered as before" was called and
    changed nothing that reads it, "superseded" belongs to a later dispatch. Rows are running, queued, or waiting: to be
    tried again, or for a pause to end. The time left is at the pace of the last minute.
    """
    from cell_engine.cli import render
    from cell_engine.store.reading import progress

    with open_database() as connection:
        now = progress(connection, dispatch)
        if now is None:
            raise NotFoundError(f"no dispatch {dispatch}")
        if as_json:
            render.print_json(render.progress_json(now))
        else:
            follow(connection, dispatch)


def cancel(dispatch: DispatchId) -> None:
    """Take back what a dispatch asked for and nobody has answered yet. Calls in flight run to their end: they are paid.

    What an edit made due stays due: its input did change.
    """
    from cell_engine.store import control

    with open_database() as connection:
        control.cancel(connection, dispatch)
    typer.echo(f"dispatch {dispatch} is canceled")


def pause(dispatch: DispatchId) -> None:
    """Start nothing more of a dispatch until `autofill resume`. Calls in flight run to their end."""
    from cell_engine.store import control

    with open_database() as connection:
        control.pause(connection, dispatch)
    typer.echo(f"dispatch {dispatch} is paused; `autofill resume {dispatch}` goes on")


def resume(
    what: Annotated[
        str, typer.Argument(help="A dispatch's id, or namespace/collection.", metavar="DISPATCH|COLLECTION")
    ],
) -> None:
    """Go on with a paused dispatch, where it was; or with a collection whose calls are held (see `autofill status`).

    What is held for quota, a key or a model is tried again at once, and held again if it still fails.
    """
    from cell_engine.store import control, holds
    from cell_engine.store.collections import find_collection

    with open_database() as connection:
        if what.isdecimal():
            control.resume(connection, min(int(what), LARGEST_ID))
            typer.echo(f"dispatch {what} goes on")
            return
        found = find_collection(connection, full_name(what))
        lifted = holds.lift_collection(connection, found.id, found.namespace, actor())
    for hold in lifted:
        typer.echo(f"{hold.what} goes on; it was held for {hold.reason}: {hold.message}")
    if not lifted:
        typer.echo(f"nothing of {what} is held; `autofill status` lists its dispatches")


def check(as_json: AsJson = False) -> None:
    """Run the SQL tests, each a rule that must hold at every instant; exit code 1 if one is broken."""
    from cell_engine.cli import render
    from cell_engine.store.models import broken_rules, rule_names

    with open_database() as connection:
        broken = broken_rules(connection)
    if as_json:
        render.print_json({name: [row._asdict() for row in broken.get(name, [])] for name in rule_names()})
    else:
        for name in rule_names():
            rows = broken.get(name, [])
            typer.echo(f"{'BROKEN' if rows else 'holds '}  {name.replace('_', ' ')}")
            for row in rows[:5]:
                typer.echo(f"        {row}")
        rules = len(rule_names())
        typer.echo(f"{len(broken)} of {rules} rules broken" if broken else f"all {rules} rules hold")
    if broken:
        raise typer.Exit(1)


COMMANDS: tuple[Callable[..., None], ...] = (watch, cancel, pause, resume, check)
CONTEXT_SETTINGS: dict[str, dict[str, Any]] = {}
