"""`autofill limits`: what may be in flight, and what may be asked for; shown and set live."""

from __future__ import annotations

from typing import Annotated

import typer

from cell_engine.cli.common import AsJson, open_database
from cell_engine.errors import BadValueError

_Scope = Annotated[
    str | None, typer.Argument(metavar="[SCOPE]", help="A namespace, or namespace/name; without one: everything.")
]

app = typer.Typer(
    name="limits",
    help="""Caps, weights and admission, shown and set. A change holds from the next claim, or dispatch, on.

    cap: calls in flight at most, of a collection, a namespace, or everything. weight: a namespace's share against that
    of others. dispatches: how many a second are let in. backlog: cells asked for row by row that may wait.
    """,
    no_args_is_help=True,
)


@app.command()
def show(scope: _Scope = None, as_json: AsJson = False) -> None:
    """The limits in force, and what is in flight under each cap."""
    from rich.table import Table

    from cell_engine.cli import render
    from cell_engine.store.limits import show_limits

    with open_database() as connection:
        found = show_limits(connection, scope)
    if as_json:
        render.print_json(
            [
                {"scope": one.scope, "held": one.held, **{name: getattr(one, name) for name in one.names}}
                for one in found
            ]
        )
        return
    table = Table("scope", "in flight", "cap", "weight", "dispatches a second", "backlog, cells")
    for one in found:
        shown = [_number(getattr(one, name)) if name in one.names else "" for name in _COLUMNS]
        table.add_row(one.scope, f"{one.held:,}", *shown)
    render.console().print(table)


@app.command("set")
def set_(
    arguments: Annotated[
        list[str],
        typer.Argument(metavar="[SCOPE] NAME=VALUE...", help="Such as: shop cap=1000 weight=3; VALUE none: no limit."),
    ],
) -> None:
    """Set limits of a namespace, a collection (namespace/name) or, without a scope, of everything."""
    from cell_engine.store.limits import set_limits

    scope = arguments.pop(0) if "=" not in arguments[0] else None
    values: dict[str, int | None] = {}
    for argument in arguments:
        name, _, value = argument.partition("=")
        if value != "none" and not (value.isascii() and value.isdecimal()):
            raise BadValueError(f"{argument!r} is no limit: write NAME=NUMBER or NAME=none")
        values[name] = None if value == "none" else int(value)
    if not values:
        raise BadValueError("nothing to set: write NAME=NUMBER, such as cap=1000")
    with open_database() as connection:
        set_limits(connection, scope, values)
    set_to = ", ".join(f"{name} {_number(value)}" for name, value in values.items())
    typer.echo(f"{scope or 'everything'}: {set_to}")


_COLUMNS = ("cap", "weight", "dispatches", "backlog")


def _number(value: int | None) -> str:
    return "none" if value is None else f"{value:,}"
