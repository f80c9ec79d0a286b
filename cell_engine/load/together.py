"""Many small files as few batches: what would be a batch each, and a partition each, is one of bounded size.

A file is known by its content, as one that comes alone is, and is in with its batch or not at all. So the same files
again change nothing, whichever others they come with: those that are in are found, and the rest are a batch.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import psycopg

from cell_engine.errors import AutofillError
from cell_engine.load.errors import LoadError
from cell_engine.load.loader import PART_BYTES, PART_RECORDS, Loaded, load_file
from cell_engine.load.rows import as_rejected
from cell_engine.load.source import FileSource, open_file
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
from cell_engine.store.collections import Collection, load_version
from cell_engine.store.database import Connection
from cell_engine.store.rejected import Rejected

SMALL_BYTES = 256 * 2**10
"""Larger files are batches of their own: they are held in memory until their batch is full."""

_KEY_BYTES = 8


@dataclass(slots=True)
class LoadedTogether:
    """`loaded`: the files that are in, by this call or earlier ones; `refused`: why others are not. Those that are in
    neither were not come to in time."""

    loaded: dict[Path, Loaded] = field(default_factory=dict)
    refused: dict[Path, str] = field(default_factory=dict)

    @property
    def batches(self) -> list[Batch]:
        """Of the files that are in, each once, in arrival order."""
        found = {batch.id: batch for loaded in self.loaded.values() for batch in loaded.batches}
        return [found[number] for number in sorted(found)]


def load_together(
    connection: Connection,
    collection: Collection,
    paths: Iterable[Path],
    *,
    actor: str,
    demand: bool = True,
    name: Callable[[Path], str] = lambda path: path.name,
    is_late: Callable[[], bool] = lambda: False,
) -> LoadedTogether:
    """Load files: of the small ones as many in a batch as go in, then large ones, each by itself (`load_file`). One
    that cannot be loaded stops no other.

    `name` is what a small file is called beside its rows. Once `is_late`, no further file is begun with; what was begun
    with goes in, one file at least, so that the next call goes on. Raises psycopg.OperationalError: what is in stays,
    and loading the same files again goes on after it.
    """
    group = _Group(connection, collection, actor, demand, name, is_late)
    group.run(paths)
    return group.done


@dataclass(slots=True)
class _Part:
    """Whole files whose rows make a batch."""

    sources: list[FileSource] = field(default_factory=list)
    files: list[BatchFile] = field(default_factory=list)
    rows: list[dict[int, Json]] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    bytes: int = 0

    @property
    def records(self) -> int:
        return len(self.rows) + len(self.rejected)

    def takes(self, other: "_Part") -> bool:
        return not self.sources or (
            self.records + other.records <= PART_RECORDS and self.bytes + other.bytes <= PART_BYTES
        )

    def add(self, source: FileSource, name: str, other: "_Part") -> None:
        self.sources.append(source)
        self.files.append(BatchFile(source.key, name, len(self.rows), len(other.rows), len(other.rejected)))
        self.rows += other.rows
        self.rejected += other.rejected
        self.bytes += other.bytes

    @property
    def key(self) -> str:
        """Of the contents."""
        digest = blake2b("\n".join(sorted(one.key for one in self.files)).encode(), digest_size=_KEY_BYTES)
        return f"{digest.hexdigest()}-of-{len(self.files)}"

    @property
    def source(self) -> str:
        return f"{self.files[0].name} and {len(self.files) - 1:,} more"


@dataclass(slots=True)
class _Group:
    connection: Connection
    collection: Collection
    actor: str
    demand: bool
    name: Callable[[Path], str]
    is_late: Callable[[], bool]
    done: LoadedTogether = field(default_factory=LoadedTogether)
    paths: dict[str, list[Path]] = field(default_factory=dict)
    """By key: files of one content are loaded as the first of them."""

    def run(self, paths: Iterable[Path]) -> None:
        paths = list(paths)
        large = [path for path in paths if _is_large(path)]
        apart = set(large)
        self._load_small([path for path in paths if path not in apart])
        for path in large:
            if self._has_begun and self.is_late():
                break
            self._load_alone([path])

    @property
    def _has_begun(self) -> bool:
        return bool(self.done.loaded or self.done.refused or self.paths)

    def _load_small(self, paths: Sequence[Path]) -> None:
        sources: list[FileSource] = []
        for path in paths:
            if self._has_begun and self.is_late():
                break
            try:
                source = open_file(path)
            except (LoadError, OSError) as error:
                self.done.refused[path] = str(error)
                continue
            if source.key not in self.paths:
                sources.append(source)
            self.paths.setdefault(source.key, []).append(path)
        while sources:
            sources = self._without_known(sources)
            # Whatever was in the way, an apply or another load: looked at again, it is found.
            with suppress(InputsChangedError, FilesLoadedError):
                while sources:
                    sources = sources[self._add_next(sources) :]

    def _without_known(self, sources: Sequence[FileSource]) -> list[FileSource]:
        """Those that are not in yet; the others are done."""
        found = find_files(self.connection, self.collection.id, [one.key for one in sources])
        firsts = [_first_batch(one.key) for one in sources]
        keys = [*{file.batch for file in found.values()}, *firsts]
        batches = {batch.key: batch for batch in find_batches(self.connection, self.collection.id, keys)}
        left = []
        for one, first in zip(sources, firsts, strict=True):
            if first in batches:
                self._load_alone(self.paths[one.key])
            elif one.key in found:
                self._is_in(one, Loaded([batches[found[one.key].batch]], new=False, share=found[one.key]))
            elif not self._is_refused(one):
                left.append(one)
        return left

    def _add_next(self, sources: Sequence[FileSource]) -> int:
        """Add a batch of the first of the files; returns how many are done with."""
        version = load_version(self.connection, self.collection.id)
        part = _Part()
        taken = 0
        for source in sources:
            name = clean_text(self.name(source.content.path))
            found = self._read(source, name, version)
            if found is not None:
                if not part.takes(found):
                    break
                part.add(source, name, found)
            taken += 1
        if len(part.files) == 1:
            self._load_alone(self.paths[part.sources[0].key])
        elif part.files:
            self._add(version, part)
        return taken

    def _read(self, source: FileSource, name: str, version: Version) -> _Part | None:
        """What the file holds; None where it is done with: it is refused, or has no rows."""
        part = _Part()
        try:
            for record in source.records(version, 0):
                if record.row is None:
                    part.rejected.append(as_rejected(record)._replace(source=name))
                else:
                    part.rows.append(record.row)
                part.bytes += record.size
        except Exception as error:  # noqa: BLE001 (whatever it is, it is this file's, and the next one is to go in)
            self._refuse(source, error)
            return None
        if not part.rows:
            self._load_alone(self.paths[source.key])
            return None
        return part

    def _add(self, version: Version, part: _Part) -> None:
        for source in part.sources:
            try:
                source.content.check_unchanged()
            except LoadError as error:
                self._refuse(source, error)
        if any(map(self._is_refused, part.sources)):
            raise FilesLoadedError("one of the files has changed: the others go in without it")
        batch, added = add_batch(
            self.connection,
            version,
            part.key,
            part.rows,
            source=part.source,
            actor=self.actor,
            rejected=part.rejected,
            files=part.files,
            demand=self.demand,
        )
        if not added:
            raise FilesLoadedError("another process has loaded the same files")
        for source, file in zip(part.sources, part.files, strict=True):
            first = batch.first_row + file.offset
            share = FoundFile(file.key, batch.key, file.name, first, first + file.rows - 1, file.rejected_rows)
            self._is_in(source, Loaded([batch], new=True, share=share))

    def _load_alone(self, paths: Sequence[Path]) -> None:
        """Files of one content, as batches of it alone."""
        try:
            loaded = load_file(self.connection, self.collection, paths[0], actor=self.actor, demand=self.demand)
            self.done.loaded |= dict.fromkeys(paths, loaded)
        except (psycopg.OperationalError, psycopg.InterfaceError):
            raise
        except Exception as error:  # noqa: BLE001 (see above)
            self.done.refused |= dict.fromkeys(paths, _reason(error))

    def _is_in(self, source: FileSource, loaded: Loaded) -> None:
        self.done.loaded |= dict.fromkeys(self.paths[source.key], loaded)

    def _refuse(self, source: FileSource, error: Exception) -> None:
        self.done.refused |= dict.fromkeys(self.paths[source.key], _reason(error))

    def _is_refused(self, source: FileSource) -> bool:
        return source.content.path in self.done.refused


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, AutofillError | OSError) else f"{type(error).__name__}: {error}"


def _is_large(path: Path) -> bool:
    try:
        return path.stat().st_size > SMALL_BYTES
    except OSError:
        return False


def _first_batch(key: str) -> str:
    """Of a file that came alone."""
    return f"{key}-0001"
