"""A file that appears under its name when it is whole, and not at all where writing it fails."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cell_engine.errors import BadValueError


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to, renamed to it at the end. What was there keeps its mode; a new file has the
    umask's. A link is followed. Raises BadValueError for what is no file, OSError as the system does."""
    target = path.resolve()
    if target.exists() and not target.is_file():
        raise BadValueError(f"{path} is no file: name one to write to")
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))  # what the umask takes off it takes off
    try:
        if target.exists():
            partial.chmod(target.stat().st_mode & 0o777)
        yield partial
        _sync(partial)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
