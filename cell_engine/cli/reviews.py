"""Commands for answers that wait for a person: review, accept, reject."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cell_engine.cli.asking import DryRun, Yes, ask_first, print_estimate
from cell_engine.cli.common import (
    LARGEST_ID,
    AsJson,
    CollectionName,
    Wait,
    actor,
    computed_column,
    follow,
    full_name,
    open_database,
    warn_without_workers,
)
from cell_engine.errors import BadValueError, NotFoundError

if TYPE_CHECKING:
    from cell_engine.specs.version import Version
    from cell_engine.store.collections import Collection
    from cell_engine.store.database import Connection
    from cell_engine.store.reviews import Filter

_Column = Annotated[
    list[str] | None, typer.Option(help="Only this column; may be repeated. Default: all that are reviewed.")
]
_Rows = Annotated[list[int] | None, typer.Option(min=1, max=LARGEST_ID, help="Only this row id; may be repeated.")]
_Batches = Annotated[list[str] | None, typer.Option(help="Only this batch, by its key; may be repeated.")]
_Value = Annotated[
    str | None,
    typer.Option(help="Only this answer, written as the column's type is in a CSV file; needs one --column."),
]
_All = Annotated[bool, typer.Option("--all", help="Everything that waits for review in the collection.")]


def review(
    collection: CollectionName,
    column: _Column = None,
    row: _Rows = None,
    batch: _Batches = None,
    value: _Value = None,
    decided: Annotated[
        bool, typer.Option("--decided", help="What was decided instead, latest first: by whom, when and why.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List the answers that wait for review, with what was accepted before. They are shown when they are accepted."""
    from cell_engine.store import reviews
    from cell_engine.store.collections import find_collection, load_version

    with open_database() as connection:
        found = find_collection(connection, full_name(collection))
        version = load_version(connection, found.id)
        if decided:
            if batch or value is not None or len(row or ()) > 1 or len(column or ()) > 1:
                raise BadValueError("--decided takes one --row and one --column at most, no --batch and no --value")
            one_column = computed_column(version, column[0]).id if column else None
            made = reviews.decisions(
                connection, found.id, row_id=row[0] if row else None, column_id=one_column, limit=limit
            )
            _print_decisions(made, version, as_json)
            return
        which = _filter(connection, found, version, column, row, batch, value)
        waiting = reviews.proposals(connection, found.id, which, limit=limit)
    _print_proposals(waiting, version, as_json)
    if not as_json and len(waiting) == limit:
        typer.echo("there may be more: --limit", err=True)


def accept(
    collection: CollectionName,
    column: _Column = None,
    row: _Rows = None,
    batch: _Batches = None,
    value: _Value = None,
    all_: _All = False,
    wait: Wait = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Accept answers that wait for review: each is shown from now on, as the AI's, and what reads it is computed.

    `--value` accepts just that answer, whatever has been proposed since you looked. What would cost more than a dollar
    (AUTOFILL_ASK_ABOVE) asks first.
    """
    from cell_engine.estimate import estimate_accept

    def is_wanted(connection: Connection, found: Collection, version: Version, which: Filter) -> bool:
        if dry_run or not yes:
            cost = estimate_accept(connection, found, version, which)
            if dry_run:
                print_estimate(cost, as_json)
                return False
            ask_first(cost, f"accept answers of {found.full_name}", None)
        return True

    _decide(collection, column, row, batch, value, all_, wait, accepted=True, why=None, is_wanted=is_wanted)


def reject(
    collection: CollectionName,
    column: _Column = None,
    row: _Rows = None,
    batch: _Batches = None,
    value: _Value = None,
    all_: _All = False,
    why: Annotated[str | None, typer.Option(help="What is wrong with it: shown with the cell.")] = None,
    wait: Wait = False,
) -> None:
    """Reject answers that wait for review: their cells stay without a value until their inputs change or they are
    reprocessed (with `--force`, or the cache gives the same answer again). `autofill edit` sets one of your own."""
    _decide(collection, column, row, batch, value, all_, wait, accepted=False, why=why)


def _decide(
    collection: str,
    column: Sequence[str] | None,
    row: Sequence[int] | None,
    batch: Sequence[str] | None,
    value: str | None,
    all_: bool,
    wait: bool,
    *,
    accepted: bool,
    why: str | None,
    is_wanted: Callable[[Connection, Collection, Version, Filter], bool] = lambda *_: True,
) -> None:
    from cell_engine.store import reviews
    from cell_engine.store.collections import find_collection, load_version

    if all_ == bool(column or row or batch or value is not None):
        raise BadValueError("say which: --row, --column, --batch, --value, or --all for everything that waits")
    with open_database() as connection:
        found = find_collection(connection, full_name(collection))
        version = load_version(connection, found.id)
        which = _filter(connection, found, version, column, row, batch, value)
        if not is_wanted(connection, found, version, which):
            return
        done = reviews.decide(connection, found.id, which, accepted=accepted, actor=actor(), why=why)
        if not done.cells:
            typer.echo(f"{found.full_name}: nothing of that waits for review")
            return
        cells = "1 answer" if done.cells == 1 else f"{done.cells:,} answers"
        dispatches = ", ".join(map(str, done.dispatches))
        typer.echo(f"{found.full_name}: {cells} {'accepted' if accepted else 'rejected'}: dispatch {dispatches}")
        names = [version.by_id[one].name for id in which.columns for one in version.dependents(id)]
        warn_without_workers(connection, version, [name for name in names if version.by_name[name].mode == "on_change"])
        for dispatch_id in done.dispatches if wait else ():
            follow(connection, dispatch_id)


def _filter(
    connection: Connection,
    collection: Collection,
    version: Version,
    column: Sequence[str] | None,
    row: Sequence[int] | None,
    batch: Sequence[str] | None,
    value: str | None,
) -> Filter:
    from cell_engine.store.batches import find_batches
    from cell_engine.store.reviews import Filter

    if row and batch:
        raise BadValueError("--row and --batch exclude each other")
    if value is not None and len(column or ()) != 1:
        raise BadValueError("--value: of which column? Name one by --column")
    columns = [computed_column(version, name) for name in column or ()] or version.computed
    ranges: tuple[tuple[int, int], ...] | None = None
    if row:
        ranges = tuple((one, one) for one in sorted(set(row)))
    elif batch:
        batches = find_batches(connection, collection.id, batch)
        unknown = set(batch) - {one.key for one in batches}
        if unknown:
            raise NotFoundError(f"{collection.full_name} has no batch {', '.join(sorted(unknown))}")
        ranges = tuple((one.first_row, one.last_row) for one in batches if one.rows)
    return Filter(tuple(one.id for one in columns), ranges, None if value is None else columns[0].type.parse(value))


def _print_proposals(waiting: Sequence[Any], version: Version, as_json: bool) -> None:
    from rich.table import Table

    from cell_engine.cli import render

    def due(one: Any) -> Any:
        review = version.by_id[one.column_id].review
        return None if review is None or review.within is None else one.since + timedelta(seconds=review.within)

    def then(one: Any) -> str:
        review = version.by_id[one.column_id].review
        return "wait" if review is None else review.then

    if as_json:
        render.print_json(
            [
                {name: value for name, value in asdict(one).items() if name != "column_id"}
                | {"column": version.by_id[one.column_id].name, "due": due(one), "then": then(one)}
                for one in waiting
            ]
        )
        return
    if not waiting:
        typer.echo("nothing waits for review")
        return
    table = Table("row", "column", "proposed", "accepted before", "model", "since", "then")
    for one in waiting:
        when = due(one)
        ends = "" if when is None else f"{then(one)} at {when.astimezone():%m-%d %H:%M}"
        table.add_row(
            str(one.row_id),
            version.by_id[one.column_id].name,
            _answer(one),
            render.one_line(one.accepted, 40),
            one.model or "",
            f"{one.since.astimezone():%m-%d %H:%M}",
            ends,
        )
    render.console().print(table)


def _answer(one: Any) -> str:
    from cell_engine.cli import render
    from cell_engine.plan import NOT_FOUND

    reason = (one.details or {}).get(NOT_FOUND) if one.value is None else None
    return render.one_line(one.value if reason is None else f"not found: {reason}", 80)


def _print_decisions(made: Sequence[Any], version: Version, as_json: bool) -> None:
    from rich.table import Table

    from cell_engine.cli import render

    names = {one.id: one.name for one in version.columns}
    if as_json:
        render.print_json(
            [
                {name: value for name, value in asdict(one).items() if name not in ("column_id", "id")}
                | {"column": names.get(one.column_id)}
                for one in made
            ]
        )
        return
    table = Table("when", "who", "decided", "row", "column", "answer", "why")
    for one in made:
        table.add_row(
            f"{one.decided_at:%Y-%m-%d %H:%M:%S}",
            render.one_line(one.actor, 40),
            "accepted" if one.accepted else "rejected",
            str(one.row_id),
            names.get(one.column_id, "(deleted)"),
            render.one_line(one.value, 60),
            render.one_line(one.why, 60),
        )
    render.console().print(table)


COMMANDS: tuple[Callable[..., None], ...] = (review, accept, reject)
CONTEXT_SETTINGS: dict[str, dict[str, Any]] = {}
