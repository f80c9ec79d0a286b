"""What can be wrong with one file. Each names the file; none of them is about another one."""

from typing import ClassVar

from cell_engine.errors import AutofillError


class FileError(AutofillError):
    """``path`` is as it was asked for. Of this class itself: it is there and cannot be read, now or later."""

    exit_code: ClassVar[int] = 2

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(f"{path}: {why}")


class Missing(FileError):
    """It is not there, or not yet."""


class Growing(FileError):
    """It may still be written to. Worth another look after ``retry_after`` seconds."""

    def __init__(self, path: str, why: str, retry_after: float) -> None:
        super().__init__(path, why)
        self.retry_after = retry_after


class Outside(FileError):
    """The path leads out of its place, or may: a symbolic link is never followed."""


class NoFile(FileError):
    """What is listed under this name is none: a link, a pipe, a device."""


class TooLarge(FileError):
    """It has more bytes than ``limit``; nothing of it is given."""

    def __init__(self, path: str, size: int, limit: int) -> None:
        self.size = size
        self.limit = limit
        super().__init__(path, f"{size:,} bytes, and {limit:,} are allowed")


class Unreachable(FileError):
    """The disk or the store behind it failed; the next try may come through."""
