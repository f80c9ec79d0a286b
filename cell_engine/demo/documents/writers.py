"""Documents out of lines of text, one writer a format: small, the same bytes every time, and no library needed."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from io import BytesIO
from textwrap import wrap
from xml.sax.saxutils import escape

Page = Sequence[str]
"""Its paragraphs."""

_LINE_CHARACTERS = 92
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the same bytes whenever they are written

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'


def pdf(pages: Sequence[Page], title: str, created: str = "D:20260102030405Z") -> bytes:
    """Set in Helvetica, whose characters are those of Windows-1252."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for number, page in enumerate(pages):
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F1 3 0 R >> >> "
            + f"/Contents {5 + 2 * number} 0 R >>".encode()
        )
        objects.append(stream(_set(page)))
    objects.append(
        b"<< /Title ("
        + _pdf_string(title)
        + b") /Producer (Collection Autofill) /CreationDate ("
        + created.encode()
        + b") >>"
    )
    return pdf_file(objects, info=len(objects))


def pdf_file(objects: Sequence[bytes], info: int | None = None, trailer: bytes = b"") -> bytes:
    """A PDF of these objects, the first of which is its catalog."""
    body = bytearray(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n")
    places = []
    for number, content in enumerate(objects, 1):
        places.append(len(body))
        body += f"{number} 0 obj\n".encode() + content + b"\nendobj\n"
    table = len(body)
    body += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    body += b"".join(f"{place:010d} 00000 n \n".encode() for place in places)
    names = f"/Size {len(objects) + 1} /Root 1 0 R" + (f" /Info {info} 0 R" if info else "")
    body += b"trailer\n<< " + names.encode() + b" " + trailer + b">>\nstartxref\n" + f"{table}\n%%EOF\n".encode()
    return bytes(body)


def stream(content: bytes, more: bytes = b"/Filter /FlateDecode ") -> bytes:
    """A stream object; packed, unless ``more`` says how it is packed already."""
    packed = zlib.compress(content, 9) if more == b"/Filter /FlateDecode " else content
    return b"<< " + more + f"/Length {len(packed)} >>\nstream\n".encode() + packed + b"\nendstream"


def docx(pages: Sequence[Page], title: str, author: str = "") -> bytes:
    breaks = '<w:p><w:r><w:br w:type="page"/></w:r></w:p>'
    body = breaks.join("".join(map(_docx_paragraph, page)) for page in pages)
    return package(
        {
            "word/document.xml": f'{_XML}<w:document xmlns:w="{_WORD}"><w:body>{body}</w:body></w:document>',
            "docProps/core.xml": _core(title, author),
        },
        "word/document.xml",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml",
    )


def package(parts: Mapping[str, str | bytes], main: str, media_type: str) -> bytes:
    """An Office archive of these parts, the main one of which is of that type."""
    types = (
        f'{_XML}<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" '
        'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Default Extension="xml" ContentType="application/xml"/>'
        f'<Override PartName="/{main}" ContentType="{media_type}"/></Types>'
    )
    relations = {"rId1": (f"{_OFFICE}/officeDocument", main)}
    if "docProps/core.xml" in parts:
        relations["rId2"] = (f"{_PACKAGE}/relationships/metadata/core-properties", "docProps/core.xml")
    return archive({"[Content_Types].xml": types, "_rels/.rels": relationships(relations), **parts})


def relationships(relations: Mapping[str, tuple[str, str]]) -> str:
    """A part that says what another refers to: type and target by id."""
    entries = "".join(f'<Relationship Id="{id}" Type="{kind}" Target="{to}"/>' for id, (kind, to) in relations.items())
    return f'{_XML}<Relationships xmlns="{_PACKAGE}/relationships">{entries}</Relationships>'


def archive(members: Mapping[str, str | bytes]) -> bytes:
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(zipfile.ZipInfo(name, _LONG_AGO), content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def html(pages: Sequence[Page], title: str) -> bytes:
    paragraphs = "\n".join(f"<p>{escape(text)}</p>" for page in pages for text in page)
    head = f'<meta charset="utf-8">\n<title>{escape(title)}</title>'
    body = f"<article>\n{paragraphs}\n</article>"
    return f"<!DOCTYPE html>\n<html><head>{head}</head>\n<body>{body}</body></html>\n".encode()


def markdown(pages: Sequence[Page], title: str) -> bytes:
    return f"# {title}\n\n{_flowing(pages)}\n".encode()


def text(pages: Sequence[Page], title: str) -> bytes:
    """Pages apart by form feeds, lines as wide as a page."""
    set_pages = ("\n\n".join("\n".join(wrap(text, _LINE_CHARACTERS)) for text in page) for page in pages)
    return f"{title.upper()}\n\n{chr(12).join(set_pages)}\n".encode()


def _flowing(pages: Sequence[Page]) -> str:
    return "\n\n".join(text for page in pages for text in page)


def _set(page: Page) -> bytes:
    lines = [line for text in page for line in [*wrap(text, _LINE_CHARACTERS), ""]]
    shown = b"\n".join(b"(" + _pdf_string(line) + b") Tj T*" for line in lines)
    return b"BT\n/F1 10 Tf\n13 TL\n56 780 Td\n" + shown + b"\nET"


def _pdf_string(text: str) -> bytes:
    return text.encode("cp1252").replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")


def _docx_paragraph(text: str) -> str:
    return f'<w:p><w:r><w:t xml:space="preserve">{escape(text)}</w:t></w:r></w:p>'


def _core(title: str, author: str) -> str:
    return (
        f'{_XML}<cp:coreProperties xmlns:cp="{_PACKAGE}/metadata/core-properties" '
        'xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:dcterms="http://purl.org/dc/terms/" '
        'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">'
        f"<dc:title>{escape(title)}</dc:title><dc:creator>{escape(author)}</dc:creator>"
        '<dcterms:created xsi:type="dcterms:W3CDTF">2026-01-02T03:04:05Z</dcterms:created></cp:coreProperties>'
    )
