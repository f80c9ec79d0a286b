"""What commands share: naming things, who asks, the database, and following a dispatch to its end."""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from cell_engine.errors import AutofillError, BadValueError, NotFoundError

if TYPE_CHECKING:
    from cell_engine.specs.version import Column, Version
    from cell_engine.store.database import Connection

_FOLLOW_SECONDS = 0.2

CollectionName = Annotated[str, typer.Argument(metavar="COLLECTION", help="namespace/name")]
LARGEST_ID = 2**63 - 1
RowId = Annotated[
    int, typer.Argument(metavar="ROW", min=1, max=LARGEST_ID, help="The row's id, as `autofill show` prints it.")
]
DispatchId = Annotated[
    int, typer.Argument(metavar="DISPATCH", min=1, max=LARGEST_ID, help="Its number, as `autofill status` lists them.")
]
AsJson = Annotated[bool, typer.Option("--json", help="For programs: JSON on standard output.")]
Wait = Annotated[bool, typer.Option("--wait", help="Until it has ended; exit code 1 if cells ended in error.")]


def named_column(version: Version, name: str) -> Column:
    column = version.by_name.get(name)
    if column is None:
        raise NotFoundError(f"no column {name!r}; there are: {', '.join(version.by_name)}")
    return column


def computed_column(version: Version, name: str) -> Column:
    column = named_column(version, name)
    if column.kind is None:
        raise BadValueError(
            f"column {name!r} is an input; computed are: {', '.join(one.name for one in version.computed)}"
        )
    return column


def full_name(collection: str) -> str:
    namespace, slash, name = collection.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise BadValueError(f"{collection!r} is no collection: write namespace/name")
    return collection


def follow(connection: Connection, dispatch_id: int) -> None:
    """Show progress until the dispatch has ended; exit code 1 if cells of it ended in error."""
    from cell_engine.cli import render
    from cell_engine.store.reading import progress

    screen = render.console()
    with render.follower(screen, f"dispatch {dispatch_id}") as shown:
        while True:
            asked = time.monotonic()
            now = progress(connection, dispatch_id)
            if now is None:
                raise AutofillError(f"dispatch {dispatch_id} is gone")
            shown.update(now)
            if now.ended_at is not None:
                break
            # It reads all that the dispatch has brought: of a large one, seldom.
            time.sleep(max(_FOLLOW_SECONDS, 10 * (time.monotonic() - asked)))
    if now.failed:
        screen.print("in error: " + ", ".join(f"{count:,} {name}" for name, count in sorted(now.failed.items())))
        raise typer.Exit(1)


def warn_without_workers(connection: Connection, version: Version, names: Sequence[str]) -> None:
    """Say so when nobody is there to do what was asked for."""
    from cell_engine.store.reading import live_workers

    served = {job_type for worker in live_workers(connection) for job_type in worker.job_types}
    missing = {version.by_name[name].job_type for name in names} - served
    if missing:
        typer.echo(
            f"no worker for {', '.join(sorted(missing))} is running, so this waits: start `autofill up`, "
            "or `autofill worker` on this database",
            err=True,
        )


def actor() -> str:
    """Who asks: the system's name for the person at the keyboard."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


@contextmanager
def open_database() -> Iterator[Connection]:
    """The database of this installation; says so when that started the embedded server, which then keeps running."""
    from cell_engine.embedded import running
    from cell_engine.parts import open_store
    from cell_engine.settings import get_settings

    settings = get_settings()
    starts = settings.database_url is None and running(settings.home) is None
    connection = open_store("cli")
    if starts:
        typer.echo("PostgreSQL was started for this; `autofill stop` stops it", err=True)
    with connection:
        yield connection
