"""What is read of each format, and what is refused of each fault: nothing garbled, cut, resolved or swallowed."""

from __future__ import annotations

import asyncio
import zipfile
from collections.abc import AsyncIterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest

from cell_engine.demo.documents import writers
from cell_engine.kinds.documents.document import Document, DocumentError, Limits
from cell_engine.kinds.documents.reader import read_document
from cell_engine.kinds.documents.sniffing import CSV, DOCX, HTML, MARKDOWN, PDF, TEXT, XLSX
from cell_engine.kinds.parsers import Parsers, ParsingError
from tests.data import make

FOLDER = make.FOLDER
FIRST, SECOND = "\n".join(make.FIRST), make.SECOND[0]
LIMITS = Limits()


def document(name: str, limits: Limits = LIMITS, charset: str | None = None) -> Document:
    return read_document(name, (FOLDER / name).read_bytes(), limits, charset=charset)


def refused(name: str, data: bytes | None = None, limits: Limits = LIMITS) -> DocumentError:
    with pytest.raises(DocumentError) as found:
        read_document(name, (FOLDER / name).read_bytes() if data is None else data, limits)
    return found.value


def test_the_files_are_those_that_the_script_makes() -> None:
    assert {path.name: path.read_bytes() for path in FOLDER.iterdir()} == dict(make.files())


@pytest.mark.parametrize(
    ("name", "media_type", "pages"),
    [
        ("two-pages.pdf", PDF, [FIRST, SECOND]),
        ("form.pdf", PDF, ["Name of the tenant\nAda Lovelace"]),
        ("two-pages.docx", DOCX, [FIRST, SECOND]),
        ("two-pages.txt", TEXT, ["SUPPLY\n\n" + "\n\n".join(make.FIRST), SECOND]),
        ("page.html", HTML, [f"{FIRST}\n{SECOND}"]),
        ("page-in-cp1251.html", HTML, [" ".join(["Библиотека переехала в старую гавань."] * 3)]),
        ("notes.md", MARKDOWN, ["# Supply\n\n" + "\n\n".join([*make.FIRST, SECOND])]),
        ("prices.csv", CSV, ["item,price\nÜnit,4500.50"]),
        ("utf-16.txt", TEXT, [make.GERMAN]),
        ("german-cp1252.txt", TEXT, [make.GERMAN]),
    ],
)
def test_each_format_is_read_page_by_page(name: str, media_type: str, pages: list[str]) -> None:
    found = document(name)
    assert (found.media_type, found.pages) == (media_type, pages)


def test_what_a_document_says_of_itself() -> None:
    assert document("two-pages.pdf").metadata == {"title": "Supply (2026)", "created": "2026-01-02T03:04:05+00:00"}
    assert document("two-pages.docx").metadata == {
        "title": "Supply", "author": "Ann", "created": "2026-01-02T03:04:05Z",
    }  # fmt: skip
    assert document("page.html").metadata == {"title": "Supply"}


def test_a_docx_is_read_wherever_its_text_stands_and_once() -> None:
    assert document("rich.docx").pages == [
        "No. 7\nBetween Acme\tand Beta[2]\ninserted\nItem\tPrice\nWidget\t4,500 inner\nin a control\n\nboxed",
        "On page two\n[2] A note.",
    ]


def test_an_xlsx_is_read_sheet_by_sheet_with_dates_as_dates() -> None:
    assert document("two-sheets.xlsx").pages == [
        "Prices\nItem\tWhen\tPrice\nÜnit\t2026-03-01\t4500.5\t\tTRUE\ninline\t2026-03-01 12:30:00\t9001\t#REF!",
        "Rest\n\t0.05\t09:30:00",
    ]
    assert document("two-sheets.xlsx").media_type == XLSX


def test_a_number_beyond_any_date_is_that_number_and_costs_no_workbook() -> None:
    content = (make.FOLDER / "two-sheets.xlsx").read_bytes()
    with zipfile.ZipFile(BytesIO(content)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    name = "xl/worksheets/sheet1.xml"
    parts[name] = parts[name].replace(b"<v>46082</v>", b"<v>9000000000</v>")
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for part, data in parts.items():
            archive.writestr(part, data)
    assert "Ünit\t9000000000\t4500.5" in read_document("x.xlsx", packed.getvalue(), LIMITS).pages[0]


def test_a_name_that_says_something_else_is_told() -> None:
    found = document("pdf-as.txt")
    assert found.pages == [FIRST, SECOND]
    assert found.remarks == {"mismatch": "its name says text, its content is PDF"}
    # but where the name says PDF and a page came instead, that page is not the document
    assert "its content is not: HTML" in str(refused("page-as.pdf"))


def test_pages_without_text_are_told_and_a_document_without_any_is_an_error() -> None:
    found = document("half-scanned.pdf")
    assert found.pages == ["A page with text", ""]
    assert found.remarks == {"pages_without_text": "2"}
    assert "None of its pages (2) has a text layer" in str(refused("scanned.pdf"))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("encrypted.pdf", "encrypted"),
        ("encrypted.docx", "encrypted"),
        ("old.doc", "older Office format"),
        ("cut-off.pdf", "cut off"),
        ("damaged.pdf", "damaged PDF"),
        ("cut-off.docx", "cut off or damaged"),
        ("no-document.zip", "an archive, and no document"),
        ("empty.txt", "no bytes"),
        ("blank.txt", "no text"),
        ("empty-page.html", "no text"),
        ("binary.txt", "no text in UTF-8"),
        ("controls.txt", "binary data"),
        ("french-cp1252.txt", "reads as different text in cp1250, cp1252"),
    ],
)
def test_each_fault_is_the_files_error_and_says_what_it_is(name: str, says: str) -> None:
    error = refused(name)
    assert error.error_class == "bad_input"
    assert says in str(error)


def test_every_beginning_of_a_file_is_read_or_refused() -> None:
    for name in ("two-pages.pdf", "rich.docx", "two-sheets.xlsx"):
        whole = (FOLDER / name).read_bytes()
        for length in range(1, len(whole), 97):
            refused(name, whole[:length])


def test_a_charset_that_cannot_be_told_is_taken_from_the_column() -> None:
    found = document("french-cp1252.txt", charset="cp1252")
    assert (found.pages, found.remarks) == ([make.FRENCH], {"charset": "cp1252"})
    # and stands behind what a file says of itself
    assert document("two-pages.txt", charset="cp1252").pages[1] == SECOND
    assert "Библиотека" in document("page-in-cp1251.html", charset="cp1252").pages[0]


def test_a_pdf_that_is_encrypted_without_a_password_is_read() -> None:
    assert read_document("open.pdf", make.encrypted(b"")).pages == ["A secret"]


@pytest.mark.parametrize("name", ["laughs.docx", "outside.docx", "laughs.xlsx"])
def test_entities_are_not_resolved(name: str) -> None:
    error = refused(name)
    assert error.error_class == "bad_input"
    assert "entit" in str(error)


@pytest.mark.parametrize(
    ("limits", "name", "says"),
    [
        (replace(LIMITS, pages=1), "two-pages.pdf", "2 pages; 1 are read"),
        (replace(LIMITS, pages=1), "two-pages.docx", "2 pages; 1 are read"),
        (replace(LIMITS, pages=1), "two-pages.txt", "2 pages; 1 are read"),
        (replace(LIMITS, pages=1), "two-sheets.xlsx", "2 sheets; 1 are read"),
        (replace(LIMITS, characters=60), "two-pages.pdf", "more than 60 characters"),
        (replace(LIMITS, characters=60), "two-pages.docx", "more than 60 characters"),
        (replace(LIMITS, characters=60), "two-pages.txt", "more than 60 characters"),
        (replace(LIMITS, characters=60), "two-sheets.xlsx", "more than 60 characters"),
        (replace(LIMITS, members=3), "two-sheets.xlsx", "8 members; 3 are read"),
        (replace(LIMITS, unpacked=1000), "two-sheets.xlsx", "a bomb, or a very large document"),
    ],
)
def test_beyond_a_limit_nothing_is_read_and_nothing_is_cut(limits: Limits, name: str, says: str) -> None:
    error = refused(name, limits=limits)
    assert error.error_class == "too_long"
    assert says in str(error)


def bomb(size: int, said: int | None = None) -> bytes:
    """A DOCX whose text unpacks to so many bytes; ``said`` is what its directory has instead."""
    paragraph = "<w:p><w:r><w:t>" + "x" * size + "</w:t></w:r></w:p>"
    space = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    data = writers.package(
        {"word/document.xml": f"<w:document {space}><w:body>{paragraph}</w:body></w:document>"}, "word/document.xml", ""
    )
    if said is not None:
        true = zipfile.ZipFile(BytesIO(data)).getinfo("word/document.xml").file_size
        data = data.replace(true.to_bytes(4, "little"), said.to_bytes(4, "little"))
    return data


def test_an_archive_that_unpacks_to_too_much_is_stopped_while_it_does() -> None:
    # by how much it grows, long before it is large
    assert refused("bomb.docx", bomb(5_000_000)).error_class == "too_long"
    assert "damaged" in str(refused("bomb.docx", bomb(5_000_000, said=10_000)))
    # a small one of the same kind is a document
    assert len(read_document("long.docx", bomb(900_000)).pages[0]) == 900_000


def test_what_a_document_embeds_is_not_unpacked() -> None:
    plain = zipfile.ZipFile(FOLDER / "two-pages.docx")
    data = writers.archive(
        {name: plain.read(name) for name in plain.namelist()}
        | {"word/embeddings/inner.docx": bomb(5_000_000), "word/media/image1.png": b"\0" * 5_000_000}
    )
    assert read_document("outer.docx", data).pages == [FIRST, SECOND]


def test_a_pdf_of_very_many_pages_is_refused_by_their_number() -> None:
    kids = b"3 0 R " * 20_000
    data = writers.pdf_file(
        [
            b"<< /Type /Catalog /Pages 2 0 R >>",
            b"<< /Type /Pages /Kids [" + kids + b"] /Count 20000 >>",
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] >>",
        ]
    )
    assert "20,000 pages; 10,000 are read" in str(refused("many.pdf", data))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def readers() -> AsyncIterator[Parsers]:
    readers = Parsers("cell_engine.kinds.documents.reader", "file", most=1)
    yield readers
    await readers.close()


@pytest.mark.anyio
async def test_a_page_that_takes_too_long_ends_its_process_and_the_next_is_read_by_another(readers: Parsers) -> None:
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Resources << /Font << /F1 3 0 R >> >> "
        b"/Contents 5 0 R >>",
        writers.stream(b"BT /F1 10 Tf 56 780 Td (x) Tj ET " * 500_000),  # a second at least, in 40 kB
    ]
    head = {"name": "bomb.pdf", "charset": None}
    with pytest.raises(ParsingError, match=r"within 0\.1 s") as found:
        await readers.ask(head, writers.pdf_file(objects), 0.1)
    assert found.value.failure.error_class == "bad_input"
    good = (FOLDER / "two-pages.pdf").read_bytes()
    assert (await readers.ask(head, good, 30))["pages"] == [FIRST, SECOND]


@pytest.mark.anyio
async def test_documents_are_read_in_a_process_of_their_own(readers: Parsers) -> None:
    contents = dict(make.files())
    asked = (readers.ask({"name": name, "charset": None}, data, 30) for name, data in contents.items())
    answers = await asyncio.gather(*asked)
    by_name = dict(zip(contents, answers, strict=True))
    assert by_name["two-pages.docx"]["pages"] == [FIRST, SECOND]
    assert "encrypted" in by_name["encrypted.pdf"]["refused"]
    assert sum("refused" in answer for answer in answers) == 18


@pytest.mark.anyio
async def test_a_process_that_reads_writes_nothing(tmp_path: Path) -> None:
    readers = Parsers("tests.kinds.writing_reader", "file", most=1)
    try:
        assert "OSError" in (await readers.ask({"path": str(tmp_path / "x")}, b"x", 30))["refused"]
        assert (tmp_path / "x").stat().st_size == 0
    finally:
        await readers.close()
