"""Files for kinds: read in threads, and what can be wrong with one as the failure of a cell."""

from __future__ import annotations

import asyncio

from cell_engine.errors import AutofillError, BadValueError
from cell_engine.files import FileContent, FileError, Growing, Missing, Place, TooLarge, Unreachable
from cell_engine.files.roots import place
from cell_engine.kinds.base import WAITING, Call, ErrorClass, Failure
from cell_engine.kinds.threads import DaemonThreads
from cell_engine.specs.text import Json
from cell_engine.specs.version import Column

THREADS = 8


class FileReader:
    """Reads what calls name, for all calls of a kind. Only columns that read one of type ``file`` have files."""

    def __init__(self) -> None:
        self._threads = DaemonThreads(THREADS)

    def check(self, column: Column) -> None:
        """Whether this process may read the files of ``column``: for `Kind.check`.

        Raises AutofillError that names the column, what is missing and what to do.
        """
        try:
            _place(column)
        except AutofillError as error:
            raise BadValueError(f"Column {column.name!r}: {error}") from None

    async def read(self, call: Call, path: Json, limit: int) -> FileContent | Failure:
        """The file that an input of ``call`` names, ``limit`` bytes at most; or why not, class ``waiting`` for one
        that is not there yet or still being written."""
        if not isinstance(path, str):
            return Failure("bad_input", f"{path!r} is no path of a file")
        try:
            source = _place(call.column)
        except AutofillError as error:
            return Failure("bad_input", str(error))
        job = self._threads.submit(lambda: source.read(path, limit))
        try:
            async with asyncio.timeout(call.deadline):
                found, raised = await job.done
        except TimeoutError:
            return Failure("transient", f"{path}: reading took longer than {call.deadline:g} s")
        if raised is None:
            assert isinstance(found, FileContent)
            return found
        if isinstance(raised, FileError):
            return failure(raised)
        raise raised

    def close(self) -> None:
        self._threads.close()


def failure(error: FileError) -> Failure:
    """What a file's error is for the cell that reads it."""
    retry_after = error.retry_after if isinstance(error, Growing) else None
    return Failure(_class(error), str(error), retry_after)


def _class(error: FileError) -> ErrorClass:
    if isinstance(error, Missing | Growing):
        return WAITING
    if isinstance(error, Unreachable):
        return "transient"
    return "too_long" if isinstance(error, TooLarge) else "bad_input"


def _place(column: Column) -> Place:
    if column.files is None:
        raise BadValueError(f"column {column.name!r} reads no column of type file")
    return place(column.files.root)
