"""Makes the files beside it: ``python -m tests.data.make``. The same bytes every time.

Each is small, and one format or one fault: what is too large to keep (bombs) is made by the tests that need it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from pathlib import Path

from cell_engine.demo.documents import writers

FOLDER = Path(__file__).parent / "documents"

FIRST = ["Supply agreement", "Between Müller & Søn GmbH and Beta Ltd. – “the parties” – as of 1 March 2026."]
SECOND = ["The price is €4,500.00 (four thousand five hundred)."]
PAGES = [FIRST, SECOND]
GERMAN = "Über den Fluß führt eine größere Brücke; die Straße dorthin heißt „Am Hügel“. " * 3
FRENCH = "Le contrat est signé à Orléans; les parties ont convenu d'une durée déterminée. " * 3
PASSWORD = b"secret"

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_DOCX_MAIN = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
_XLSX_MAIN = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"
_LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))

LAUGHING = f'<!DOCTYPE x [<!ENTITY l0 "ha">{_LAUGHS}]>'
"""Ten to the ninth, once it is resolved."""

OUTSIDE = '<!DOCTYPE x [<!ENTITY l9 SYSTEM "file:///etc/passwd">]>'


def files() -> Iterator[tuple[str, bytes]]:
    """Names and contents."""
    pdf, docx = writers.pdf(PAGES, "Supply (2026)"), writers.docx(PAGES, "Supply", author="Ann")
    yield "two-pages.pdf", pdf
    yield "cut-off.pdf", pdf[: len(pdf) // 2]
    yield "damaged.pdf", b"%PDF-1.4\n" + bytes(range(256)) * 4 + b"\nstartxref\n9\n%%EOF\n"
    yield "scanned.pdf", scanned(blank=2)
    yield "half-scanned.pdf", scanned(blank=1, text=FIRST)
    yield "form.pdf", form()
    yield "encrypted.pdf", encrypted(b"secret")
    yield "two-pages.docx", docx
    yield "rich.docx", rich_docx()
    yield "cut-off.docx", docx[: len(docx) // 2]
    yield "laughs.docx", entity_docx(LAUGHING)
    yield "outside.docx", entity_docx(OUTSIDE)
    yield "two-sheets.xlsx", xlsx()
    yield "laughs.xlsx", xlsx(head=LAUGHING, entity="&l9;")
    yield "no-document.zip", writers.archive({"a.txt": "a"})
    yield "encrypted.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504) + "EncryptedPackage".encode("utf-16-le")
    yield "old.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504) + "WordDocument".encode("utf-16-le")
    yield "page.html", writers.html(PAGES, "Supply")
    yield "empty-page.html", b"<!DOCTYPE html><html><body><script>write()</script></body></html>"
    yield (
        "page-in-cp1251.html",
        (
            '<html><head><meta charset="windows-1251"></head><body><p>'
            + "Библиотека переехала в старую гавань. " * 3
            + "</p></body></html>"
        ).encode("cp1251"),
    )
    yield "notes.md", writers.markdown(PAGES, "Supply")
    yield "two-pages.txt", writers.text(PAGES, "Supply")
    yield "utf-16.txt", GERMAN.encode("utf-16")
    yield "german-cp1252.txt", GERMAN.encode("cp1252")
    yield "french-cp1252.txt", FRENCH.encode("cp1252")
    yield "binary.txt", b"".join(hashlib.sha256(bytes([n])).digest() for n in range(64))
    yield "controls.txt", b"abc\x00\x01\x02" * 50
    yield "prices.csv", "item,price\nÜnit,4500.50\n".encode()
    yield "empty.txt", b""
    yield "blank.txt", b" \n\t\n"
    yield "page-as.pdf", writers.html([["Please log in first."]], "Log in")
    yield "pdf-as.txt", pdf


def scanned(blank: int, text: list[str] | None = None) -> bytes:
    """Pages that are an image, after one of text where there is one."""
    content = b"q 200 0 0 200 100 400 cm /I0 Do Q"
    image = b"/Type /XObject /Subtype /Image /Width 8 /Height 8 /BitsPerComponent 8 /ColorSpace /DeviceGray "
    pages = [b"4 0 R"] * blank
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"",
        writers.stream(bytes(range(64)), image),
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /XObject << /I0 3 0 R >> >> "
        b"/Contents 5 0 R >>",
        writers.stream(content),
    ]
    if text:
        pages.insert(0, b"6 0 R")
        font = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
        objects += [
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F1 7 0 R >> >> "
            b"/Contents 8 0 R >>",
            font,
            writers.stream(b"BT /F1 10 Tf 56 780 Td (A page with text) Tj ET"),
        ]
    objects[1] = b"<< /Type /Pages /Kids [" + b" ".join(pages) + f"] /Count {len(pages)} >>".encode()
    return writers.pdf_file(objects)


def form() -> bytes:
    """A page with a field that is filled in, and without a picture of what it looks like then."""
    field = b"/FT /Tx /T (tenant) /V (Ada Lovelace) /Rect [56 740 300 760] /P 4 0 R /F 4 /DA (/F1 10 Tf 0 g)"
    return writers.pdf_file(
        [
            b"<< /Type /Catalog /Pages 2 0 R /AcroForm << /Fields [6 0 R] /NeedAppearances true /DA (/F1 10 Tf 0 g) "
            b"/DR << /Font << /F1 3 0 R >> >> >> >>",
            b"<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
            b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F1 3 0 R >> >> "
            b"/Contents 5 0 R /Annots [6 0 R] >>",
            writers.stream(b"BT /F1 10 Tf 56 780 Td (Name of the tenant) Tj ET"),
            b"<< /Type /Annot /Subtype /Widget " + field + b" >>",
        ]
    )


def encrypted(password: bytes) -> bytes:
    """By the standard handler's first revision: RC4 of 40 bits. It asks for ``password``, unless that is empty."""
    padding = bytes.fromhex("28bf4e5e4e758a4164004e56fffa01082e2e00b6d0683e802f0ca9fe6453697a")
    padded, owner = (password + padding)[:32], b"owner"
    file_id, permissions = bytes(16), struct.pack("<i", -4)
    by_owner = _rc4(hashlib.md5((owner + padding)[:32]).digest()[:5], padded)
    key = hashlib.md5(padded + by_owner + permissions + file_id).digest()[:5]
    number = struct.pack("<I", 5)[:3] + bytes(2)
    content = _rc4(hashlib.md5(key + number).digest()[:10], b"BT /F1 10 Tf 56 780 Td (A secret) Tj ET")
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F1 3 0 R >> >> "
        b"/Contents 5 0 R >>",
        writers.stream(content, b" "),
        b"<< /Filter /Standard /V 1 /R 2 /P -4 /O <" + by_owner.hex().encode() + b"> /U <"
        + _rc4(key, padding).hex().encode() + b"> >>",
    ]  # fmt: skip
    trailer = b"/Encrypt 6 0 R /ID [<" + file_id.hex().encode() + b"><" + file_id.hex().encode() + b">] "
    return writers.pdf_file(objects, trailer=trailer)


def _rc4(key: bytes, data: bytes) -> bytes:
    state, j = list(range(256)), 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) % 256
        state[i], state[j] = state[j], state[i]
    out, i, j = bytearray(), 0, 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        out.append(byte ^ state[(state[i] + state[j]) % 256])
    return bytes(out)


def rich_docx() -> bytes:
    """All that text hides in: runs, tabs, a table in a table, notes, a header, a text box twice, changes tracked."""
    body = """
      <w:p><w:r><w:t>Between </w:t></w:r><w:r><w:t>Acme</w:t></w:r><w:r><w:tab/><w:t>and Beta</w:t></w:r>
        <w:r><w:footnoteReference w:id="2"/></w:r></w:p>
      <w:p><w:ins><w:r><w:t>inserted</w:t></w:r></w:ins><w:del><w:r><w:delText>deleted</w:delText></w:r></w:del>
        <w:moveFrom><w:r><w:t>moved away</w:t></w:r></w:moveFrom></w:p>
      <w:tbl><w:tr><w:tc><w:p><w:r><w:t>Item</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>Price</w:t></w:r></w:p></w:tc>
        </w:tr><w:tr><w:tc><w:p><w:r><w:t>Widget</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>4,500</w:t></w:r></w:p>
        <w:tbl><w:tr><w:tc><w:p><w:r><w:t>inner</w:t></w:r></w:p></w:tc></w:tr></w:tbl></w:tc></w:tr></w:tbl>
      <w:sdt><w:sdtContent><w:p><w:r><w:t>in a control</w:t></w:r></w:p></w:sdtContent></w:sdt>
      <w:p><w:r><mc:AlternateContent><mc:Choice><w:txbxContent><w:p><w:r><w:t>boxed</w:t></w:r></w:p></w:txbxContent>
        </mc:Choice><mc:Fallback><w:txbxContent><w:p><w:r><w:t>boxed</w:t></w:r></w:p></w:txbxContent></mc:Fallback>
        </mc:AlternateContent></w:r></w:p>
      <w:p><w:r><w:br w:type="page"/></w:r></w:p>
      <w:p><w:r><w:lastRenderedPageBreak/><w:t>On page two</w:t></w:r></w:p>"""
    spaces = f'xmlns:w="{_WORD}" xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    note = "<w:p><w:r><w:t>A note.</w:t></w:r></w:p>"
    return writers.package(
        {
            "word/document.xml": f"<w:document {spaces}><w:body>{body}</w:body></w:document>",
            "word/header1.xml": f"<w:hdr {spaces}><w:p><w:r><w:t>No. 7</w:t></w:r></w:p></w:hdr>",
            "word/footnotes.xml": f'<w:footnotes {spaces}><w:footnote w:type="separator" w:id="0"><w:p/></w:footnote>'
            f'<w:footnote w:id="2">{note}</w:footnote></w:footnotes>',
            "word/_rels/document.xml.rels": writers.relationships(
                {"r1": (f"{_OFFICE}/header", "header1.xml"), "r2": (f"{_OFFICE}/footnotes", "footnotes.xml")}
            ),
        },
        "word/document.xml",
        _DOCX_MAIN,
    )


def entity_docx(head: str) -> bytes:
    body = "<w:p><w:r><w:t>before &l9; after</w:t></w:r></w:p>"
    document = f'{head}<w:document xmlns:w="{_WORD}"><w:body>{body}</w:body></w:document>'
    return writers.package({"word/document.xml": document}, "word/document.xml", _DOCX_MAIN)


def xlsx(head: str = "", entity: str = "Ünit") -> bytes:
    """Shared and inline strings, numbers, dates, a formula, an error; a second sheet whose first rows are empty."""
    strings = "".join(f"<si><t>{text}</t></si>" for text in ("Item", "When", "Price", entity))
    first = """
      <row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" t="s"><v>1</v></c><c r="C1" t="s"><v>2</v></c></row>
      <row r="2"><c r="A2" t="s"><v>3</v></c><c r="B2" s="1"><v>46082</v></c><c r="C2"><v>4500.5</v></c>
        <c r="E2" t="b"><v>1</v></c></row>
      <row r="3"><c r="A3" t="inlineStr"><is><r><t>in</t></r><r><t>line</t></r></is></c><c r="B3" s="2">
        <v>46082.520833333336</v></c><c r="C3"><f>C2*2</f><v>9001</v></c><c r="D3" t="e"><v>#REF!</v></c></row>"""
    second = '<row r="7"><c r="B7" s="3"><v>0.05</v></c><c r="C7" s="4"><v>0.3958333333333333</v></c></row>'
    return writers.package(
        {
            "xl/workbook.xml": f'<workbook xmlns="{_SHEET}" xmlns:r="{_OFFICE}"><sheets>'
            '<sheet name="Prices" sheetId="1" r:id="r1"/><sheet name="Rest" sheetId="2" r:id="r2"/></sheets>'
            "</workbook>",
            "xl/_rels/workbook.xml.rels": writers.relationships(
                {
                    "r1": (f"{_OFFICE}/worksheet", "worksheets/sheet1.xml"),
                    "r2": (f"{_OFFICE}/worksheet", "/xl/worksheets/sheet2.xml"),
                    "r3": (f"{_OFFICE}/sharedStrings", "sharedStrings.xml"),
                    "r4": (f"{_OFFICE}/styles", "styles.xml"),
                }
            ),
            "xl/sharedStrings.xml": f'{head}<sst xmlns="{_SHEET}">{strings}</sst>',
            "xl/styles.xml": f'<styleSheet xmlns="{_SHEET}"><numFmts><numFmt numFmtId="164" formatCode='
            '"dd/mm/yyyy\\ hh:mm"/><numFmt numFmtId="165" formatCode="0.0&quot; days&quot;"/></numFmts><cellXfs>'
            '<xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="164"/><xf numFmtId="165"/><xf numFmtId="20"/>'
            "</cellXfs></styleSheet>",
            "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{_SHEET}"><sheetData>{first}</sheetData></worksheet>',
            "xl/worksheets/sheet2.xml": f'<worksheet xmlns="{_SHEET}"><sheetData>{second}</sheetData></worksheet>',
        },
        "xl/workbook.xml",
        _XLSX_MAIN,
    )


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, content in files():
        (FOLDER / name).write_bytes(content)


if __name__ == "__main__":
    main()
