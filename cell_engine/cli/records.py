"""Commands that tell what happened: attempts, answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

import typer

from cell_engine.cli.common import LARGEST_ID, AsJson, CollectionName, RowId, full_name, named_column, open_database

_Limit = Annotated[int, typer.Option(min=1, max=10_000, help="How many, latest first.")]


def attempts(
    collection: CollectionName,
    dispatch: Annotated[int | None, typer.Option(min=1, max=LARGEST_ID, help="Only of this dispatch.")] = None,
    column: Annotated[str | None, typer.Option(help="Only of this column.")] = None,
    row: Annotated[int | None, typer.Option(min=1, max=LARGEST_ID, help="Only of this row id.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Without the successes.")] = False,
    limit: _Limit = 20,
    as_json: AsJson = False,
) -> None:
    """Calls that were made: when, for what, how they ended, and their tokens. Successes of one batch are one line."""
    from rich.table import Table

    from cell_engine.cli import render
    from cell_engine.store import records
    from cell_engine.store.collections import find_collection, load_version

    with open_database() as connection:
        found = find_collection(connection, full_name(collection))
        version = load_version(connection, found.id)
        calls = records.attempts(
            connection,
            found.id,
            dispatch_id=dispatch,
            column_id=None if column is None else named_column(version, column).id,
            row_id=row,
            failed=failed,
            limit=limit,
        )
    names = {one.id: one.name for one in version.columns}
    if as_json:
        render.print_json([asdict(call) | {"column": names.get(call.column_id)} for call in calls])
        return
    table = Table("ended", "dispatch", "column", "rows", "outcome", "class", "error", "model", "tokens")
    for call in calls:
        rows = f"{call.row_ids[0]}" if len(call.row_ids) == 1 else f"{len(call.row_ids):,} rows"
        table.add_row(
            f"{call.ended_at:%Y-%m-%d %H:%M:%S}",
            str(call.dispatch_id),
            names.get(call.column_id, "(deleted)"),
            rows,
            call.outcome,
            call.error_class or "",
            render.one_line(call.error, 60),
            call.model or "",
            f"{call.tokens_in + call.tokens_out:,}",
        )
    render.console().print(table)


def answers(
    collection: CollectionName,
    row: RowId,
    column: Annotated[str, typer.Argument(metavar="COLUMN")],
    limit: _Limit = 20,
    as_json: AsJson = False,
) -> None:
    """What a cell had answered before, where people saw it, and when that was replaced."""
    from rich.table import Table

    from cell_engine.cli import render
    from cell_engine.store import records
    from cell_engine.store.collections import find_collection, load_version

    with open_database() as connection:
        found = find_collection(connection, full_name(collection))
        version = load_version(connection, found.id)
        earlier = records.earlier_answers(connection, found.id, row, named_column(version, column).id, limit)
    if as_json:
        render.print_json([asdict(answer) for answer in earlier])
        return
    table = Table("given", "replaced", "version", "model", "answer")
    for answer in earlier:
        table.add_row(
            f"{answer.computed_at:%Y-%m-%d %H:%M:%S}",
            f"{answer.replaced_at:%Y-%m-%d %H:%M:%S}",
            str(answer.version),
            answer.model or "",
            render.one_line(answer.was, 100),
        )
    render.console().print(table)


COMMANDS: tuple[Callable[..., None], ...] = (attempts, answers)
CONTEXT_SETTINGS: dict[str, dict[str, Any]] = {}
