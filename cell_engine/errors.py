"""What can go wrong that a person should read: each message says what, where, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar


class AutofillError(Exception):
    """Base of every error meant for people: the CLI prints the message, no traceback, and exits with `exit_code`."""

    exit_code: ClassVar[int] = 1


class NotFoundError(AutofillError):
    """Something named by the caller (a collection, column, row, function...) does not exist."""

    exit_code = 2


class BadValueError(AutofillError):
    """A value that its column, option or setting cannot hold."""

    exit_code = 2


class AdmissionError(AutofillError):
    """More was asked for than a limit allows for now; nothing of it was taken in. `limit` is its name (as
    `autofill limits` has it), `value` what it is, `seconds` after which it is worth trying again."""

    exit_code = 6

    def __init__(self, message: str, *, limit: str, value: int, seconds: float) -> None:
        self.limit = limit
        self.value = value
        self.seconds = seconds
        super().__init__(message)


class SchemaVersionError(AutofillError):
    """The database schema is older or newer than this process can work with."""

    exit_code = 3


class UnreachableError(AutofillError):
    """The database cannot be reached."""

    exit_code = 4


@dataclass(frozen=True, order=True)
class Problem:
    """One mistake in a collection's file; `line` counts from 1."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


class SpecError(AutofillError):
    """A collection's definition is wrong; holds all of its problems, not only the first."""

    exit_code = 2

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: list[Problem] = list(problems)
        super().__init__("\n".join(map(str, self.problems)))
