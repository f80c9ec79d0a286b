"""A file as a source of records: what it is called, the key of what it holds, and its records from any one on."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cell_engine.load.content import Content, read_content
from cell_engine.load.csv_rows import csv_rows
from cell_engine.load.errors import LoadError
from cell_engine.load.excel_rows import excel_rows
from cell_engine.load.frame_rows import parquet_rows
from cell_engine.load.jsonl_rows import jsonl_rows
from cell_engine.load.rows import Record
from cell_engine.specs.text import clean_text
from cell_engine.specs.version import Version

_KEY_DIGITS = 16


@dataclass(frozen=True, slots=True)
class ReadAs:
    """What a person says of a file that it does not say itself: the encoding of a text, the sheet of a workbook."""

    encoding: str | None = None
    sheet: str | None = None


AS_IT_SAYS = ReadAs()


@dataclass(frozen=True, slots=True)
class FileSource:
    content: Content
    sheet: str | None

    @property
    def name(self) -> str:
        return clean_text(self.content.path.name)

    @property
    def key(self) -> str:
        """Of its content, whatever the file is called."""
        return self.content.digest[:_KEY_DIGITS] + ("" if self.sheet is None else f"-{clean_text(self.sheet)}")

    def records(self, version: Version, skip: int) -> Iterator[Record]:
        """Those after the first `skip`, checked against `version`. Raises LoadError."""
        match self.content.format:
            case "csv":
                return csv_rows(self.content, version, skip)
            case "jsonl":
                return jsonl_rows(self.content, version, skip)
            case "parquet":
                return parquet_rows(self.content.path, version, skip)
            case "xlsx":
                return excel_rows(self.content.path, version, skip, self.sheet)


def open_file(path: Path, how: ReadAs = AS_IT_SAYS) -> FileSource:
    """Raises LoadError for what cannot be read or is no format that is known, before anything of it is stored."""
    content = read_content(path, how.encoding)
    if how.sheet is not None and content.format != "xlsx":
        raise LoadError(f"{path}: it has no sheets: it is no .xlsx")
    if how.encoding is not None and content.format not in ("csv", "jsonl"):
        raise LoadError(f"{path}: it takes no --encoding: it is {content.format}, which says that itself")
    return FileSource(content, how.sheet)
