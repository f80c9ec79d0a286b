"""A file as a source of records: what it is called, the key of what it holds, and its records from any one on."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cell_engine.load.content import Content, Format, read_content
from cell_engine.load.csv_rows import csv_rows
from cell_engine.load.frame_rows import parquet_rows
from cell_engine.load.jsonl_rows import jsonl_rows
from cell_engine.load.rows import Record
from cell_engine.specs.text import clean_text
from cell_engine.specs.version import Version

_READERS: dict[Format, Callable[[Path, Version, int], Iterator[Record]]] = {
    "csv": csv_rows,
    "jsonl": jsonl_rows,
    "parquet": parquet_rows,
}
_KEY_DIGITS = 16


@dataclass(frozen=True, slots=True)
class FileSource:
    content: Content

    @property
    def name(self) -> str:
        return clean_text(self.content.path.name)

    @property
    def key(self) -> str:
        """Of its content, whatever the file is called."""
        return self.content.digest[:_KEY_DIGITS]

    def records(self, version: Version, skip: int) -> Iterator[Record]:
        """Those after the first `skip`, checked against `version`. Raises LoadError."""
        return _READERS[self.content.format](self.content.path, version, skip)


def open_file(path: Path) -> FileSource:
    """Raises LoadError for what cannot be read or is no format that is known, before anything of it is stored."""
    return FileSource(read_content(path))
