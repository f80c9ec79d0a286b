"""Before money is spent: what a dispatch would cost, and whether that is all right."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cell_engine.errors import AutofillError
from cell_engine.prices import DOLLAR, as_dollars, shown

if TYPE_CHECKING:
    from cell_engine.estimate import Estimate

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what it would compute and cost, and do nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Without asking, whatever it costs.")]

MaxCost = Annotated[
    str | None, typer.Option(metavar="DOLLARS", help="Pause once it has cost this; `autofill budget set` raises it.")
]


class NotAskedError(AutofillError):
    """It would cost more than is spent without asking, and nobody is there to ask."""

    exit_code = 2


def print_estimate(found: Estimate, as_json: bool) -> None:
    """As a table with what it rests on, or, `as_json`, all of it."""
    from rich.table import Table

    from cell_engine.cli import render

    if as_json:
        render.print_json(estimate_json(found))
        return
    table = Table("column", "model")
    for name in ("cells", "at least", "from the cache", "requests", "tokens in", "tokens out", "cost"):
        table.add_column(name, justify="right")
    for one in found.columns:
        is_paid = one.model is not None
        table.add_row(
            one.column, one.model or "", f"{one.cells:,}", f"{one.least:,}", f"{one.cached:,}",
            f"{one.requests:,}" if is_paid else "", f"{one.tokens_in:,}", f"{one.tokens_out:,}",
            shown(one.cost) if is_paid else "",
        )  # fmt: skip
    screen = render.console()
    if found.columns:
        screen.print(table)
    screen.print(found.summary, soft_wrap=True)


def estimate_json(found: Estimate) -> dict[str, Any]:
    money = {name: as_dollars(getattr(found, name)) for name in ("cost", "low", "high", "at_most")}
    columns = [asdict(one) | {"cost": as_dollars(one.cost)} for one in found.columns]
    return asdict(found) | money | {"cells": found.cells, "columns": columns}


def ask_first(found: Estimate, what: str, max_cost: int | None) -> None:
    """Go on at once with what costs little, or is paused before it costs more (`max_cost`); else ask.

    Raises NotAskedError where nobody is there to answer, and typer.Abort for a no.
    """
    from cell_engine.settings import get_settings

    limit = round(get_settings().ask_above * DOLLAR)
    if found.at_most <= limit or (max_cost is not None and max_cost <= limit):
        return
    if not sys.stdin.isatty():
        raise NotAskedError(
            f"{what}:\n{found.summary}\nThat is more than {shown(limit)} (AUTOFILL_ASK_ABOVE), and nobody is there to "
            "ask. Nothing was done; --yes goes ahead, --dry-run tells more."
        )
    typer.echo(f"{what}:\n{found.summary}", err=True)
    typer.confirm("Go ahead?", abort=True, err=True)
