"""Commands for what may be spent: credit of namespaces, budgets of namespaces, collections, columns and dispatches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cell_engine.cli.common import AsJson, actor, computed_column, open_database
from cell_engine.errors import BadValueError
from cell_engine.prices import as_dollars, dollars, shown

if TYPE_CHECKING:
    from cell_engine.store.budgets import Left
    from cell_engine.store.database import Connection
    from cell_engine.store.money import Scope

credit = typer.Typer(
    no_args_is_help=True,
    help="What a namespace may spend in all. A namespace that was never given any may spend what it likes.",
)
budget = typer.Typer(
    no_args_is_help=True,
    help="What a namespace, a collection, a column or a dispatch may cost. Reached means paused, never failed.",
)

_Amount = Annotated[str, typer.Argument(metavar="AMOUNT", help="US dollars, such as 12.50.")]
_Namespace = Annotated[str | None, typer.Argument(metavar="[NAMESPACE]", help="Only this one's.")]
_Where = Annotated[
    str, typer.Argument(metavar="SCOPE", help="A namespace, namespace/name, or the number of a dispatch.")
]
_Column = Annotated[str | None, typer.Option(help="Only this computed column of the collection.")]
_Day = Annotated[bool, typer.Option("--day", help="For each day (UTC), anew at midnight; else for ever.")]


@credit.command("add")
def credit_add(namespace: Annotated[str, typer.Argument(metavar="NAMESPACE")], amount: _Amount) -> None:
    """Give a namespace credit; what waited for it goes on."""
    from cell_engine.store import money

    with open_database() as connection:
        money.add_credit(connection, namespace, dollars(amount), actor())
        of_it = money.budgets(connection, money.find_namespace(connection, namespace))
    for one in of_it:
        if one.period == "credit":
            typer.echo(f"{namespace}: credit of {shown(one.amount)}, {shown(one.spent)} spent, {shown(one.left)} left")


@credit.command("show")
def credit_show(namespace: _Namespace = None, as_json: AsJson = False) -> None:
    """Credit of namespaces: given, spent, left; and by whom it was given."""
    from cell_engine.cli import render
    from cell_engine.store import money

    with open_database() as connection:
        namespace_id = None if namespace is None else money.find_namespace(connection, namespace)
        standing = [one for one in money.budgets(connection, namespace_id) if one.period == "credit"]
        given = money.credits(connection, namespace)
    if as_json:
        render.print_json(
            {
                "credit": [_left_json(one) for one in standing],
                "given": [
                    {"namespace": one.namespace, "amount": as_dollars(one.amount), "actor": one.actor,
                     "at": one.added_at}
                    for one in given
                ],
            }
        )  # fmt: skip
        return
    if not standing:
        typer.echo("no credit is set: nothing is limited by it")
    for one in standing:
        typer.echo(f"{one.namespace}: {shown(one.amount)}, {shown(one.spent)} spent, {shown(one.left)} left")
    for entry in given:
        at = f"{entry.added_at:%Y-%m-%d %H:%M}"
        typer.echo(f"  {at} {entry.namespace}: {shown(entry.amount)} by {render.one_line(entry.actor, 40)}")


@budget.command("set")
def budget_set(where: _Where, amount: _Amount, column: _Column = None, day: _Day = False) -> None:
    """Say what something may cost; one that was there is replaced, and what waited for more goes on.

    A dispatch that reaches its own is paused. Every other holds the calls that it would be charged for: those of models
    in its namespace, collection or column. What is in flight then is paid for on top.
    """
    from cell_engine.store import money

    limit = dollars(amount)
    with open_database() as connection:
        if where.isdecimal():
            if column or day:
                raise BadValueError("a dispatch's budget is for all of it: without --column and --day")
            money.cap_dispatch(connection, int(where), limit)
        else:
            money.set_budget(connection, _scope(connection, where, column), _period(day), limit, actor())
    named = f" column {column!r}" if column else ""
    typer.echo(f"{where}{named}: {shown(limit)}{' a day' if day else ''}")


@budget.command("remove")
def budget_remove(where: _Where, column: _Column = None, day: _Day = False) -> None:
    """Take a budget away; what waited for more goes on."""
    from cell_engine.store import money

    with open_database() as connection:
        if where.isdecimal():
            money.cap_dispatch(connection, int(where), None)
        else:
            money.remove_budget(connection, _scope(connection, where, column), _period(day), actor())
    typer.echo(f"{where}: no such budget any more")


@budget.command("show")
def budget_show(namespace: _Namespace = None, as_json: AsJson = False) -> None:
    """All budgets, with what is spent and left of them; days are UTC's."""
    from rich.table import Table

    from cell_engine.cli import render
    from cell_engine.store import money
    from cell_engine.store.collections import list_collections, load_version

    with open_database() as connection:
        namespace_id = None if namespace is None else money.find_namespace(connection, namespace)
        found = money.budgets(connection, namespace_id)
        names = {one.id: one.name for one in list_collections(connection)}
        columns = {
            (one.collection_id, column.id): column.name
            for one in found
            if one.column_id is not None and one.collection_id is not None
            for column in load_version(connection, one.collection_id).columns
        }
    rows = [
        _left_json(one)
        | {
            "collection": names.get(one.collection_id or 0),
            "column": columns.get((one.collection_id or 0, one.column_id or 0)),
            "dispatch": one.dispatch_id,
        }
        for one in found
    ]
    if as_json:
        render.print_json(rows)
        return
    if not found:
        typer.echo("no budget is set")
        return
    table = Table("namespace", "collection", "column", "for", "amount", "spent", "left")
    for one, row in zip(found, rows, strict=True):
        scope = f"dispatch {one.dispatch_id}" if one.dispatch_id is not None else one.period
        table.add_row(
            one.namespace, row["collection"] or "all", row["column"] or "all", scope,
            shown(one.amount), shown(one.spent), shown(max(0, one.left)),
        )  # fmt: skip
    render.console().print(table)


def _left_json(one: Left) -> dict[str, Any]:
    money = {"amount": as_dollars(one.amount), "spent": as_dollars(one.spent), "left": as_dollars(one.left)}
    return {"namespace": one.namespace, "period": one.period, **money}


def _period(day: bool) -> str:
    return "day" if day else "ever"


def _scope(connection: Connection, where: str, column: str | None) -> Scope:
    from cell_engine.store.collections import find_collection, load_version
    from cell_engine.store.money import Scope, find_namespace

    namespace, slash, _ = where.partition("/")
    if not slash:
        if column is not None:
            raise BadValueError(f"--column {column}: of which collection? Write {namespace}/NAME")
        return Scope(find_namespace(connection, namespace))
    found = find_collection(connection, where)
    column_id = None if column is None else computed_column(load_version(connection, found.id), column).id
    return Scope(find_namespace(connection, namespace), found.id, column_id)
