"""PDF, by PDFium: the text layer of each page, with what is filled into forms."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Any

import pypdfium2
from pypdfium2 import raw

from cell_engine.kinds.documents.document import Document, DocumentError, Limits, Pages, shortened
from cell_engine.kinds.documents.sniffing import PDF

_TAIL = 4096
_FIELDS = {"Title": "title", "Author": "author", "CreationDate": "created", "ModDate": "modified"}
_DATES = ("created", "modified")
_DATE = re.compile(r"(?:D:)?(\d{4})(\d{2})?(\d{2})?(\d{2})?(\d{2})?(\d{2})?(?:Z|([-+])(\d{2})'?(\d{2})?)?")
_HYPHEN = "\ufffe"  # what PDFium gives for one that breaks a word at the end of a line
_NAMED = 20


def read(data: bytes, limits: Limits) -> Document:
    """Raises DocumentError for one that needs a password, is cut off or damaged, or has no text on any page."""
    if b"%%EOF" not in data[-_TAIL:] and b"startxref" not in data[-_TAIL:]:
        raise DocumentError("It is cut off: a PDF ends with %%EOF.")
    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if getattr(error, "err_code", None) == raw.FPDF_ERR_PASSWORD:
            raise DocumentError("It is encrypted: it cannot be opened without its password. Save it without.") from None
        raise DocumentError(f"It is a damaged PDF: {error}") from None
    pages = Pages(limits)
    pages.expect(len(document))
    if not len(document):
        raise DocumentError("It is a PDF without pages.")
    if document.get_formtype() != raw.FORMTYPE_NONE:
        document.init_forms()
    for number in range(len(document)):
        pages.add(_text(document, number, pages))
    blank = [number for number, text in enumerate(pages.texts, 1) if not text.strip()]
    if len(blank) == len(pages.texts):
        raise DocumentError(
            f"None of its pages ({len(blank):,}) has a text layer: it is scanned, it seems. Have its text recognised "
            "(OCR) first."
        )
    remarks = {}
    if blank:
        more = f" and {len(blank) - _NAMED:,} more" if len(blank) > _NAMED else ""
        remarks["pages_without_text"] = ", ".join(map(str, blank[:_NAMED])) + more
    return Document(pages.texts, PDF, _metadata(document), remarks)


def _text(document: Any, number: int, pages: Pages) -> str:
    try:
        page = document[number]
        if raw.FPDFPage_GetAnnotCount(page):
            # Fields and annotations lie above the page: only what is part of it is in its text layer.
            page.flatten()
            page.close()
            page = document[number]
        layer = page.get_textpage()
        pages.count(layer.count_chars())
        text = str(layer.get_text_range()).replace(_HYPHEN, "-")
        layer.close()
        page.close()
    except pypdfium2.PdfiumError as error:
        raise DocumentError(f"It is a damaged PDF: page {number + 1:,} cannot be read ({error}).") from None
    return text


def _metadata(document: Any) -> dict[str, str]:
    found = {}
    for key, name in _FIELDS.items():
        value = shortened(document.get_metadata_value(key))
        if name in _DATES:
            value = _date(value)
        if value:
            found[name] = value
    return found


def _date(value: str) -> str:
    """``D:20260131120000+01'00'`` in ISO 8601; as it stands if it is no such date."""
    found = _DATE.match(value)
    if not found:
        return value
    year, *rest = (int(part) if part else None for part in found.groups()[:6])
    month, day, hour, minute, second = (
        part if part is not None else least for part, least in zip(rest, (1, 1, 0, 0, 0), strict=True)
    )
    offset = timedelta(hours=int(found[8] or 0), minutes=int(found[9] or 0))
    try:
        zone = timezone(-offset if found[7] == "-" else offset)
        return datetime(year or 0, month, day, hour, minute, second, tzinfo=zone).isoformat()
    except ValueError:
        return value
