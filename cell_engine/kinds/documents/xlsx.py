"""XLSX: each sheet a page, its name first, then its rows with a tab between cells.

Values as they are stored, what formulas came to when the file was saved; dates in ISO 8601. How a number is displayed
(a currency, a percentage) is not there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from cell_engine.kinds.documents.document import Document, DocumentError, Limits, Pages
from cell_engine.kinds.documents.office import Package, attribute, local_name

_MOST_COLUMNS = 16_384
_REFERENCE = re.compile(r"([A-Z]{1,3})[0-9]+")
_DATE_FORMATS = frozenset({*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)})  # those built in
_LITERAL = re.compile(r'"[^"]*"|\\.|_.|\*.|\[(?![hms]+\])[^\]]*\]', re.IGNORECASE)
_DATE_LETTERS = re.compile("[dyhs]|m", re.IGNORECASE)
_MILLISECOND = timedelta(milliseconds=1)


def read(package: Package, limits: Limits) -> Document:
    """Raises DocumentError for a part that is damaged or beyond the limits, and for a workbook that is all empty."""
    pages = Pages(limits, "sheets")
    workbook = package.part(package.main)
    relations = package.relations(package.main)
    parts = {kind: path for kind, path in relations.values() if kind in ("sharedStrings", "styles")}
    values = _Values(
        _strings(package.part(parts.get("sharedStrings", ""))),
        dated(package.part(parts.get("styles", ""))),
        epoch(workbook),
    )
    is_empty = True
    for sheet in named(workbook, "sheet"):
        kind, path = relations.get(attribute(sheet, "id") or "", ("", ""))
        root = package.part(path) if kind == "worksheet" else None
        if root is None:
            continue  # a sheet that is a chart
        lines = [sheet.get("name") or ""]
        for line in _rows(root, values):
            pages.count(len(line) + 1)
            lines.append(line)
        is_empty = is_empty and len(lines) == 1
        pages.add("\n".join(lines))
    if is_empty:
        raise DocumentError("It is a workbook without a single value.")
    return Document(pages.texts, package.media_type, package.metadata())


class _Values:
    """Cells to text."""

    def __init__(self, strings: list[str], dated: list[bool], epoch: datetime) -> None:
        self._strings = strings
        self._dated = dated
        self._epoch = epoch

    def text(self, cell: Any) -> str:
        kind = cell.get("t", "n")
        if kind == "inlineStr":
            return "".join(map(string, named(cell, "is")))
        raw = next((child.text or "" for child in cell if local_name(child) == "v"), "")
        if not raw or kind in ("str", "e", "d"):
            return raw
        try:
            if kind == "s":
                return self._strings[int(raw)]
            if kind == "b":
                return "TRUE" if int(raw) else "FALSE"
            number = float(raw)
            style = int(cell.get("s", 0))
            if style < len(self._dated) and self._dated[style]:
                return self._date(number) or format(number, ".15g")
            return format(number, ".15g")  # as many digits as Excel keeps
        except (ValueError, IndexError, OverflowError):
            raise DocumentError(f"It is damaged: the cell {cell.get('r', '?')} holds {raw[:40]!r}.") from None

    def _date(self, serial: float) -> str | None:
        """None for a number that is beyond any date: it says no more than itself, and Excel shows nothing of it."""
        # Excel counts a 29 February 1900, which there was not.
        days = serial + (1 if serial < 60 and self._epoch.year == 1899 else 0)
        try:
            moment = self._epoch + round(timedelta(days=days) / _MILLISECOND) * _MILLISECOND
        except (OverflowError, ValueError):
            return None
        if serial < 1:
            return moment.time().isoformat()
        return moment.date().isoformat() if moment.time() == datetime.min.time() else moment.isoformat(sep=" ")


def _rows(root: Any, values: _Values) -> Iterator[str]:
    """Rows that have a value; a cell stands in its column, as many tabs into the line."""
    for row in named(root, "row"):
        cells: dict[int, str] = {}
        for place, cell in enumerate(child for child in row if local_name(child) == "c"):
            text = " ".join(values.text(cell).split())
            if text:
                cells[column(cell.get("r"), place)] = text
        if cells:
            yield "\t".join(cells.get(place, "") for place in range(max(cells) + 1))


def column(reference: str | None, place: int) -> int:
    """From 0; ``place`` for a cell that does not say where it is."""
    found = _REFERENCE.fullmatch(reference or "")
    if not found:
        return place
    column = 0
    for letter in found[1]:
        column = column * 26 + ord(letter) - ord("A") + 1
    return min(column, _MOST_COLUMNS) - 1


def _strings(root: Any) -> list[str]:
    return [] if root is None else [string(item) for item in root if local_name(item) == "si"]


def string(item: Any) -> str:
    """Its runs, without how it is pronounced."""
    return "".join(
        text.text or ""
        for text in item.iter()
        if local_name(text) == "t" and not any(local_name(above) == "rPh" for above in text.iterancestors())
    )


def dated(root: Any) -> list[bool]:
    """By the number of a cell's style, whether it shows a date or a time."""
    if root is None:
        return []
    formats = {one.get("numFmtId"): one.get("formatCode") or "" for one in named(root, "numFmt")}
    styles = (one for table in named(root, "cellXfs") for one in table if local_name(one) == "xf")
    return [_is_date(style.get("numFmtId", "0"), formats) for style in styles]


def _is_date(number: str, formats: dict[str | None, str]) -> bool:
    if number in formats:
        return _DATE_LETTERS.search(_LITERAL.sub("", formats[number].partition(";")[0])) is not None
    return number.isdigit() and int(number) in _DATE_FORMATS


def epoch(workbook: Any) -> datetime:
    since_1904 = any(one.get("date1904") in ("1", "true") for one in named(workbook, "workbookPr"))
    return datetime(1904, 1, 1) if since_1904 else datetime(1899, 12, 30)


def named(root: Any, name: str) -> Iterator[Any]:
    return (element for element in root.iter() if local_name(element) == name)
