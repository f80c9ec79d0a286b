"""From a source of records to batches: in parts of bounded size, one transaction each, resumed where it stopped.

A batch's key is its content's hash and the part's number. So the same content under another name is the same batch,
two loaders of one file make one set, and a load that died goes on after the rows that are in.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cell_engine.load.errors import LoadError
from cell_engine.load.frame_rows import frame_rows
from cell_engine.load.repair import open_repair
from cell_engine.load.rows import Record, as_rejected
from cell_engine.load.source import AS_IT_SAYS, ReadAs, open_file
from cell_engine.load.sync import sync_rows
from cell_engine.specs.text import Json, clean_text
from cell_engine.specs.version import Version
from cell_engine.store.batches import (
    Batch,
    BatchFile,
    FilesLoadedError,
    FoundFile,
    InputsChangedError,
    add_batch,
    find_batches,
    find_files,
)
from cell_engine.store.collections import Collection, load_loading, load_version
from cell_engine.store.database import Connection
from cell_engine.store.rejected import REJECTED_KEPT, Rejected, mark_repaired

if TYPE_CHECKING:
    import polars as pl

PART_RECORDS = 50_000
PART_BYTES = 64 * 2**20
"""A batch ends at whichever of the two comes first; bytes are those of its rows in memory."""

_PROGRESS_EVERY = 1_000
_REASONS_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Loaded:
    """What is in once a file or frame is loaded, by this call or earlier ones.

    `batches` in order, none when there are no rows. `new`: this call added at least one of them. `rejected`: (line,
    reason), the first 1,000; `rejected_rows` counts all. `share`: the file came together with others, in the one batch,
    of which only its own rows and lines count.
    """

    batches: list[Batch]
    new: bool
    share: FoundFile | None = None

    @property
    def rows(self) -> int:
        return self.share.rows if self.share is not None else sum(batch.rows for batch in self.batches)

    @property
    def dispatches(self) -> list[int]:
        """Those that compute what the rows added by this call make due."""
        return [batch.dispatch_id for batch in self.batches if batch.dispatch_id is not None]

    @property
    def rejected(self) -> list[tuple[int, str]]:
        lines = [line for batch in self.batches for line in batch.rejected]
        if self.share is not None:
            name = f"{self.share.name}: "
            lines = [(line, reason.removeprefix(name)) for line, reason in lines if reason.startswith(name)]
        return lines[:REJECTED_KEPT]

    @property
    def rejected_rows(self) -> int:
        return (
            self.share.rejected_rows if self.share is not None else sum(batch.rejected_rows for batch in self.batches)
        )


@dataclass(frozen=True, slots=True)
class Repaired:
    """`rows` are in or were changed, `rejected` still do not fit, `passed` were left as they were."""

    rows: int
    rejected: int
    passed: int
    dispatches: list[int]


def batch_keys(path: Path) -> str:
    """The key prefix of the file's batches, "<prefix>-0001" and on: of its content, whatever the file is called.

    Raises LoadError for what cannot be read or is not UTF-8.
    """
    return open_file(path).key


def load_file(
    connection: Connection,
    collection: Collection,
    path: Path,
    *,
    actor: str,
    demand: bool = True,
    on_rows: Callable[[int], None] | None = None,
    how: ReadAs = AS_IT_SAYS,
) -> Loaded:
    """Load a CSV, TSV, JSON Lines, Parquet or Excel file; memory grows with a workbook alone.

    `on_rows` is called now and then with the number of records passed so far. With `demand`, what the rows make due is
    dispatched. Raises LoadError for a file that cannot be loaded; what was in before is named and stays, and loading
    the same content again goes on after it.
    """
    found = open_file(path, how)
    load = _Load(
        connection,
        collection,
        key=found.key,
        source=found.name,
        actor=actor,
        demand=demand,
        on_rows=on_rows,
        check=found.content.check_unchanged,
        is_file=True,
    )
    return load.run(found.records)


def load_repaired(connection: Connection, collection: Collection, path: Path, *, actor: str) -> Repaired:
    """Load the rejected lines that a person has repaired in what `write_rejected` wrote.

    Where the collection has a key, by that: a row that is there is changed. A line that still does not fit is kept
    anew, as it is now. Lines left as they were stay. The same file again changes nothing. Raises LoadError.
    """
    repair = open_repair(connection, collection, path)
    source, key, check = repair.file.name, repair.file.key, repair.file.content.check_unchanged
    if load_loading(connection, collection.id).key:
        synced = sync_rows(
            connection,
            collection,
            lambda version: repair.records(version, 0),
            key=key,
            source=source,
            actor=actor,
            deletes=False,
            check=check,
        )
        rows, rejected, dispatches = synced.changes, synced.rejected_lines, synced.dispatches
    else:
        load = _Load(connection, collection, key=key, source=source, actor=actor, demand=True, check=check)
        loaded = load.run(repair.records)
        rows, rejected, dispatches = loaded.rows, loaded.rejected_rows, loaded.dispatches
    mark_repaired(connection, collection.id, list(repair.numbers.values()))
    return Repaired(rows, rejected, repair.passed, dispatches)


def file_rows(path: Path, version: Version, how: ReadAs = AS_IT_SAYS) -> Iterator[dict[int, Json]]:
    """The rows that `load_file` would add, without adding them. Raises LoadError."""
    return (found.row for found in open_file(path, how).records(version, 0) if found.row is not None)


def load_frame(
    connection: Connection,
    collection: Collection,
    frame: "pl.DataFrame | pl.LazyFrame",
    *,
    key: str,
    source: str,
    actor: str,
    demand: bool = True,
) -> Loaded:
    """Load a polars frame as the batches "<key>-0001" and on. The same key again is the same batches, whatever the
    frame holds by then; a load that died goes on after as many rows, so a lazy frame must keep their order.

    Raises LoadError for a frame that cannot be loaded.
    """
    load = _Load(connection, collection, key=key, source=clean_text(source), actor=actor, demand=demand)
    return load.run(lambda version, skip: frame_rows(frame, version, source, skip))


@dataclass(slots=True)
class _Part:
    """The records of a batch to be."""

    rows: list[dict[int, Json]] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    bytes: int = 0

    @property
    def records(self) -> int:
        return len(self.rows) + len(self.rejected)

    @property
    def full(self) -> bool:
        return self.records >= PART_RECORDS or self.bytes >= PART_BYTES

    def add(self, record: Record) -> None:
        if record.row is None:
            self.rejected.append(as_rejected(record))
        else:
            self.rows.append(record.row)
        self.bytes += record.size


@dataclass(slots=True)
class _Load:
    connection: Connection
    collection: Collection
    key: str
    source: str
    actor: str
    demand: bool
    on_rows: Callable[[int], None] | None = None
    check: Callable[[], None] = lambda: None
    is_file: bool = False
    batches: list[Batch] = field(default_factory=list)
    new: bool = False
    share: FoundFile | None = None

    def run(self, records: Callable[[Version, int], Iterator[Record]]) -> Loaded:
        """Add what is not in yet of `records(version, skip)`, which checks them against that version."""
        self._find()
        try:
            while self.share is None and not self._add_all(records):
                pass
        except LoadError as error:
            if self.batches:
                raise LoadError(f"{error}\n{self._so_far()}") from error
            raise
        except Exception as error:
            if self.batches:
                error.add_note(self._so_far())
            raise
        return Loaded(self.batches, self.new, self.share)

    def _find(self) -> None:
        while found := find_batches(self.connection, self.collection.id, [self._next_key]):
            self.batches += found
        if self.is_file and not self.batches:
            self.share = find_files(self.connection, self.collection.id, [self.key]).get(self.key)
            if self.share is not None:
                self.batches += find_batches(self.connection, self.collection.id, [self.share.batch])

    def _add_all(self, records: Callable[[Version, int], Iterator[Record]]) -> bool:
        """False when an apply changed the inputs meanwhile: what is not in yet is to be checked again."""
        version = load_version(self.connection, self.collection.id)
        # By the records that are in, not by part: other bounds than today's may have made those parts.
        passed = sum(batch.rows + batch.rejected_rows for batch in self.batches)
        part = _Part()
        try:
            for record in records(version, passed):
                part.add(record)
                passed += 1
                if passed % _PROGRESS_EVERY == 0:
                    self._tell(passed)
                if part.full:
                    self._add(version, part)
                    part = _Part()
            if part.records:
                self._add(version, part)
        except InputsChangedError:
            return False
        except FilesLoadedError:
            self._find()
            return False
        self._tell(passed)
        return True

    def _add(self, version: Version, part: _Part) -> None:
        self.check()
        if not part.rows and not self.batches:
            # Stored, an empty batch would answer for this content also once the collection's columns are put right.
            reasons = [f"{self.source}:{line}: {reason}" for line, reason, *_ in part.rejected[:_REASONS_SHOWN]]
            none = f"{self.source}: no row of the first {part.records:,} fits the collection, so nothing was loaded"
            raise LoadError("\n".join([none, *reasons]))
        batch, added = add_batch(
            self.connection,
            version,
            self._next_key,
            part.rows,
            source=self.source,
            actor=self.actor,
            rejected=part.rejected,
            files=[BatchFile(self.key, self.source, 0, len(part.rows), len(part.rejected))] if self._is_first else (),
            demand=self.demand,
        )
        if batch.rows + batch.rejected_rows != part.records:
            raise LoadError(f"{self.source}: another process loads it at this moment, in other parts; load it again")
        self.batches.append(batch)
        self.new |= added

    @property
    def _is_first(self) -> bool:
        return self.is_file and not self.batches

    @property
    def _next_key(self) -> str:
        return f"{self.key}-{len(self.batches) + 1:04d}"

    def _tell(self, passed: int) -> None:
        if self.on_rows is not None:
            self.on_rows(passed)

    def _so_far(self) -> str:
        done = Loaded(self.batches, self.new)
        return (
            f"{self.source}: {done.rows:,} rows are in, in {len(self.batches)} batches; "
            "loading the same content again goes on after them"
        )
