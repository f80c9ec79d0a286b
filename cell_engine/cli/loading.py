"""Commands that bring rows in: load, rejected, restore."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cell_engine.cli.asking import DryRun, print_estimate
from cell_engine.cli.common import (
    AsJson,
    CollectionName,
    actor,
    full_name,
    open_database,
    warn_without_workers,
)
from cell_engine.cli.synced import computing, say_synced, synced_json
from cell_engine.errors import BadValueError

if TYPE_CHECKING:
    from cell_engine.load import Loaded, ReadAs
    from cell_engine.specs.sources import Source
    from cell_engine.store.collections import Collection
    from cell_engine.store.database import Connection
    from cell_engine.store.rejected import KeptLine

REJECTED_EXIT = 5
_REJECTED_SHOWN = 20


def load(
    collection: CollectionName,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE]",
            help="CSV, TSV, JSON Lines, Parquet or .xlsx, with the names of columns; a folder; the address of a feed. "
            "Default: the source, feed or files that the collection declares.",
        ),
    ] = None,
    sheet: Annotated[str | None, typer.Option(help="Of a workbook: the sheet, where there are several.")] = None,
    encoding: Annotated[
        str | None, typer.Option(help="Of a text that is not UTF-8 and has no byte order mark: windows-1252, …")
    ] = None,
    sync: Annotated[
        bool, typer.Option("--sync", help="It is all there is: by the collection's key, change and delete rows, too.")
    ] = False,
    any_deletes: Annotated[
        bool, typer.Option("--any-deletes", help="Delete more rows than the collection allows a sync.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="FILE holds rejected lines, repaired, as `autofill rejected` wrote them.")
    ] = False,
    query: Annotated[
        Path | None, typer.Option(metavar="FILE.sql", help="Instead of a file: what this query gives, synced by key.")
    ] = None,
    connection_name: Annotated[
        str | None, typer.Option("--connection", help="Of the query: the database that AUTOFILL_SOURCE_<NAME> is.")
    ] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Load a file's rows, and compute what they make due. The same file again is the same batch: nothing changes.

    The files of a folder become rows by the collection's `files`, each once: a changed one changes its row.

    Lines that do not fit are listed with their numbers and left out; the others go in, and the exit code is 5.
    `autofill rejected` keeps them, to be repaired. Of a feed, new entries go in and those that changed are changed; one
    that has not changed costs nothing.
    """
    from cell_engine.load import ReadAs
    from cell_engine.load.declared import files_root
    from cell_engine.load.folder import is_folder
    from cell_engine.store.collections import find_collection, load_loading, load_version

    how = ReadAs(encoding, sheet)
    if any_deletes and not sync and query is None and source is not None:
        raise BadValueError("--any-deletes goes with --sync or --query: without them nothing is deleted")
    if repair and (sync or dry_run):
        raise BadValueError("--repair goes with neither --sync nor --dry-run")
    with open_database() as connection:
        found = find_collection(connection, full_name(collection))
        if query is not None:
            if connection_name is None or source is not None or repair or encoding or sheet:
                raise BadValueError("--query goes with --connection NAME, and with no file")
            _query(connection, found, query, connection_name, any_deletes, dry_run, as_json)
            return
        if source is None:
            loading = load_loading(connection, found.id)
            if loading.source is not None:
                if repair or encoding or sheet:
                    raise BadValueError("a declared source takes none of --repair, --encoding and --sheet")
                _declared(connection, found, loading.source, any_deletes, dry_run, as_json)
                return
            source = loading.feed or files_root(load_version(connection, found.id))
        if source is None:
            raise BadValueError(
                f"{found.full_name} declares no source, feed or files with columns: name a file, or the address of a "
                "feed"
            )
        if any_deletes and not sync:
            raise BadValueError("--any-deletes goes with a source that is all there is: nothing is deleted otherwise")
        file = Path(source)
        if source.startswith(("http://", "https://")):
            if sync or repair or dry_run:
                raise BadValueError("a feed takes none of --sync, --repair and --dry-run: it is synced in any case")
            _feed(connection, found, source, as_json)
        elif is_folder(source):
            if sync or repair or encoding or sheet:
                raise BadValueError("a folder is loaded by its files' paths, and deletes nothing: no such option")
            _load_folder(connection, found, source, dry_run, as_json)
        elif repair:
            _repair(connection, found, file, as_json)
        elif sync:
            _sync(connection, found, file, how, any_deletes, dry_run, as_json)
        elif dry_run:
            _estimate(connection, found, file, how, as_json)
        else:
            _load(connection, found, file, how)


def rejected(
    collection: CollectionName,
    batch: Annotated[str | None, typer.Option(help="Only those of this batch, by its key.")] = None,
    repaired: Annotated[bool, typer.Option("--repaired", help="Also those that are repaired.")] = False,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write them here, to be repaired and loaded again.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Lines that did not fit when they were loaded: where they stood, why, and what stands in them.

    Repair them in what --csv writes (leave the first column as it is), and `autofill load COLLECTION FILE --repair`.
    """
    from cell_engine.cli import render
    from cell_engine.load import write_rejected
    from cell_engine.store.collections import find_collection, load_version

    with open_database() as connection:
        found = find_collection(connection, full_name(collection))
        version = load_version(connection, found.id)
        lines = _all_rejected(connection, found, batch, repaired)
        if csv is not None:
            with csv.open("w", encoding="utf-8", newline="") as file:
                count = write_rejected(lines, version, file)
            typer.echo(f"{found.full_name}: {count:,} rejected lines in {csv}")
            return
        shown = list(lines)
    names = {column.id: column.name for column in version.columns}
    if as_json:
        render.print_json([_line_json(line, names) for line in shown])
        return
    for line in shown:
        typer.echo(f"{line.id} {line.source}:{line.line}: {render.one_line(line.reason)}")
        typer.echo(f"    {render.one_line(line.raw, 120)}" + ("  (repaired)" if line.repaired_at else ""))
    if not shown:
        typer.echo(f"{found.full_name}: no rejected lines")


def restore(
    collection: CollectionName,
    sync: Annotated[
        int | None, typer.Option(min=1, help="By its number, as `load --sync` told it. Default: the latest one.")
    ] = None,
) -> None:
    """Bring back the rows that a sync has deleted, with what was computed of them."""
    from cell_engine.store.collections import find_collection, load_version
    from cell_engine.store.syncing import restore as restore_rows

    with open_database() as connection:
        found = find_collection(connection, full_name(collection))
        version = load_version(connection, found.id)
        rows, dispatches = restore_rows(connection, version, actor=actor(), sync=sync)
        typer.echo(f"{found.full_name}: {rows:,} rows are back; {computing(dispatches)}")


def _load(connection: Connection, collection: Collection, file: Path, how: ReadAs) -> None:
    from cell_engine.load import load_file

    with _progress("loading") as on_rows:
        loaded = load_file(connection, collection, file, actor=actor(), on_rows=on_rows, how=how)
    _say_loaded(connection, collection, file, loaded)
    _end_with(file, loaded.rejected, loaded.rejected_rows)


def _load_folder(connection: Connection, collection: Collection, folder: str, dry_run: bool, as_json: bool) -> None:
    from cell_engine.cli.folders import load_files

    rejected = load_files(
        connection,
        collection,
        folder,
        dry_run=dry_run,
        as_json=as_json,
        progress=_progress("reading files"),
    )
    if rejected:
        raise typer.Exit(REJECTED_EXIT)


def _say_loaded(connection: Connection, collection: Collection, file: Path, loaded: Loaded) -> None:
    from cell_engine.store.collections import load_version

    batches = ", ".join(batch.key for batch in loaded.batches)
    if loaded.new:
        typer.echo(f"{collection.full_name}: {loaded.rows:,} rows from {file.name} as batch {batches}")
        if loaded.dispatches:
            typer.echo(computing(loaded.dispatches))
        version = load_version(connection, collection.id)
        warn_without_workers(connection, version, [column.name for column in version.computed])
    elif not loaded.batches:
        typer.echo(f"{collection.full_name}: {file.name} has no rows; nothing changed")
    else:
        typer.echo(f"{collection.full_name}: {file.name} was loaded before, as batch {batches}; nothing changed")


def _estimate(connection: Connection, collection: Collection, file: Path, how: ReadAs, as_json: bool) -> None:
    from cell_engine.estimate import estimate_new
    from cell_engine.load import file_rows
    from cell_engine.plan import Row
    from cell_engine.store.collections import load_version

    version = load_version(connection, collection.id)
    print_estimate(estimate_new(connection, collection, version, map(Row, file_rows(file, version, how))), as_json)


def _sync(
    connection: Connection,
    collection: Collection,
    file: Path,
    how: ReadAs,
    any_deletes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    from cell_engine.load import sync_file

    with _progress("comparing") as on_rows:
        done = sync_file(
            connection,
            collection,
            file,
            actor=actor(),
            any_deletes=any_deletes or dry_run,
            apply=not dry_run,
            on_rows=on_rows,
            how=how,
        )
    say_synced(connection, collection, file.name, done, as_json)
    _end_with(file, done.rejected, done.rejected_lines)


def _feed(connection: Connection, collection: Collection, url: str, as_json: bool) -> None:
    from cell_engine.cli import render
    from cell_engine.load.feed import sync_feed
    from cell_engine.log import redact_text

    done = sync_feed(connection, collection, url, actor=actor())
    shown = redact_text(url)
    if as_json:
        render.print_json({"body": done.body, "synced": None if done.synced is None else synced_json(done.synced)})
    elif done.synced is None:
        typer.echo(f"{collection.full_name}: {shown} has not changed")
    else:
        say_synced(connection, collection, shown, done.synced)
    if done.synced is not None:
        _end_with(shown, done.synced.rejected, done.synced.rejected_lines)


def _query(
    connection: Connection,
    collection: Collection,
    file: Path,
    name: str,
    any_deletes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    from cell_engine.load.query_rows import open_query, sync_query

    query = open_query(file, name)
    done = sync_query(
        connection, collection, query, actor=actor(), any_deletes=any_deletes or dry_run, apply=not dry_run
    )
    say_synced(connection, collection, query.source, done, as_json)
    _end_with(query.source, done.rejected, done.rejected_lines)


def _declared(
    connection: Connection, collection: Collection, source: Source, any_deletes: bool, dry_run: bool, as_json: bool
) -> None:
    from cell_engine.load.declared import sync_source

    done = sync_source(
        connection, collection, source, actor=actor(), any_deletes=any_deletes or dry_run, apply=not dry_run
    )
    say_synced(connection, collection, source.title, done, as_json)
    _end_with(source.title, done.rejected, done.rejected_lines)


def _repair(connection: Connection, collection: Collection, file: Path, as_json: bool) -> None:
    from cell_engine.cli import render
    from cell_engine.load import load_repaired

    done = load_repaired(connection, collection, file, actor=actor())
    if as_json:
        render.print_json(asdict(done))
    else:
        typer.echo(f"{collection.full_name}: {done.rows:,} repaired rows are in, {done.passed:,} left as they were")
        if done.dispatches:
            typer.echo(computing(done.dispatches))
    if done.rejected:
        typer.echo(f"{done.rejected:,} still do not fit: `autofill rejected {collection.full_name}`", err=True)
        raise typer.Exit(REJECTED_EXIT)


def _end_with(file: Path | str, rejected: Sequence[tuple[int, str]], count: int) -> None:
    """Tell of rejected lines, and exit with their code, if there are any."""
    if not count:
        return
    for line, reason in rejected[:_REJECTED_SHOWN]:
        typer.echo(f"{file}:{line}: {reason}", err=True)
    more = count - min(len(rejected), _REJECTED_SHOWN)
    if more:
        typer.echo(f"… and {more:,} more", err=True)
    lines = "1 line was" if count == 1 else f"{count:,} lines were"
    typer.echo(f"{lines} rejected; the other rows are in", err=True)
    raise typer.Exit(REJECTED_EXIT)


@contextmanager
def _progress(doing: str) -> Iterator[Callable[[int], None]]:
    from rich.console import Console

    with Console(stderr=True).status(doing) as status:
        yield lambda rows: status.update(f"{doing}: {rows:,} rows")


def _all_rejected(
    connection: Connection, collection: Collection, batch: str | None, repaired: bool
) -> Iterator[KeptLine]:
    from cell_engine.store.rejected import list_rejected

    after = 0
    while page := list_rejected(connection, collection.id, batch=batch, repaired=repaired, after=after):
        yield from page
        after = page[-1].id


def _line_json(line: KeptLine, names: dict[int, str]) -> dict[str, Any]:
    fields = None if line.fields is None else {names.get(key, str(key)): text for key, text in line.fields.items()}
    return asdict(line) | {"fields": fields}


COMMANDS: tuple[Callable[..., None], ...] = (load, rejected, restore)
CONTEXT_SETTINGS: dict[str, dict[str, Any]] = {}
