"""What `autofill load` does with a folder: its files become rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import typer

from cell_engine.cli.common import actor
from cell_engine.cli.synced import say_synced

if TYPE_CHECKING:
    from cell_engine.load.folder import LoadedFolder
    from cell_engine.store.collections import Collection
    from cell_engine.store.database import Connection

_SHOWN = 20


def load_files(
    connection: Connection,
    collection: Collection,
    folder: str,
    *,
    dry_run: bool,
    as_json: bool,
    progress: AbstractContextManager[Callable[[int], None]],
) -> int:
    """Load them, and tell of it; returns how many were rejected."""
    from cell_engine.load.folder import load_folder

    with progress as on_files:
        done = load_folder(connection, collection, folder, actor=actor(), apply=not dry_run, on_files=on_files)
    beside = {"same": [list(names) for names in done.same], "woken": done.woken}
    say_synced(connection, collection, folder, done.synced, as_json, beside)
    if not as_json:
        _say(done)
    for _, reason in done.synced.rejected[:_SHOWN]:
        typer.echo(reason, err=True)
    if done.synced.rejected_lines:
        more = done.synced.rejected_lines - min(len(done.synced.rejected), _SHOWN)
        if more:
            typer.echo(f"… and {more:,} more", err=True)
        files = "1 file was" if done.synced.rejected_lines == 1 else f"{done.synced.rejected_lines:,} files were"
        typer.echo(
            f"{files} not read; the others are in. What was still being written is in with the next load", err=True
        )
    return done.synced.rejected_lines


def _say(done: LoadedFolder) -> None:
    if done.woken:
        typer.echo(f"{done.woken:,} rows had waited for them, and go on")
    for names in done.same[:_SHOWN]:
        typer.echo(f"the same content: {' = '.join(names[:_SHOWN])}{' …' if len(names) > _SHOWN else ''}")
    if len(done.same) > _SHOWN:
        typer.echo(f"… and {len(done.same) - _SHOWN:,} more contents under several names")
