"""The command that writes a collection to a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from cell_engine.cli.common import CollectionName, full_name, named_column, open_database
from cell_engine.errors import AutofillError


def export(
    collection: CollectionName,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A .csv, .tsv, .jsonl or .parquet to write.")],
    column: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this column, without row id and batch; may be repeated. `load` takes input columns back."
        ),
    ] = None,
) -> None:
    """Write all rows as they are shown now to a file: your value where you set one, else the answer, else nothing.

    The file is there when it is whole, and replaces what was there. In a CSV or TSV, texts that begin like a formula
    get an apostrophe in front, so that no spreadsheet runs them.
    """
    from rich.console import Console

    from cell_engine.export import export_file
    from cell_engine.store.collections import find_collection, load_version

    with open_database() as connection:
        found = find_collection(connection, full_name(collection))
        version = load_version(connection, found.id)
        columns = [named_column(version, name) for name in dict.fromkeys(column or [])]
        with Console(stderr=True).status("exporting") as status:
            try:
                exported = export_file(
                    connection, found, version, file, columns=columns,
                    on_rows=lambda rows: status.update(f"exporting: {rows:,} rows"),
                )  # fmt: skip
            except OSError as error:
                raise AutofillError(f"{file} cannot be written: {error.strerror}") from None
    typer.echo(f"{found.full_name}: {exported.rows:,} rows to {file}")
    if exported.defused:
        cells = "1 text that begins" if exported.defused == 1 else f"{exported.defused:,} texts that begin"
        typer.echo(
            f"{cells} like a formula got an apostrophe in front; a .jsonl or .parquet has all as it is", err=True
        )


COMMANDS: tuple[Callable[..., None], ...] = (export,)
CONTEXT_SETTINGS: dict[str, dict[str, Any]] = {}
