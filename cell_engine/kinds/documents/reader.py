"""How a document is read, in the processes of `cell_engine.kinds.parsers`, and by whoever calls it with bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from cell_engine.kinds.documents import docx, pdf, plain, sniffing, xlsx
from cell_engine.kinds.documents.document import PAGE_BREAK, Document, DocumentError, Limits, Pages, shortened
from cell_engine.kinds.documents.office import Package
from cell_engine.kinds.web.charsets import declared_in, decoded
from cell_engine.kinds.web.failing import FetchError
from cell_engine.specs.text import clean_text


def read(head: Mapping[str, Any], body: bytes) -> dict[str, Any]:
    """A Document as JSON; or ``refused``, why there is none, and its ``class``. Of ``head``: name, charset."""
    try:
        return asdict(read_document(head["name"], body, charset=head["charset"]))
    except DocumentError as error:
        return {"refused": str(error), "class": error.error_class}


def read_document(name: str, data: bytes, limits: Limits | None = None, *, charset: str | None = None) -> Document:
    """What the file of this name says.

    It is read as what its content is; where its name says something else, a remark tells. ``charset`` is that of text
    files that are not UTF-8; without one it is detected, or refused. Raises DocumentError for what is empty, encrypted,
    damaged, without text, of a kind that is not read here, or beyond the limits: never for a part of it.
    """
    limits = limits or Limits()
    found = sniffing.sniffed(name, data)
    match found:
        case sniffing.PDF:
            document = pdf.read(data, limits)
        case sniffing.ZIP:
            package = Package(data, limits)
            document = (docx if package.media_type == sniffing.DOCX else xlsx).read(package, limits)
        case _:
            document = _text(data, found, limits, charset)
    pages = [clean_text(page) for page in document.pages]
    if not any(page.strip() for page in pages):
        raise DocumentError(f"It has no text: a {sniffing.NAMES[document.media_type]} file without a word.")
    remarks = dict(document.remarks)
    claimed = sniffing.named(name)
    if claimed is not None and claimed != document.media_type:
        remarks["mismatch"] = (
            f"its name says {sniffing.NAMES[claimed]}, its content is {sniffing.NAMES[document.media_type]}"
        )
    metadata = {field: clean_text(value) for field, value in document.metadata.items()}
    return Document(pages, document.media_type, metadata, remarks)


def _text(data: bytes, media_type: str, limits: Limits, charset: str | None) -> Document:
    metadata = {}
    if media_type == sniffing.HTML:
        text, read_as, title = _html(data, charset)
        if title:
            metadata["title"] = shortened(title)
    else:
        text, read_as = plain.decoded(data, charset)
    pages = Pages(limits)
    # A form feed is how text files have pages, too.
    parts = text.split(PAGE_BREAK) if media_type == sniffing.TEXT else [text]
    for page in parts:
        pages.count(len(page))
        pages.add(page)
    remarks = {"charset": read_as} if read_as != "utf-8" else {}
    return Document(pages.texts, media_type, metadata, remarks)


def _html(data: bytes, charset: str | None) -> tuple[str, str, str | None]:
    """As pages of the web are read: the main text, and all there is if none is found."""
    from cell_engine.kinds.web.reader import text_of_html

    try:
        html, read_as = decoded(data, None if declared_in(data) else charset, is_html=True)
    except FetchError as error:
        raise DocumentError(error.failure.message) from None
    text, title = text_of_html(html)
    return text, read_as, title
