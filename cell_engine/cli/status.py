"""What `autofill status` gathers and prints."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import typer

from cell_engine.cli import render
from cell_engine.settings import Settings, get_settings
from cell_engine.stack.state import State, read_state

if TYPE_CHECKING:
    from rich.console import Console

    from cell_engine.specs.version import Version
    from cell_engine.store.collections import Collection
    from cell_engine.store.database import Connection
    from cell_engine.store.holds import Hold
    from cell_engine.store.reading import Progress

# Counting cells by status reads them all: beyond this many rows only when the collection is named.
_COUNTED_ROWS = 100_000
_RECENT_DISPATCHES = 5


@dataclass(frozen=True)
class _Seen:
    """One collection; `counts` (column id → status → cells) is None where counting was too much to do unasked."""

    collection: Collection
    version: Version
    counts: dict[int, dict[str, int]] | None
    dispatches: list[Progress]


@dataclass(frozen=True)
class _Overview:
    database: str
    workers: list[Any]
    lanes: list[Any]
    holds: list[Hold]
    collections: list[_Seen]


def print_status(name: str | None, as_json: bool) -> None:
    """Print everything, or with `name` (namespace/name) what there is of one collection. Starts nothing."""
    settings = get_settings()
    state = read_state(settings.home)
    state = state if state is not None and state.is_up else None
    overview = _look(settings, name)
    if as_json:
        render.print_json(_as_json(overview, state))
    elif overview is None:
        typer.echo(f"Nothing is running ({settings.home}); `autofill up` starts it.")
    else:
        _print(overview, state)


def _look(settings: Settings, name: str | None) -> _Overview | None:
    """None if there is no database to look at: the embedded one is not started for it."""
    from cell_engine.embedded import database_url, running
    from cell_engine.log import redact_text
    from cell_engine.parts import open_store
    from cell_engine.store.collections import find_collection, list_collections
    from cell_engine.store.holds import active
    from cell_engine.store.lanes import list_lanes
    from cell_engine.store.reading import live_workers

    if settings.database_url is None and running(settings.home) is None:
        return None
    url = database_url(settings)
    with open_store("status", url) as connection:
        collections = [find_collection(connection, name)] if name is not None else list_collections(connection)
        return _Overview(
            redact_text(url),
            live_workers(connection),
            list_lanes(connection),
            active(connection),
            [_see(connection, collection, named=name is not None) for collection in collections],
        )


def _see(connection: Connection, collection: Collection, named: bool) -> _Seen:
    from cell_engine.store.collections import load_version
    from cell_engine.store.reading import recent_dispatches, status_counts

    counted = named or collection.next_row <= _COUNTED_ROWS
    return _Seen(
        collection,
        load_version(connection, collection.id),
        status_counts(connection, collection.id) if counted else None,
        recent_dispatches(connection, collection.id, limit=_RECENT_DISPATCHES),
    )


def _print(overview: _Overview, state: State | None) -> None:
    screen = render.console()
    screen.print(f"database: {overview.database}", soft_wrap=True)
    screen.print("stack: not up (`autofill up`)" if state is None else f"stack: up, pid {state.up.pid}")
    for service, url in (state.urls if state is not None else {}).items():
        screen.print(f"{service}: {url}", soft_wrap=True)
    for worker in overview.workers:
        job_types = ", ".join(worker.job_types)
        beat = f"last sign of life {worker.beat_age:.0f} s ago"
        screen.print(f"worker: pid {worker.pid} on {worker.host} for {job_types}; {beat}", soft_wrap=True)
    if not overview.workers:
        screen.print("worker: none is running")
    if overview.lanes:
        screen.print(render.lanes_table(overview.lanes))
    for hold in overview.holds:
        screen.print(f"held: {hold_line(hold)}", style="bold red", soft_wrap=True)
    if not overview.collections:
        screen.print("collections: none yet; `autofill apply FILE` makes one")
    for seen in overview.collections:
        _print_collection(screen, seen)


def hold_line(hold: Hold) -> str:
    """A hold in words: what, since when and why, and how it ends."""
    if hold.expires_at is not None:
        ends = f"until {hold.expires_at.astimezone():%m-%d %H:%M}"
    elif hold.probe_at is not None:
        ends = f"tried again at {hold.probe_at.astimezone():%H:%M:%S}"
        if hold.collection is not None:
            ends += f", or by `autofill resume {hold.namespace}/{hold.collection}`"
    else:
        ends = "until a person ends it"
    return f"{hold.what}, since {hold.placed_at.astimezone():%m-%d %H:%M}, for {hold.reason}: {hold.message} ({ends})"


def _print_collection(screen: Console, seen: _Seen) -> None:
    collection = seen.collection
    screen.print(
        f"\n{collection.full_name}: version {collection.version}, {collection.next_row - 1:,} rows, "
        f"at most {collection.cap:,} calls in flight"
    )
    if seen.counts is None:
        screen.print(f"`autofill status {collection.full_name}` counts its cells")
    elif seen.counts:
        screen.print(render.status_table(seen.version, seen.counts))
    if seen.dispatches:
        screen.print(render.dispatches_table(seen.dispatches, seen.version))


def _as_json(overview: _Overview | None, state: State | None) -> dict[str, Any]:
    stack = None if state is None else {"pid": state.up.pid, "urls": dict(state.urls)}
    if overview is None:
        return {"stack": stack, "database": None, "workers": [], "lanes": [], "holds": [], "collections": []}
    return {
        "stack": stack,
        "database": overview.database,
        "workers": [worker._asdict() for worker in overview.workers],
        "lanes": [lane._asdict() for lane in overview.lanes],
        "holds": [asdict(hold) for hold in overview.holds],
        "collections": [_seen_json(seen) for seen in overview.collections],
    }


def _seen_json(seen: _Seen) -> dict[str, Any]:
    names = {column.id: column.name for column in seen.version.columns}
    return {
        "collection": seen.collection.full_name,
        "version": seen.collection.version,
        "cap": seen.collection.cap,
        "rows": seen.collection.next_row - 1,
        "cells": seen.counts and {names[column]: by_status for column, by_status in seen.counts.items()},
        "dispatches": [
            {name: value for name, value in render.progress_json(one).items() if name != "collection_id"}
            | {"columns": [names.get(column, column) for column in one.columns]}
            for one in seen.dispatches
        ],
    }
