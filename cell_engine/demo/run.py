"""The demo's way through the product: a file in the inbox, Dagster's sensor, a run, cells that fill, a look at them.

Nothing here computes or dispatches anything: it applies the collection, puts the file there, and watches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cell_engine.demo.distributions import Installed, write_file
from cell_engine.demo.patience import PatientStore
from cell_engine.errors import AutofillError
from cell_engine.load import batch_keys
from cell_engine.specs.compiled import CompiledSpec
from cell_engine.specs.version import Version
from cell_engine.store.applying import apply
from cell_engine.store.batches import find_batches
from cell_engine.store.collections import Collection
from cell_engine.store.database import Connection
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import Progress, page, recent_dispatches, status_counts

ACTOR = "demo"

_LOOK_SECONDS = 0.3
# Seconds without any news after which the demo says where to look instead of waiting on. A sensor looks every few
# seconds; a slow model may take its whole timeout, several times.
_FILE_PATIENCE = 180.0
_FILL_PATIENCE = 600.0
_GOOD = frozenset({"ready", "not_found", "blocked", "overridden"})
_ENDED = _GOOD | {"error", "canceled"}
_DISPATCHES = 20
_EXAMPLES = 3

Pause = Callable[[float], None]


@dataclass(frozen=True)
class Watched:
    """A demo's collection; `known` is the last dispatch that is not this demo's."""

    collection: Collection
    version: Version
    known: int


@dataclass(frozen=True)
class Demo(Watched):
    """The packages, and their file in the inbox, of which the first batch has the key `batch`.

    `is_loaded`: an earlier demo loaded the very same file.
    """

    file: Path
    batch: str
    is_loaded: bool


@dataclass(frozen=True)
class Totals:
    """What this demo took; `cells` by status are all of the collection, the rest is since it began."""

    cells: dict[str, int]
    calls: int
    interrupted: int
    tokens_in: int
    tokens_out: int
    seconds: float


def prepare(connection: Connection, spec: CompiledSpec, rows: list[Installed], home: Path) -> Demo:
    """Apply the collection, then put the file into its inbox."""
    watched = watch(connection, spec)
    file = write_file(rows, home / "inbox" / spec.namespace / spec.name, scratch=home)
    batch = f"{batch_keys(file)}-0001"
    is_loaded = bool(find_batches(connection, watched.collection.id, [batch]))
    return Demo(watched.collection, watched.version, watched.known, file, batch, is_loaded)


def watch(connection: Connection, spec: CompiledSpec) -> Watched:
    """Apply the collection."""
    applied = apply(connection, spec, actor=ACTOR)
    newest = recent_dispatches(connection, applied.collection.id, limit=1)
    return Watched(applied.collection, applied.version, newest[0].id if newest else 0)


def wait_for_rows(store: PatientStore, demo: Demo, pause: Pause) -> int:
    """Until the sensor has loaded the file; returns how many of its rows are in. Raises AutofillError in vain."""
    deadline = time.monotonic() + _FILE_PATIENCE
    while not (found := store(lambda connection: find_batches(connection, demo.collection.id, [demo.batch]))):
        if time.monotonic() > deadline:
            raise AutofillError(
                f"Dagster's sensor has not loaded {demo.file} in {_FILE_PATIENCE:g} s. "
                "Look at its ticks in Dagster (Automation), and at dagster-daemon.log and dagster-code-server.log."
            )
        pause(_LOOK_SECONDS)
    return found[0].rows


def follow(store: PatientStore, demo: Watched, pause: Pause, show: Callable[[Progress], None]) -> None:
    """Until every cell has ended; `show` gets the latest dispatch. Raises AutofillError when nothing moves any more."""
    seen: object = None
    moved = time.monotonic()
    while True:
        counts = store(lambda connection: status_counts(connection, demo.collection.id))
        dispatches = store(lambda connection: recent_dispatches(connection, demo.collection.id, limit=_DISPATCHES))
        if dispatches and dispatches[0].id > demo.known:
            show(dispatches[0])
        is_open = any(dispatch.ended_at is None for dispatch in dispatches)
        if not is_open and counts and all(status in _ENDED for by in counts.values() for status in by):
            return
        news = (counts, [(dispatch.id, dispatch.done, dispatch.ended_at) for dispatch in dispatches])
        if news != seen:
            seen, moved = news, time.monotonic()
        elif time.monotonic() - moved > _FILL_PATIENCE:
            raise AutofillError(
                f"Nothing has moved for {_FILL_PATIENCE:g} s, and not every cell has ended: {_by_status(counts)}. "
                "Look at the run in Dagster, at `autofill status`, and at worker.log."
            )
        pause(_LOOK_SECONDS)


def problems(connection: Connection, demo: Watched) -> list[str]:
    """What is not as it should be when all is over: cells in error or not ended, and rules of the database broken."""
    found: list[str] = []
    for column_id, by_status in status_counts(connection, demo.collection.id).items():
        name = demo.version.by_id[column_id].name
        for status, cells in by_status.items():
            if status not in _GOOD:
                examples = _examples(connection, demo, column_id) if status == "error" else ""
                found.append(f"{name}: {cells:,} cells are {status}{examples}")
    found += [f"rule {name} is broken by {rows[:_EXAMPLES]}" for name, rows in broken_rules(connection).items()]
    return found


def totals(connection: Connection, demo: Watched) -> Totals:
    recent = recent_dispatches(connection, demo.collection.id, limit=_DISPATCHES)
    mine = [dispatch for dispatch in recent if dispatch.id > demo.known]
    return Totals(
        cells=_summed(status_counts(connection, demo.collection.id)),
        calls=sum(sum(dispatch.attempts.values()) for dispatch in mine),
        interrupted=sum(dispatch.attempts.get("interrupted", 0) for dispatch in mine),
        tokens_in=sum(dispatch.tokens_in for dispatch in mine),
        tokens_out=sum(dispatch.tokens_out for dispatch in mine),
        seconds=_seconds(mine),
    )


def _seconds(dispatches: Sequence[Progress]) -> float:
    """From the first request to the last end."""
    ends = [dispatch.ended_at for dispatch in dispatches if dispatch.ended_at is not None]
    if not ends:
        return 0.0
    return (max(ends) - min(dispatch.created_at for dispatch in dispatches)).total_seconds()


def _examples(connection: Connection, demo: Watched, column_id: int) -> str:
    _, cells = page(connection, demo.collection.id, limit=1000)
    errors = [cell for cell in cells if cell.column_id == column_id and cell.status == "error"]
    return "".join(f"\n  row {cell.row_id}: {cell.error_class}: {cell.error}" for cell in errors[:_EXAMPLES])


def _by_status(counts: dict[int, dict[str, int]]) -> str:
    return ", ".join(f"{cells:,} {status}" for status, cells in sorted(_summed(counts).items())) or "no cells"


def _summed(counts: dict[int, dict[str, int]]) -> dict[str, int]:
    """Cells by status, over all columns."""
    summed: dict[str, int] = {}
    for by_status in counts.values():
        for status, cells in by_status.items():
            summed[status] = summed.get(status, 0) + cells
    return summed
