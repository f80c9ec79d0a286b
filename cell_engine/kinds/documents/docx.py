"""DOCX: paragraphs and tables in the order they are read in, with headers, footers and notes.

Pages are those of Word's own breaks: set by the author, or left where Word last laid the text out. A document that no
such break was saved in is one page. Deleted and moved-away text is not read; numbers of lists, which Word computes, are
not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cell_engine.kinds.documents.document import PAGE_BREAK, Document, Limits, Pages
from cell_engine.kinds.documents.office import Package, attribute, local_name

_SKIPPED = frozenset({"del", "moveFrom", "Fallback", "pPr", "rPr", "tblPr", "trPr", "tcPr", "sectPr", "instrText"})
_TEXTS = {"tab": "\t", "cr": "\n", "noBreakHyphen": "-", "ptab": "\t"}
_NOTES = {"footnotes": "footnote", "endnotes": "endnote"}


def read(package: Package, limits: Limits) -> Document:
    """Raises DocumentError for a part that is damaged or beyond the limits."""
    pages = Pages(limits)
    root = package.part(package.main)
    beside = [(kind, package.part(path)) for kind, path in _beside(package)]
    blocks = [*_parts(beside, "header"), *_blocks(root), *_parts(beside, "footer"), *_notes(beside)]
    text = "\n".join(block for block in blocks if block.strip() or PAGE_BREAK in block)
    pages.count(len(text))
    # Word leaves its own mark behind the author's: two breaks with nothing between them are one.
    texts = [page for page in text.split(PAGE_BREAK) if page.strip()]
    pages.expect(len(texts))
    for page in texts:
        pages.add(page)
    return Document(pages.texts, package.media_type, package.metadata())


def _beside(package: Package) -> list[tuple[str, str]]:
    """Headers, footers and notes, each once."""
    wanted = {"header", "footer", *_NOTES}
    return list(dict.fromkeys(found for found in package.relations(package.main).values() if found[0] in wanted))


def _parts(beside: list[tuple[str, Any]], kind: str) -> Iterator[str]:
    texts = (_plain(root) for named, root in beside if named == kind and root is not None)
    yield from dict.fromkeys(filter(str.strip, texts))  # the first page's is often the same as the others'


def _notes(beside: list[tuple[str, Any]]) -> Iterator[str]:
    for kind, root in beside:
        for note in root if kind in _NOTES and root is not None else ():
            if local_name(note) == _NOTES[kind] and attribute(note, "type") in (None, "normal"):
                yield f"[{attribute(note, 'id')}] {_plain(note).strip()}"


def _plain(root: Any) -> str:
    return "\n".join(_blocks(root)).replace(PAGE_BREAK, "\n")


def _blocks(element: Any) -> Iterator[str]:
    """Paragraphs, and rows of tables with a tab between cells."""
    for child in element:
        match local_name(child):
            case "p":
                yield "".join(_runs(child))
            case "tbl":
                yield from _rows(child)
            case name if name and name not in _SKIPPED:
                yield from _blocks(child)  # a content control, an insertion


def _rows(table: Any) -> Iterator[str]:
    for row in table.iter():
        if local_name(row) == "tr" and _table_of(row) is table:
            cells = (cell for cell in row.iter() if local_name(cell) == "tc" and _row_of(cell) is row)
            yield "\t".join(" ".join(" ".join(_blocks(cell)).split()) for cell in cells)


def _table_of(row: Any) -> Any:
    return next(one for one in row.iterancestors() if local_name(one) == "tbl")


def _row_of(cell: Any) -> Any:
    return next(one for one in cell.iterancestors() if local_name(one) == "tr")


def _runs(element: Any) -> Iterator[str]:
    for child in element:
        name = local_name(child)
        if name == "t":
            yield child.text or ""
        elif name in _TEXTS:
            yield _TEXTS[name]
        elif name == "br":
            yield PAGE_BREAK if attribute(child, "type") == "page" else "\n"
        elif name == "lastRenderedPageBreak":
            yield PAGE_BREAK
        elif name in ("footnoteReference", "endnoteReference"):
            yield f"[{attribute(child, 'id')}]"
        elif name == "txbxContent":
            yield "\n" + "\n".join(_blocks(child)) + "\n"
        elif name and name not in _SKIPPED:
            yield from _runs(child)
