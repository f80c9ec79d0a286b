"""A place that files are read from, by paths that cannot leave it."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, TypeAlias

from cell_engine.errors import BadValueError
from cell_engine.files.errors import FileError, Growing, Missing, NoFile, Outside, TooLarge
from cell_engine.files.local import HIDDEN, SETTLED_SECONDS, LocalFile, LocalFiles
from cell_engine.files.remote import RemoteFile, RemoteFiles
from cell_engine.specs.paths import check_path, path_fault

_Keep: TypeAlias = Callable[[bytes], object]

_CHUNK = 2**20
_UNFINISHED = (".part", ".partial", ".tmp", ".crdownload", ".download")
"""What browsers and copying tools call a file until it is complete."""


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What a file is: its ``path`` under the place and its last ``name``, its bytes, when it was ``modified`` (UTC),
    and the SHA-256 of its content in hex."""

    path: str
    name: str
    size: int
    modified: datetime
    digest: str


@dataclass(frozen=True, slots=True)
class Glimpse:
    """What is seen of a file without opening it: ``changed`` is when it last did, in any way, in nanoseconds."""

    path: str
    size: int
    changed: int


@dataclass(frozen=True, slots=True)
class FileContent(FileFacts):
    """A file, read whole."""

    data: bytes


class Place:
    """The files under ``root``: an absolute folder, or a URL of a store that fsspec knows.

    Its calls block; worker code makes them in a thread. Raises BadValueError for a root of another form, and for a
    store whose package is not installed. ``below`` are names under the root, as little trusted as a path is.
    """

    def __init__(self, root: str | Path, below: str = "") -> None:
        self.root = str(root)
        self.below = check_path(below) if below else ""
        names = self.below.split("/") if below else []
        self._files: LocalFiles | RemoteFiles
        if "://" in self.root:
            self._files = RemoteFiles(self.root, names)
        elif Path(self.root).is_absolute():
            self._files = LocalFiles(Path(self.root), names)
        else:
            raise BadValueError(f"files in {self.root!r}: an absolute folder is needed, or a URL such as s3://bucket/x")

    def read(self, path: str, limit: int) -> FileContent:
        """The file of ``path`` as it is now, ``limit`` bytes at most.

        Raises Missing, Growing (see `local.SETTLED_SECONDS`), Outside, TooLarge, Unreachable, or a FileError for what
        can never be read, a folder or a file without permission.
        """
        data = bytearray()
        facts = self._take(path, limit, data.extend)
        return FileContent(facts.path, facts.name, facts.size, facts.modified, facts.digest, bytes(data))

    def facts(self, path: str) -> FileFacts:
        """What the file of ``path`` is, its content read but not kept. Raises as `read`, but for TooLarge."""
        return self._take(path, None, None)

    def copy(self, path: str, to: BinaryIO) -> FileFacts:
        """Write the file of ``path`` to ``to``, of any size. Raises as `facts`."""
        return self._take(path, None, to.write)

    def walk(self, pattern: str = "**/*", below: str = "") -> Iterator[str | FileError]:
        """The paths of all files that match ``pattern`` (see `matcher`), in order; what cannot be one, as its error. So
        is a link: of a folder's, only its own name is looked at. With ``below`` only those in that folder.

        Passed over are names that begin with a dot or ``~$``, and files that are called unfinished (``.part``,
        ``.tmp`` and the like). Holds the names of one folder at a time.
        """
        matches = matcher(pattern)
        for found in self._files.walk(check_path(below).split("/") if below else ()):
            if isinstance(found, FileError):
                is_meant = not isinstance(found, NoFile) or matches(unicodedata.normalize("NFC", found.path))
                if is_meant and not _is_passed_over(found.path.split("/")):
                    yield found
                continue
            path = "/".join(found)
            if _is_passed_over(found) or not matches(unicodedata.normalize("NFC", path)):
                continue
            fault = path_fault(path)
            if not fault and path not in _forms(check_path(path)):
                fault = "its name is in neither of Unicode's normal forms: rename it"
            yield Outside(path.encode(errors="backslashreplace").decode(), fault) if fault else check_path(path)

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of this machine: to look at it again and again costs nobody money."""
        return isinstance(self._files, LocalFiles)

    def glance(self, pattern: str = "**/*") -> Iterator[Glimpse | FileError]:
        """The files of a local place that match ``pattern``, as `walk` finds them."""
        base = Path(self.root, self.below)
        for path in self.walk(pattern):
            if isinstance(path, FileError):
                yield path
                continue
            for form in _forms(path):
                with suppress(OSError):
                    status = (base / form).lstat()
                    yield Glimpse(path, status.st_size, status.st_ctime_ns)
                    break

    def _take(self, path: str, limit: int | None, keep: _Keep | None) -> FileFacts:
        fault = path_fault(path)
        if fault:
            raise Outside(path, fault)
        checked = check_path(path)
        missing = None
        for form in _forms(checked):
            try:
                with self._files.open(checked, form.split("/")) as file:
                    return _read(file, checked, limit, keep)
            except Missing as error:
                missing = missing or error
        assert missing is not None
        raise missing


def _read(file: LocalFile | RemoteFile, path: str, limit: int | None, keep: _Keep | None) -> FileFacts:
    before = file.stamp()
    file.check_settled()
    if limit is not None and before.size > limit:
        raise TooLarge(path, before.size, limit)
    digest = hashlib.sha256()
    size = 0
    # One byte more than it had: a file that has grown is not read to an end that may never come.
    while chunk := file.read(min(_CHUNK, before.size - size + 1)):
        size += len(chunk)
        digest.update(chunk)
        if keep is not None:
            keep(chunk)
        if size > before.size:
            break
    if size != before.size or file.stamp() != before:
        raise Growing(path, "it was written to while it was read", SETTLED_SECONDS)
    return FileFacts(path, path.rpartition("/")[2], size, before.modified, digest.hexdigest())


def _forms(path: str) -> tuple[str, ...]:
    """How the path may be written on the disk: as it is, or with its accents apart, as macOS once wrote all names."""
    return (path,) if path.isascii() else tuple(dict.fromkeys((path, unicodedata.normalize("NFD", path))))


def _is_passed_over(names: Sequence[str]) -> bool:
    hidden = any(name.startswith(HIDDEN) and name != "." for name in names)
    return hidden or names[-1].lower().endswith(_UNFINISHED)


@lru_cache(maxsize=64)
def matcher(pattern: str) -> Callable[[str], object]:
    """Whether a path matches: ``*`` and ``?`` stand for characters of a name, ``[…]`` for one of them, ``**/`` for any
    folders or none. Case is folded: ``*.pdf`` takes ``SCAN.PDF``, too."""
    regex = ""
    place = 0
    while place < len(pattern):
        if pattern.startswith("**/", place) and (place == 0 or pattern[place - 1] == "/"):
            regex += "(?:[^/]+/)*"
            place += 3
        elif pattern[place:] == "**" and (place == 0 or pattern[place - 1] == "/"):
            regex += ".+"
            place += 2
        elif pattern[place] == "[" and (end := pattern.find("]", place + 2)) > 0 and "/" not in pattern[place:end]:
            inner = pattern[place + 1 : end].replace("\\", "\\\\")
            regex += f"[{'^' + inner[1:] if inner[0] == '!' else inner}]"
            place = end + 1
        else:
            regex += {"*": "[^/]*", "?": "[^/]"}.get(pattern[place], re.escape(pattern[place]))
            place += 1
    return re.compile(regex, re.IGNORECASE | re.DOTALL).fullmatch
