"""Looking into a folder for files that have arrived: what is complete, what is new, and what is remembered of it.

Nobody tells when a file is complete. It is taken to be when two looks, a tick of the sensor apart, find its size and
time of change the same. Who can should write elsewhere, or under a name that begins with a dot, and rename at the end.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from stat import S_ISREG

from cell_engine.specs.text import clean_text

_UNFINISHED = (".tmp", ".temp", ".part", ".partial", ".filepart", ".crdownload", ".swp")
_MARK_BYTES = 8
_REASON_CHARACTERS = 300


@dataclass(frozen=True)
class Found:
    """A file as one look found it; `changed` is its mtime in nanoseconds."""

    path: Path
    size: int
    changed: int

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def stamp(self) -> tuple[int, int]:
        return self.size, self.changed

    @property
    def mark(self) -> bytes:
        """Name, size and time in a few bytes: a folder of thousands of loaded files must fit into a cursor."""
        text = f"{self.size}:{self.changed}:{self.name}".encode(errors="surrogateescape")
        return blake2b(text, digest_size=_MARK_BYTES).digest()


def find_files(folder: Path) -> list[Found]:
    """The folder's own files, in the order in which they changed. Not those in folders below, hidden or unfinished
    ones by their names, or links: they could name any file of this machine. Raises OSError."""
    found = []
    for path in folder.iterdir():
        if path.name.startswith((".", "_", "~")) or path.name.lower().endswith(_UNFINISHED):
            continue
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        if S_ISREG(status.st_mode):
            found.append(Found(path, status.st_size, status.st_mtime_ns))
    return sorted(found, key=lambda one: (one.changed, one.name))


@dataclass
class Memory:
    """What a sensor's cursor holds between two looks. Losing it costs time, never a row: loading is idempotent.

    `spec` is the hash (hex) of the definition applied last. Files are forgotten once they are gone from the folder.
    """

    spec: str = ""
    seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    loaded: set[bytes] = field(default_factory=set)
    refused: dict[str, tuple[int, int, str]] = field(default_factory=dict)

    def look(self, found: Iterable[Found]) -> list[Found]:
        """Take in a look; returns the files to load now: neither loaded nor refused as they are, and settled."""
        before = self.seen
        self.seen = {}
        settled: list[Found] = []
        loaded: set[bytes] = set()
        refused: dict[str, tuple[int, int, str]] = {}
        for file in found:
            if file.mark in self.loaded:
                loaded.add(file.mark)
            elif file.name in self.refused and self.refused[file.name][:2] == file.stamp:
                refused[file.name] = self.refused[file.name]
            else:
                self.seen[file.name] = file.stamp
                if before.get(file.name) == file.stamp:
                    settled.append(file)
        self.loaded, self.refused = loaded, refused
        return settled

    def load(self, file: Found) -> None:
        self.seen.pop(file.name, None)
        self.loaded.add(file.mark)

    def refuse(self, file: Found, reason: str) -> None:
        """Not to be tried again before it has changed."""
        self.seen.pop(file.name, None)
        self.refused[file.name] = (*file.stamp, clean_text(reason)[:_REASON_CHARACTERS])

    def reconsider(self) -> None:
        """Another definition may take what this one refused."""
        self.seen |= {name: (size, changed) for name, (size, changed, _) in self.refused.items()}
        self.refused.clear()

    def dump(self) -> str:
        return json.dumps(
            {
                "spec": self.spec,
                "seen": self.seen,
                "loaded": b64encode(b"".join(sorted(self.loaded))).decode(),
                "refused": self.refused,
            },
            separators=(",", ":"),
        )

    @classmethod
    def parse(cls, cursor: str | None) -> "Memory":
        """An unreadable cursor, as of another release, is an empty one."""
        try:
            held = json.loads(cursor or "")
            marks = b64decode(held["loaded"])
            return cls(
                spec=held["spec"],
                seen={name: (size, changed) for name, (size, changed) in held["seen"].items()},
                loaded={marks[at : at + _MARK_BYTES] for at in range(0, len(marks), _MARK_BYTES)},
                refused={name: (size, changed, why) for name, (size, changed, why) in held["refused"].items()},
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return cls()
