"""The ``extract`` kind: the text of a file by page, and what the file says of itself."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, cast

from cell_engine.errors import BadValueError
from cell_engine.files import FileContent
from cell_engine.kinds.base import Answer, Call, ErrorClass, Failure, Outcome, Previous
from cell_engine.kinds.documents.document import PAGE_BREAK
from cell_engine.kinds.files import FileReader
from cell_engine.kinds.parsers import Parsers, ParsingError
from cell_engine.specs.text import Json
from cell_engine.specs.version import Column

MOST_BYTES = 50_000_000
"""Of a file, unless the column says otherwise."""

_READER = "cell_engine.kinds.documents.reader"
_VERSION = "1"
"""Of our own readers: another one reads every file anew."""

_LIBRARIES = ("charset-normalizer", "lxml", "pypdfium2", "trafilatura")


class ExtractKind:
    """Documents out of files, read in processes of their own: two for all calls of a worker."""

    name = "extract"

    def __init__(self) -> None:
        self._files = FileReader()
        self._parsers = Parsers(_READER, "file")

    def check(self, column: Column) -> None:
        """Raises AutofillError if this process may not read the files of ``column``."""
        self._files.check(column)

    def at_once(self, call: Call) -> None:
        """Never: a file is read and parsed elsewhere."""

    def provider(self, column: Column) -> None:
        """Nobody's limits but the worker's own."""

    async def compute(self, call: Call) -> Outcome:
        """Read the file, and parse it unless it is the one that the last answer was made of.

        ``call.deadline`` bounds the parsing; a wait for a process that parses is no part of it.
        """
        (path,) = call.inputs.values()
        settings = cast(Mapping[str, Any], call.column.settings)
        file = await self._files.read(call, path, settings.get("max_bytes") or MOST_BYTES)
        if isinstance(file, Failure):
            return file
        details: dict[str, Json] = {
            "path": file.path,
            "sha256": file.digest,
            "bytes": file.size,
            "modified": file.modified.isoformat(timespec="seconds"),
            "recipe": _recipe(call.column),
        }
        if _is_the_same(call.previous, details, file):
            assert call.previous is not None
            return Answer(call.previous.value, details={**call.previous.details, **details})
        try:
            read = await self._parsers.ask(
                {"name": file.name, "charset": settings.get("charset")}, file.data, call.deadline
            )
        except ParsingError as error:
            return error.failure
        if "refused" in read:
            error_class: ErrorClass = "too_long" if read.get("class") == "too_long" else "bad_input"
            return Failure(error_class, f"{file.path}: {read['refused']}")
        details |= {"media_type": read["media_type"], "page_count": len(read["pages"]), "metadata": read["metadata"]}
        details |= read["remarks"]
        try:
            return Answer(call.column.type.accept(_value(call.column, read)), details=details)
        except BadValueError as error:
            return Failure("schema", f"{file.path}: its text does not fit: {error}")

    async def close(self) -> None:
        """End the processes; nothing waits for threads that still read."""
        self._files.close()
        await self._parsers.close()


def _value(column: Column, read: Mapping[str, Any]) -> Json:
    """The pages, apart by form feeds; a json column has them one by one, too."""
    pages: list[Json] = read["pages"]
    text = PAGE_BREAK.join(cast(list[str], pages))
    if column.type.name == "text":
        return text
    return {"text": text, "pages": pages, "page_count": len(pages), "metadata": read["metadata"]}


@lru_cache(maxsize=256)
def _recipe_of(column_hash: bytes) -> str:
    versions = ":".join(importlib.metadata.version(library) for library in _LIBRARIES)
    return blake2b(column_hash + f"{_VERSION}:{versions}".encode(), digest_size=8).hexdigest()


def _recipe(column: Column) -> str:
    """What makes a value of a file, beside the file: under another one it is read again, changed or not."""
    return _recipe_of(column.hash)


def _is_the_same(previous: Previous | None, details: Mapping[str, Json], file: FileContent) -> bool:
    """Whether the last answer was made of this very content, in this very way. A name decides what a text file is."""
    if previous is None or previous.value is None:
        return False
    before = str(previous.details.get("path", "")).rpartition("/")[2]
    same = all(previous.details.get(name) == details[name] for name in ("sha256", "recipe"))
    return same and before == file.name
