"""Looking into a folder for files that have arrived: what is complete, what is new, and what is remembered of it.

Nobody tells when a file is complete. It is taken to be when two looks, a tick of the sensor apart, find its size and
time of change the same. Who can should write elsewhere, or under a name that begins with a dot, and rename at the end.
"""

import json
import os
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from cell_engine.errors import AutofillError
from cell_engine.specs.text import clean_text

MOST_FILES = 50_000
"""In an inbox. Of each something is remembered, in a cursor that is written at every tick: half a megabyte then."""

_UNFINISHED = (".tmp", ".temp", ".part", ".partial", ".filepart", ".crdownload", ".swp")
_MARK_BYTES = 8
_REASON_CHARACTERS = 300
_REASONS_KEPT = 50


@dataclass(frozen=True)
class Found:
    """A file as one look found it: its path below the folder is its `name`, `changed` its mtime in nanoseconds."""

    path: Path
    name: str
    size: int
    changed: int

    @property
    def shown(self) -> str:
        """The name without what is no text: the bytes of another encoding would break the page that shows them."""
        return clean_text(self.name)

    @property
    def mark(self) -> bytes:
        """Name, size and time in a few bytes: a folder of thousands of files must fit into a cursor."""
        text = f"{self.size}:{self.changed}:{self.name}".encode(errors="surrogateescape")
        return blake2b(text, digest_size=_MARK_BYTES).digest()


@dataclass(frozen=True)
class Look:
    """What is in a folder: its `files` in the order in which they changed, and folders that are not looked into."""

    files: list[Found]
    too_deep: list[str]


def look_into(folder: Path) -> Look:
    """The folder's own files, and those of the folders in it: what is sent together is often dropped as one.

    Not those further below, hidden or unfinished ones by their names, or links: they could name any file of this
    machine. Raises OSError, and AutofillError for more than MOST_FILES.
    """
    files: list[Found] = []
    too_deep: list[str] = []
    for entry in _entries(folder):
        if entry.is_dir(follow_symlinks=False):
            for inner in _entries(Path(entry.path)):
                name = f"{entry.name}/{inner.name}"
                if inner.is_dir(follow_symlinks=False):
                    too_deep.append(name)
                else:
                    files += _found(inner, name)
        else:
            files += _found(entry, entry.name)
    if len(files) > MOST_FILES:
        raise AutofillError(
            f"{folder} holds {len(files):,} files, more than {MOST_FILES:,}, so nothing is loaded: move what has been "
            "loaded elsewhere"
        )
    return Look(sorted(files, key=lambda one: (one.changed, one.name)), sorted(too_deep))


def _entries(folder: Path) -> Iterator["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as entries:
            yield from (
                entry
                for entry in entries
                if not entry.name.startswith((".", "_", "~")) and not entry.name.lower().endswith(_UNFINISHED)
            )
    except FileNotFoundError:  # renamed away between two looks
        return


def _found(entry: "os.DirEntry[str]", name: str) -> Iterator[Found]:
    try:
        if entry.is_file(follow_symlinks=False):
            status = entry.stat(follow_symlinks=False)
            yield Found(Path(entry.path), name, status.st_size, status.st_mtime_ns)
    except FileNotFoundError:
        return


@dataclass
class Marks:
    """What is remembered of the files of one folder, by their marks: one that has changed is another. Forgotten once
    they are gone. `reasons` are the first of those for which files were refused, by name."""

    seen: set[bytes] = field(default_factory=set)
    loaded: set[bytes] = field(default_factory=set)
    refused: set[bytes] = field(default_factory=set)
    reasons: dict[str, str] = field(default_factory=dict)

    def look(self, found: Iterable[Found]) -> list[Found]:
        """Take in a look; returns the files to load now: neither loaded nor refused as they are, and settled."""
        before, loaded, refused, reasons = self.seen, self.loaded, self.refused, self.reasons
        self.seen, self.loaded, self.refused, self.reasons = set(), set(), set(), {}
        settled: list[Found] = []
        for file in found:
            mark = file.mark
            if mark in loaded:
                self.loaded.add(mark)
            elif mark in refused:
                self.refused.add(mark)
                if file.shown in reasons:
                    self.reasons[file.shown] = reasons[file.shown]
            else:
                self.seen.add(mark)
                if mark in before:
                    settled.append(file)
        return settled

    def load(self, file: Found) -> None:
        self.seen.discard(file.mark)
        self.loaded.add(file.mark)

    def refuse(self, file: Found, reason: str) -> None:
        """Not to be tried again before it has changed."""
        self.seen.discard(file.mark)
        self.refused.add(file.mark)
        if len(self.reasons) < _REASONS_KEPT:
            self.reasons[file.shown] = clean_text(reason)[:_REASON_CHARACTERS]

    def reconsider(self) -> None:
        """Another definition may take what this one refused."""
        self.seen |= self.refused
        self.refused.clear()
        self.reasons.clear()

    def to_json(self) -> dict[str, object]:
        packed = {name: b64encode(b"".join(sorted(getattr(self, name)))).decode() for name in _SETS}
        return {**packed, "reasons": self.reasons}

    @classmethod
    def from_json(cls, held: dict[str, Any]) -> "Marks":
        """Raises KeyError, ValueError and the like for what is none."""
        unpacked: dict[str, set[bytes]] = {}
        for name in _SETS:
            marks = b64decode(held[name], validate=True)
            unpacked[name] = {marks[at : at + _MARK_BYTES] for at in range(0, len(marks), _MARK_BYTES)}
        return cls(**unpacked, reasons={str(name): str(reason) for name, reason in dict(held["reasons"]).items()})


_SETS = ("seen", "loaded", "refused")


@dataclass
class Memory:
    """What a sensor's cursor holds between two looks. Losing it costs time, never a row: loading is idempotent.

    `spec` is the hash (hex) of the definition applied last. `files`: where the collection's files lie, if it has any,
    and `files_next` when (seconds since 1970) they are looked at again. `last` is the id of the last batch that was
    handed to Dagster and `batches` how many there were; None before the first look.
    """

    spec: str = ""
    inbox: Marks = field(default_factory=Marks)
    files: Marks = field(default_factory=Marks)
    files_next: float = 0.0
    last: int | None = None
    batches: int | None = None

    def reconsider(self) -> None:
        self.inbox.reconsider()
        self.files.reconsider()

    def dump(self) -> str:
        held = vars(self) | {"inbox": self.inbox.to_json(), "files": self.files.to_json()}
        return json.dumps(held, separators=(",", ":"))

    @classmethod
    def parse(cls, cursor: str | None) -> "Memory":
        """An unreadable cursor, as of another release, is an empty one."""
        try:
            held = json.loads(cursor or "")
            return cls(
                spec=str(held["spec"]),
                inbox=Marks.from_json(held["inbox"]),
                files=Marks.from_json(held["files"]),
                files_next=float(held["files_next"]),
                last=None if held["last"] is None else int(held["last"]),
                batches=None if held["batches"] is None else int(held["batches"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls()
