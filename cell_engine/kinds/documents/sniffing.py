"""What a file is, by its content; what its name says of it counts only where content cannot decide."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from cell_engine.kinds.documents.document import DocumentError

PDF = "application/pdf"
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
HTML = "text/html"
MARKDOWN = "text/markdown"
CSV = "text/csv"
TSV = "text/tab-separated-values"
TEXT = "text/plain"
ZIP = "application/zip"
"""An archive of what kind is seen once its members are listed: DOCX and XLSX are archives."""

NAMES = {
    PDF: "PDF",
    DOCX: "DOCX",
    XLSX: "XLSX",
    HTML: "HTML",
    MARKDOWN: "Markdown",
    CSV: "CSV",
    TSV: "TSV",
    TEXT: "text",
}

_BY_SUFFIX = {
    ".pdf": PDF, ".docx": DOCX, ".docm": DOCX, ".dotx": DOCX, ".xlsx": XLSX, ".xlsm": XLSX, ".xltx": XLSX,
    ".html": HTML, ".htm": HTML, ".xhtml": HTML, ".md": MARKDOWN, ".markdown": MARKDOWN, ".csv": CSV, ".tsv": TSV,
    ".txt": TEXT, ".text": TEXT, ".log": TEXT,
}  # fmt: skip

_PDF_HEAD = 1024  # what may stand before %PDF-, as Acrobat has it
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED_STREAM = "EncryptedPackage".encode("utf-16-le")
_FOREIGN: tuple[tuple[bytes, str], ...] = (
    (b"{\\rtf", "an RTF document: save it as DOCX or PDF"),
    (b"%!PS", "PostScript: save it as PDF"),
    (b"\x89PNG", "a PNG image, which has no text"),
    (b"\xff\xd8\xff", "a JPEG image, which has no text"),
    (b"GIF8", "a GIF image, which has no text"),
    (b"II*\x00", "a TIFF image, which has no text"),
    (b"MM\x00*", "a TIFF image, which has no text"),
    (b"\x1f\x8b", "packed with gzip: unpack it first"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive: unpack it first"),
    (b"Rar!", "a RAR archive: unpack it first"),
    (b"BZh", "packed with bzip2: unpack it first"),
    (b"\xfd7zXZ", "packed with xz: unpack it first"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
    (b"SQLite format 3", "an SQLite database"),
    (b"PAR1", "a Parquet file: load it as a source of rows"),
    (b"ID3", "audio"),
    (b"OggS", "audio"),
    (b"fLaC", "audio"),
)
_HTML = re.compile(
    rb"""(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html[\s>])""",
    re.IGNORECASE | re.DOTALL,
)
_HTML_HEAD = 4096


def named(name: str) -> str | None:
    """The media type that a file's name claims; None if it claims none that is read here."""
    return _BY_SUFFIX.get(PurePosixPath(name).suffix.lower())


def sniffed(name: str, data: bytes) -> str:
    """The media type of the content. Raises DocumentError for one that is empty, or known and not read here."""
    if not data:
        raise DocumentError("The file is empty: it has no bytes.")
    if b"%PDF-" in data[:_PDF_HEAD]:
        return PDF
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return ZIP
    if data.startswith(_OLE):
        if _ENCRYPTED_STREAM in data:
            raise DocumentError("It is encrypted: an Office document with a password. Save it without one.")
        raise DocumentError("It is of an older Office format (.doc, .xls): save it as DOCX or XLSX.")
    for magic, what in _FOREIGN:
        if data.startswith(magic) and not (magic == b"MZ" and b"\x00" not in data[:256]):
            raise DocumentError(f"It is {what}.")
    claimed = named(name)
    if claimed in (PDF, DOCX, XLSX):
        # Not read as what it is: a page that says "log in first", or a download cut off, is not that document.
        found = "HTML" if _HTML.match(data[:_HTML_HEAD]) else f"beginning with {data[:16]!r}"
        raise DocumentError(f"Its name says {NAMES[claimed]}, and its content is not: {found}.")
    if claimed == HTML or (claimed != MARKDOWN and _HTML.match(data[:_HTML_HEAD])):
        return HTML
    return claimed or TEXT
