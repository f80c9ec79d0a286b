"""A sheet of an .xlsx into records: the first row that holds anything are the names of columns, as in a CSV.

A formula is what it came to when the workbook was saved. A cell keeps its type: a number is a number, a date a date;
text in a column of numbers is read as in a CSV, and a number in a column of text only where it is shown as it is stored
("0870" may be the number 870 in a format of its own). Merged cells are refused: one of them has the value, and which
rows are meant is not said.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from lxml import etree

from cell_engine.errors import BadValueError
from cell_engine.kinds.documents import xlsx
from cell_engine.kinds.documents.document import DocumentError, Limits
from cell_engine.kinds.documents.office import Package, attribute, local_name
from cell_engine.kinds.documents.sniffing import XLSX
from cell_engine.load.errors import LoadError
from cell_engine.load.rows import Record, match_columns, record, rejection, told_of
from cell_engine.specs.text import Json, shorten
from cell_engine.specs.version import Column, Version

_LIMITS = Limits(unpacked=400_000_000)
_MERGED = re.compile(rb'<(?:\w+:)?mergeCell\s[^>]*?ref="([A-Z0-9:]{1,20})"')
_SHOWN = 5
_PLAIN_FORMATS = frozenset({0, 1, 49})  # General, 0 and text
_MILLISECOND = timedelta(milliseconds=1)


class _Cell(NamedTuple):
    """`value`: text, number, truth value, date or datetime; None with the `fault` that makes it unreadable. `plain`: a
    number is shown as it is stored."""

    value: object
    fault: str = ""
    plain: bool = True


class _Row(NamedTuple):
    number: int
    cells: dict[int, _Cell]


def excel_rows(path: Path, version: Version, skip: int, sheet: str | None) -> Iterator[Record]:
    """The records after the first `skip`, numbered as Excel does. Memory: the sheet's XML.

    Raises LoadError about the workbook, for several sheets of which none is named, and about its header.
    """
    try:
        yield from islice(_records(path, version, sheet), skip, None)
    except DocumentError as error:
        raise LoadError(f"{path}: {error}") from None


def _records(path: Path, version: Version, sheet: str | None) -> Iterator[Record]:
    package = Package(path.read_bytes(), _LIMITS)
    if package.media_type != XLSX:
        raise LoadError(f"{path}: it is named .xlsx, and is none")
    workbook = _Workbook(package)
    name, part = workbook.choose(path, sheet)
    xml = package.content(part) or b""
    where = f"{path}, sheet {shorten(name)}"
    merged = [found.decode() for found in _MERGED.findall(xml)]
    if merged:
        more = f" and {len(merged) - _SHOWN:,} more" if len(merged) > _SHOWN else ""
        raise LoadError(
            f"{where}: cells are merged ({', '.join(merged[:_SHOWN])}{more}): only the first of them has the value. "
            "Unmerge them, and fill what is empty"
        )
    rows = workbook.rows(xml, part)
    header = next(rows, None)
    if header is None:
        raise LoadError(f"{where}: it is empty; its first row are the names of columns")
    width = max(header.cells) + 1
    names = [_name(header.cells.get(place)) for place in range(width)]
    columns = match_columns(names, version, f"{where}, row {header.number}")
    for row in rows:
        yield _record(row, columns)


def _record(row: _Row, columns: list[Column]) -> Record:
    beyond = [place for place in row.cells if place >= len(columns)]
    if beyond:
        return rejection(row.number, f"there is a value in column {_letters(min(beyond))}, which has no name")
    found: dict[int, Json] = {}
    faults: list[str] = []
    missing: list[int] = []
    for place, column in enumerate(columns):
        cell = row.cells.get(place)
        if cell is None:
            missing.append(column.id)
            continue
        try:
            found[column.id] = _accepted(column, cell)
        except BadValueError as error:
            faults.append(f"column {column.name!r}: {error}")
    return record(row.number, found, faults, missing, partial(_told, row, columns))


def _accepted(column: Column, cell: _Cell) -> Json:
    value = cell.value
    if cell.fault:
        raise BadValueError(cell.fault)
    if column.type.name == "text" and not isinstance(value, str):
        if isinstance(value, date):
            return value.isoformat()
        if not cell.plain or isinstance(value, bool):
            raise BadValueError(f"it is the number {value}, and shown otherwise: make it text in the workbook")
        return str(value)
    if isinstance(value, str):
        return column.type.parse(value)
    if column.type.name == "datetime" and isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    return column.type.accept(value)


def _told(row: _Row, columns: list[Column]) -> tuple[str, dict[int, str]]:
    return told_of((column, row.cells[place].value) for place, column in enumerate(columns) if place in row.cells)


def _name(cell: _Cell | None) -> str:
    return "" if cell is None or cell.value is None else str(cell.value)


def _letters(place: int) -> str:
    letters = ""
    place += 1
    while place:
        place, rest = divmod(place - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters


@dataclass(frozen=True)
class _Sheet:
    name: str
    part: str
    is_hidden: bool


class _Workbook:
    """What is said once for all sheets: their names, the texts, and which styles are dates."""

    def __init__(self, package: Package) -> None:
        self._main = package.part(package.main)
        relations = package.relations(package.main)
        parts = {kind: path for kind, path in relations.values() if kind in ("sharedStrings", "styles")}
        self.sheets: list[_Sheet] = []
        for sheet in xlsx.named(self._main, "sheet"):
            kind, part = relations.get(attribute(sheet, "id") or "", ("", ""))
            if kind == "worksheet":
                hidden = sheet.get("state", "visible") != "visible"
                self.sheets.append(_Sheet(sheet.get("name") or "", part, hidden))
        self._strings = [xlsx.string(item) for item in _elements(package.content(parts.get("sharedStrings", "")), "si")]
        styles = package.part(parts.get("styles", ""))
        self._dated = xlsx.dated(styles)
        self._formats = _formats(styles)
        self._epoch = xlsx.epoch(self._main)

    def choose(self, path: Path, wanted: str | None) -> tuple[str, str]:
        """The name and the part of the sheet to read. Raises LoadError."""
        shown = [sheet for sheet in self.sheets if not sheet.is_hidden]
        names = ", ".join(shorten(sheet.name) + (" (hidden)" if sheet.is_hidden else "") for sheet in self.sheets)
        if wanted is not None:
            for sheet in self.sheets:
                if sheet.name == wanted:
                    return sheet.name, sheet.part
            raise LoadError(f"{path}: it has no sheet {shorten(wanted)}; there are: {names}")
        if len(shown) != 1:
            raise LoadError(f"{path}: name one of its sheets (--sheet); there are: {names or 'none'}")
        return shown[0].name, shown[0].part

    def rows(self, xml: bytes, part: str) -> Iterator[_Row]:
        """Rows that hold anything."""
        number = 0
        for element in _elements(xml, "row", part):
            said = element.get("r")
            number = int(said) if said and said.isdigit() else number + 1
            cells: dict[int, _Cell] = {}
            for place, cell in enumerate(child for child in element if local_name(child) == "c"):
                read = self._cell(cell)
                if read is not None:
                    cells[xlsx.column(cell.get("r"), place)] = read
            if cells:
                yield _Row(number, cells)

    def _cell(self, cell: Any) -> _Cell | None:
        kind = cell.get("t", "n")
        raw = next((child.text for child in cell if local_name(child) == "v"), None)
        try:
            if kind == "inlineStr":
                text = "".join(map(xlsx.string, xlsx.named(cell, "is")))
                return _Cell(text) if text else None
            if kind == "s" and raw:
                text = self._strings[int(raw)]
                return _Cell(text) if text else None
            if not raw:
                if any(local_name(child) == "f" for child in cell):
                    if kind == "str":
                        return None
                    fault = f"the formula in {cell.get('r', '?')} was never worked out: open and save it in Excel"
                    return _Cell(None, fault)
                return None
            if kind == "e":
                return _Cell(raw, f"the cell {cell.get('r', '?')} is the error {raw}")
            if kind in ("str", "d"):
                return _Cell(raw)
            if kind == "b":
                return _Cell(int(raw) != 0)
            return self._number(cell, float(raw))
        except (ValueError, IndexError, OverflowError):
            raise DocumentError(f"It is damaged: the cell {cell.get('r', '?')} holds {raw!r}.") from None

    def _number(self, cell: Any, number: float) -> _Cell:
        style = int(cell.get("s", 0))
        if style < len(self._dated) and self._dated[style]:
            if number < 1:
                return _Cell(None, "it is a time without a date")
            # Excel counts a 29 February 1900, which there was not.
            days = number + (1 if number < 60 and self._epoch.year == 1899 else 0)
            try:
                moment = self._epoch + round(timedelta(days=days) / _MILLISECOND) * _MILLISECOND
            except (OverflowError, ValueError):
                return _Cell(None, f"the number {number:g}, which is to be a date, is beyond any")
            return _Cell(moment.date() if moment.time() == datetime.min.time() else moment)
        plain = style >= len(self._formats) or self._formats[style] in _PLAIN_FORMATS
        return _Cell(int(number) if number.is_integer() and abs(number) < 2**53 else number, plain=plain)


def _formats(styles: Any) -> list[int]:
    """The number format of each style."""
    if styles is None:
        return []
    tables = (table for table in xlsx.named(styles, "cellXfs"))
    return [int(one.get("numFmtId") or 0) for table in tables for one in table if local_name(one) == "xf"]


def _elements(xml: bytes | None, name: str, part: str = "a part") -> Iterator[Any]:
    """The elements of that name, one after the other; each is gone when the next one is asked for."""
    if not xml:
        return
    if b"<!DOCTYPE" in xml[: xml.find(f"{name}".encode()) + 1]:
        raise DocumentError(f"{part} declares entities, as no workbook does: it is not read.")
    parsing = etree.iterparse(
        BytesIO(xml), tag=f"{{*}}{name}", resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False
    )
    try:
        for _, element in parsing:
            yield element
            element.clear()
            while element.getprevious() is not None:
                del element.getparent()[0]
    except etree.XMLSyntaxError as error:
        raise DocumentError(f"It is damaged: {part} is no XML ({error.msg}).") from None
