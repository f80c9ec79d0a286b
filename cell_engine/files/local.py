"""Files of this machine, opened so that nothing outside the root can be reached.

From the root's own descriptor each name is opened by itself (``openat``), links not followed: there is no moment
between a check and its use in which a folder could be swapped for a link. Checking ``realpath`` first was no way: it
says where a path led, not where the open after it leads.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from errno import EACCES, ELOOP, ENAMETOOLONG, ENODEV, ENOENT, ENOTDIR, ENXIO, EPERM
from pathlib import Path

from cell_engine.files.errors import FileError, Growing, Missing, NoFile, Outside, Unreachable

SETTLED_SECONDS = 2.0
"""So long must a file have been left alone before it is read.

By ``ctime``, which the file system's own clock sets at each write, rename and change of times, and nobody else can:
``mtime`` is whatever the program that copies says (``cp -p``, ``unzip``), at once or at the end. Two seconds are the
coarsest time stamps that there are (FAT), and more than what tools that copy pause between two writes. What pauses
longer is seen while it is read if it goes on meanwhile, and else as a changed file when it is loaded again; what is
written under another name and renamed when it is complete is never seen too early.
"""

HIDDEN = (".", "~$")
"""How names begin that are nobody's documents: hidden files and folders, and what Office leaves beside an open file."""

MOST_DEEP = 100
"""Folders in folders that are listed."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# Non-blocking: a named pipe would be waited for, before it can be seen that it is none of ours.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Stamp:
    """Two looks that see the same have seen the same content. ``modified`` is in UTC."""

    size: int
    modified: datetime
    identity: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A file opened for reading."""

    descriptor: int
    path: str

    def read(self, most: int) -> bytes:
        """At most so many bytes, at least one except at the end."""
        return os.read(self.descriptor, most)

    def stamp(self) -> Stamp:
        found = os.fstat(self.descriptor)
        modified = datetime.fromtimestamp(found.st_mtime, UTC)
        return Stamp(
            found.st_size, modified, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        )

    def check_settled(self) -> None:
        """Raises Growing while it has not been left alone for SETTLED_SECONDS."""
        age = time.time() - os.fstat(self.descriptor).st_ctime
        if age < SETTLED_SECONDS:
            why = "it has just been written to" if age >= 0 else f"it was written {-age:,.0f} s in the future"
            raise Growing(self.path, f"{why}: it is read once it is left alone", SETTLED_SECONDS - max(0.0, age))


class LocalFiles:
    """The files under ``root``, an absolute folder; itself it may be a link, or under one: that is the operator's."""

    def __init__(self, root: Path, below: Sequence[str] = ()) -> None:
        self._root = root
        self._below = tuple(below)

    @contextmanager
    def open(self, path: str, names: Sequence[str]) -> Iterator[LocalFile]:
        """The regular file of these names. Raises a FileError about ``path``."""
        with self._folder(path, names[:-1]) as folder:
            try:
                # Looked at before it is opened: to open a device may set it going.
                _check_kind(path, os.stat(names[-1], dir_fd=folder, follow_symlinks=False))
                descriptor = os.open(names[-1], _FILE, dir_fd=folder)
            except OSError as error:
                raise _explained(path, error, folder, names[-1]) from None
        try:
            _check_kind(path, os.fstat(descriptor))
            yield LocalFile(descriptor, path)
        except OSError as error:
            raise Unreachable(path, f"cannot be read: {error.strerror}") from None
        finally:
            os.close(descriptor)

    def walk(self, names: Sequence[str] = ()) -> Iterator[tuple[str, ...] | FileError]:
        """The names of every regular file in the folder of ``names``, folder by folder and in order; what is none, and
        a folder that cannot be read, as the error that it is."""
        yield from self._walk(tuple(names))

    def _walk(self, names: tuple[str, ...]) -> Iterator[tuple[str, ...] | FileError]:
        path = "/".join(names) or "."
        folders = []
        try:
            with self._folder(path, names) as folder, os.scandir(folder) as entries:
                found = sorted(
                    (
                        entry.name,
                        entry.is_symlink(),
                        entry.is_dir(follow_symlinks=False),
                        entry.is_file(follow_symlinks=False),
                    )
                    for entry in entries
                    if not entry.name.startswith(HIDDEN)
                )
        except FileError as error:
            yield error
            return
        except OSError as error:
            yield Unreachable(path, f"cannot be read: {error.strerror}")
            return
        for name, is_link, is_folder, is_file in found:
            if is_link:
                yield NoFile("/".join((*names, name)), "it is a symbolic link, which is not followed")
            elif is_folder:
                folders.append(name)
            elif is_file:
                yield (*names, name)
            else:
                yield NoFile("/".join((*names, name)), "it is no regular file")
        if folders and len(names) >= MOST_DEEP:
            yield FileError(path, f"it holds folders nested more than {MOST_DEEP} deep, which are not listed")
            return
        for name in folders:
            yield from self._walk((*names, name))

    @contextmanager
    def _folder(self, path: str, names: Sequence[str]) -> Iterator[int]:
        """A descriptor of the folder of these names."""
        try:
            descriptor = os.open(self._root, _FOLDER)
        except OSError as error:
            if error.errno in (ENOENT, ENOTDIR):
                raise Missing(path, f"the folder {self._root} is not there") from None
            raise Unreachable(path, f"the folder {self._root} cannot be opened: {error.strerror}") from None
        try:
            for name in (*self._below, *names):
                try:
                    inner = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
                except OSError as error:
                    raise _explained(path, error, descriptor, name) from None
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)


def _check_kind(path: str, found: os.stat_result) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise Outside(path, "it is a symbolic link, which is not followed")
    if not stat.S_ISREG(found.st_mode):
        raise FileError(path, "it is a folder" if stat.S_ISDIR(found.st_mode) else "it is no regular file")


def _explained(path: str, error: OSError, folder: int, name: str) -> FileError:
    """Why ``name`` could not be opened in ``folder``."""
    if error.errno in (ELOOP, ENOTDIR):
        try:
            is_link = stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        except OSError:
            is_link = error.errno == ELOOP
        if is_link:
            return Outside(path, f"{name!r} is a symbolic link, which is not followed")
        return Missing(path, "there is no such file")
    match error.errno:
        case errno if errno == ENOENT:
            return Missing(path, "there is no such file")
        case errno if errno in (EACCES, EPERM, ENAMETOOLONG, ENXIO, ENODEV):
            return FileError(path, f"cannot be opened: {error.strerror}")
    return Unreachable(path, f"cannot be opened: {error.strerror}")
