"""Commands that tell what happened: attempts, answers, usage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import typer

from cell_engine.cli.common import LARGEST_ID, AsJson, CollectionName, RowId, full_name, named_column, open_database
from cell_engine.errors import BadValueError
from cell_engine.prices import as_dollars, shown, spent

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
    """Calls that were made: when, for what, how they ended, tokens and cost. Successes of one batch are one line."""
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
        render.print_json(
            [asdict(call) | {"column": names.get(call.column_id), "cost": as_dollars(call.cost)} for call in calls]
        )
        return
    table = Table("ended", "dispatch", "column", "rows", "outcome", "class", "error", "model", "tokens", "cost")
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
            "" if call.model is None else shown(call.cost),
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
            render.one_line(answer.was, 100) or _not_found(answer.details),
        )
    render.console().print(table)


def _not_found(details: Mapping[str, Any] | None) -> str:
    from cell_engine.cli import render

    reason = (details or {}).get("not_found")
    return f"not_found: {render.one_line(reason, 100)}" if reason else ""


def usage(
    scope: Annotated[str | None, typer.Argument(metavar="[SCOPE]", help="A namespace, or namespace/name.")] = None,
    by: Annotated[
        str, typer.Option(help="Split by any of namespace, collection, column, model, day; with commas between.")
    ] = "collection,column,model",
    since: Annotated[
        datetime | None, typer.Option(formats=["%Y-%m-%d"], help="From this day on (UTC). Default: ever.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What calls of models took: calls, tokens, and what they cost by the prices of their time.

    Cached tokens are among those in, reasoning tokens among those out. A call of a model without a price costs an
    unknown amount, and is counted as that.
    """
    from rich.table import Table

    from cell_engine.cli import render
    from cell_engine.store.usage import BY
    from cell_engine.store.usage import usage as read_usage

    wanted = [one.strip() for one in by.split(",") if one.strip()]
    unknown = [one for one in wanted if one not in BY]
    if unknown:
        raise BadValueError(f"--by {unknown[0]!r}: it is any of {', '.join(BY)}")
    namespace, _, collection = (scope or "").partition("/")
    with open_database() as connection:
        found = read_usage(
            connection,
            wanted,
            namespace=namespace or None,
            collection=collection or None,
            since=None if since is None else since.date(),
        )
    if as_json:
        render.print_json([asdict(one) | {"cost": as_dollars(one.cost)} for one in found])
        return
    split = [one for one in BY if one in wanted and not (one == "namespace" and "collection" in wanted)]
    table = Table(*split)
    for name in ("calls", "failed", "tokens in", "of them cached", "tokens out", "of them reasoning", "cost"):
        table.add_column(name, justify="right")
    for one in found:
        full = {"collection": f"{one.namespace}/{one.collection}"}
        counts = (
            one.calls, one.failed, one.tokens_in, one.tokens_cached, one.tokens_out, one.tokens_reasoning,
        )  # fmt: skip
        table.add_row(
            *(full.get(name) or str(getattr(one, name) or "(deleted)") for name in split),
            *(f"{count:,}" for count in counts),
            spent(one.cost, one.unpriced),
        )
    render.console().print(table)
    if len(found) > 1:
        total = spent(sum(one.cost for one in found), sum(one.unpriced for one in found))
        typer.echo(f"in all {total}")


COMMANDS: tuple[Callable[..., None], ...] = (attempts, answers, usage)
CONTEXT_SETTINGS: dict[str, dict[str, Any]] = {}
