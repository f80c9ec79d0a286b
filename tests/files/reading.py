"""A kind that gives a file's text: for tests of what waits, until one reads files in earnest."""

from __future__ import annotations

from typing import ClassVar

from cell_engine.kinds.base import Answer, Call, Failure, Outcome
from cell_engine.kinds.files import FileReader
from cell_engine.specs.settings_models import KindSettings
from cell_engine.specs.version import Column


class ReadingSettings(KindSettings):
    reads_one = "its file"


class ReadingKind:
    name = "reading"
    looks: ClassVar[list[str]] = []

    def __init__(self) -> None:
        self._reader = FileReader()

    def check(self, column: Column) -> None:
        self._reader.check(column)

    def at_once(self, call: Call) -> None:
        return None

    def provider(self, column: Column) -> None:
        return None

    async def compute(self, call: Call) -> Outcome:
        (path,) = call.inputs.values()
        self.looks.append(str(path))
        found = await self._reader.read(call, path, 1000)
        return found if isinstance(found, Failure) else Answer(found.data.decode())

    async def close(self) -> None:
        self._reader.close()
