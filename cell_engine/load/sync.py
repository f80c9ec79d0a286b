"""A snapshot synced by key: rows that are new go in, those that changed are changed, those that are gone go.

What the collection declares as its `key` tells rows apart. The snapshot is compared with what was loaded, set-wise, and
only what differs is written and signalled: a row that is as it was costs nothing downstream, and a person's value stays
and is what is shown. A snapshot says nothing of columns that it does not have.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path

from cell_engine.errors import BadValueError
from cell_engine.load.errors import LoadError
from cell_engine.load.rows import Record, as_rejected, told_of
from cell_engine.load.source import AS_IT_SAYS, ReadAs, open_file
from cell_engine.specs.version import Version
from cell_engine.store.batches import Batch, InputsChangedError
from cell_engine.store.collections import Collection, load_loading, load_version
from cell_engine.store.database import Connection
from cell_engine.store.rejected import REJECTED_KEPT, Rejected
from cell_engine.store.syncing import NAMED_ROWS, Counts, Drawn, Incoming, Sync

STAGE_LINES = 20_000
STAGE_BYTES = 32 * 2**20
"""So much of a snapshot is sent at once, whichever comes first."""

DRAWN_ROWS = 400
"""Rows that are told of what is only compared."""

_REASONS_SHOWN = 3


@dataclass(slots=True)
class Synced:
    """What a sync has done, or, with `applied` false, what it would do. Rows, but for `rejected`: (line, reason), the
    first 1,000 of `rejected_lines`.

    `restored` had been deleted before, `withheld` are not in the snapshot and stay all the same. `number` is the
    sync's own, by which what it deleted can be restored. `drawn`: where it would do it, some of the rows that would be
    new, changed or back, for an estimate.
    """

    number: int
    applied: bool
    inserted: int = 0
    updated: int = 0
    restored: int = 0
    deleted: int = 0
    unchanged: int = 0
    withheld: int = 0
    batches: list[Batch] = field(default_factory=list)
    dispatches: list[int] = field(default_factory=list)
    rejected: list[tuple[int, str]] = field(default_factory=list)
    rejected_lines: int = 0
    drawn: list[Drawn] = field(default_factory=list)

    @property
    def changes(self) -> int:
        return self.inserted + self.updated + self.restored + self.deleted


def sync_rows(
    connection: Connection,
    collection: Collection,
    records: Callable[[Version], Iterator[Record]],
    *,
    key: str,
    source: str,
    actor: str,
    key_columns: Sequence[int] = (),
    deletes: bool = True,
    any_deletes: bool = False,
    apply: bool = True,
    demand: bool = True,
    on_rows: Callable[[int], None] | None = None,
    check: Callable[[], None] = lambda: None,
) -> Synced:
    """Bring the collection to what `records(version)` says, all of it checked against that version.

    New rows go into batches "<key>-<number of the sync>-0001" and on. Lines without a key, and those whose key an
    earlier line has, are rejected. With `deletes`, rows that are not in the snapshot go, softly (`syncing.restore`
    brings them back): unless a line could not be read, for it may be theirs; and unless they are more than the
    collection's `delete_share`, which is refused without `any_deletes`. Without `apply`, nothing but the comparison.
    Without `demand` nothing is asked for in the rows that are new: whoever calls sees to that.
    Rows are told apart by `key_columns`, by id, where those are given, else by what the collection declares. `check` is
    called when all records have been read, and may raise.

    Interrupted at any point, called again it finishes. Raises BadValueError for a collection that declares no key,
    LoadError for a snapshot that is refused, OvertakenError once another sync of the collection has begun.
    """
    loading = load_loading(connection, collection.id)
    by = tuple(key_columns) or loading.key
    if not by:
        raise BadValueError(
            f"{collection.full_name} declares no key, by which a sync tells rows apart: write key: [column] into its "
            "YAML, and apply it"
        )
    while True:
        version = load_version(connection, collection.id)
        sync = Sync(connection, version, by, source=source, actor=actor)
        try:
            staging = _Staging(sync, version, by, source, on_rows, Synced(sync.number, apply))
            staging.run(records(version))
            check()
            done, counts = staging.done, sync.compare(partial=not deletes)
            _plan(done, counts, deletes=deletes, readable=not staging.unreadable)
            if done.deleted > loading.delete_share * counts.alive and not any_deletes:
                raise LoadError(
                    f"{source}: it lacks {done.deleted:,} of the {counts.alive:,} rows of {collection.full_name}, more "
                    f"than {loading.delete_share:.0%}, so nothing was written. If they shall go, say --any-deletes"
                )
            if apply:
                _write(sync, done, counts, staging.rejected, f"{key}-{sync.number}", on_rows, deletes, demand)
            else:
                done.drawn = sync.sample(DRAWN_ROWS)
                sync.abandon()
            return done
        except InputsChangedError:
            continue
        except BaseException:
            # Whatever may be left is cleared by the next sync: a connection that is gone clears nothing.
            if not connection.closed:
                sync.abandon()
            raise


def _plan(done: Synced, counts: Counts, *, deletes: bool, readable: bool) -> None:
    done.inserted, done.updated, done.restored = counts.inserts, counts.updates, counts.restores
    done.unchanged = counts.alive - counts.updates - counts.deletes
    if deletes and readable:
        done.deleted = counts.deletes
    elif deletes:
        done.withheld = counts.deletes


def _write(
    sync: Sync,
    done: Synced,
    counts: Counts,
    rejected: list[Rejected],
    key: str,
    on_rows: Callable[[int], None] | None,
    whole: bool,
    demand: bool,
) -> None:
    passed = 0

    def told(rows: int) -> None:
        nonlocal passed
        passed += rows
        if on_rows is not None:
            on_rows(passed)

    by_range = done.updated + done.restored > NAMED_ROWS
    done.batches = sync.insert(lambda number: f"{key}-{number:04d}", told, demand=demand)
    done.dispatches = [batch.dispatch_id for batch in done.batches if batch.dispatch_id is not None]
    for what in ("update", "restore"):
        done.dispatches += sync.update(what, by_range=by_range, told=told)
    if done.deleted:
        sync.delete(told)
    sync.end(replace(counts, deletes=done.deleted), rejected, whole=whole)


@dataclass(slots=True)
class _Staging:
    """A snapshot on its way into the database: bounded parts, lines without a key left out."""

    sync: Sync
    version: Version
    key: tuple[int, ...]
    source: str
    on_rows: Callable[[int], None] | None
    done: Synced
    lines: list[Incoming] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    bytes: int = 0
    passed: int = 0
    unreadable: int = 0

    def run(self, records: Iterator[Record]) -> None:
        for record in records:
            self.passed += 1
            if record.row is None:
                self.unreadable += 1
                self._reject(as_rejected(record))
                continue
            line = Incoming(record.line, record.row, record.missing)
            lacking = [self.version.by_id[column].name for column in self.key if column not in record.row]
            if lacking:
                self._reject(self._as_rejected(line, f"no value in {', '.join(lacking)}, the key of a row"))
                continue
            self.lines.append(line)
            self.bytes += record.size
            if len(self.lines) >= STAGE_LINES or self.bytes >= STAGE_BYTES:
                self._send()
        self._send()
        if self.passed and self.passed == self.done.rejected_lines:
            reasons = [f"{self.source}:{line}: {reason}" for line, reason, *_ in self.rejected[:_REASONS_SHOWN]]
            none = f"{self.source}: none of its {self.passed:,} rows fits the collection, so nothing was written"
            raise LoadError("\n".join([none, *reasons]))
        for line, first in self.sync.repeated():
            self._reject(self._as_rejected(line, f"its key is that of line {first}, which is taken"))
        self.rejected.sort(key=attrgetter("line"))
        del self.rejected[REJECTED_KEPT:]
        self.done.rejected = [(one.line, one.reason) for one in self.rejected]

    def _as_rejected(self, line: Incoming, reason: str) -> Rejected:
        cells = ((self.version.by_id[column], value) for column, value in line.inputs.items())
        return Rejected(line.line, reason, *told_of(cells))

    def _reject(self, line: Rejected) -> None:
        self.done.rejected_lines += 1
        if len(self.rejected) < 2 * REJECTED_KEPT:
            self.rejected.append(line)

    def _send(self) -> None:
        if self.lines:
            self.sync.stage(self.lines)
        self.lines.clear()
        self.bytes = 0
        if self.on_rows is not None:
            self.on_rows(self.passed)


def sync_file(
    connection: Connection,
    collection: Collection,
    path: Path,
    *,
    actor: str,
    any_deletes: bool = False,
    apply: bool = True,
    on_rows: Callable[[int], None] | None = None,
    how: ReadAs = AS_IT_SAYS,
) -> Synced:
    """`sync_rows` of a file, as `load_file` takes them."""
    found = open_file(path, how)
    return sync_rows(
        connection,
        collection,
        lambda version: found.records(version, 0),
        key=found.key,
        source=found.name,
        actor=actor,
        any_deletes=any_deletes,
        apply=apply,
        on_rows=on_rows,
        check=found.content.check_unchanged,
    )
