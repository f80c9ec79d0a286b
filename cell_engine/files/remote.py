"""Files of an object store, through fsspec and the package that knows the store.

An object appears whole, when its upload has ended: there is nothing to wait for. There are no links either, and ``..``
is a name like others, which no path may hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, BinaryIO, cast

import fsspec

from cell_engine.errors import BadValueError
from cell_engine.files.errors import FileError, Missing, Unreachable
from cell_engine.files.local import Stamp
from cell_engine.log import redact_text

PACKAGES: Mapping[str, str] = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}
"""The package that each scheme needs."""

_BUILT_IN = frozenset({"memory"})
_TIMES = ("LastModified", "last_modified", "mtime", "updated", "modified", "created")
_MARKS = ("ETag", "etag", "md5Hash", "generation", "VersionId", "version_id")


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """An object opened for reading."""

    file: BinaryIO
    system: Any
    key: str

    def read(self, most: int) -> bytes:
        return self.file.read(most)

    def stamp(self) -> Stamp:
        info = self.system.info(self.key)
        modified = next((info[name] for name in _TIMES if info.get(name) is not None), None)
        size = int(info["size"])
        return Stamp(size, _time(modified), (size, str(modified), *(str(info.get(mark)) for mark in _MARKS)))

    def check_settled(self) -> None:
        """It is complete, or it would not be there."""


class RemoteFiles:
    """The objects under ``root``, a URL of fsspec.

    Raises BadValueError for a scheme that is not known, and one whose package is not installed.
    """

    def __init__(self, root: str, below: Sequence[str] = ()) -> None:
        scheme = root.partition("://")[0]
        if "::" in root or (scheme not in PACKAGES and scheme not in _BUILT_IN):
            raise BadValueError(f"files in {root!r}: a folder is needed, or a URL of {', '.join(PACKAGES)}")
        try:
            # Fresh listings: one that is kept would hide what has come since.
            self._system = fsspec.filesystem(scheme, use_listings_cache=False, skip_instance_cache=True)
        except ImportError:
            package = PACKAGES[scheme]
            raise BadValueError(
                f"files in {root!r} need the package {package}: install it beside this program (pip install {package})"
            ) from None
        self._root = "/".join((self._system._strip_protocol(root).rstrip("/"), *below))

    @contextmanager
    def open(self, path: str, names: Sequence[str]) -> Iterator[RemoteFile]:
        """The object of these names. Raises a FileError about ``path``."""
        key = "/".join((self._root, *names))
        try:
            if self._system.info(key)["type"] != "file":
                raise FileError(path, "it is a folder")
            with self._system.open(key, "rb") as file:
                yield RemoteFile(cast(BinaryIO, file), self._system, key)
        except FileError:
            raise
        except FileNotFoundError:
            raise Missing(path, "there is no such file") from None
        except PermissionError as error:
            raise FileError(path, f"cannot be opened: {redact_text(str(error))}") from None
        except Exception as error:  # noqa: BLE001 (each store has its own)
            raise Unreachable(path, f"cannot be read: {redact_text(f'{type(error).__name__}: {error}')}") from None

    def walk(self, names: Sequence[str] = ()) -> Iterator[tuple[str, ...] | FileError]:
        """The names of every object in the folder of ``names``, folder by folder and in order."""
        prefix = len(self._root) + 1
        try:
            for folder, folders, files in self._system.walk("/".join((self._root, *names)), on_error="raise"):
                folders.sort()
                below = folder[prefix:]
                for name in sorted(files):
                    yield (*(below.split("/") if below else ()), name)
        except FileNotFoundError:
            yield Missing(".", f"the folder {self._root} is not there")
        except Exception as error:  # noqa: BLE001
            yield Unreachable(".", f"cannot be listed: {redact_text(f'{type(error).__name__}: {error}')}")


def _time(value: object) -> datetime:
    """What stores give as a time, in UTC; one that gives none has made everything in 1970."""
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC)
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            value = None
    if not isinstance(value, datetime):
        return datetime.fromtimestamp(0, UTC)
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
