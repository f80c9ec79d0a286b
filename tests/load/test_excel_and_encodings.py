"""Workbooks and encodings: read as what they are, or refused by name; never stored as something else."""

from pathlib import Path

import pytest

from cell_engine.load import LoadError, ReadAs, file_rows, load_file
from cell_engine.load.rows import Record
from cell_engine.load.source import AS_IT_SAYS, open_file
from cell_engine.specs.compile import compile_text
from cell_engine.specs.version import Version
from cell_engine.store.collections import Collection
from cell_engine.store.database import Connection
from tests.load.conftest import SPEC, Stored, Write
from tests.load.workbooks import number, sheet, text, workbook

THINGS = Version(
    1, 1, (_spec := compile_text(SPEC)).bind({column.key: place for place, column in enumerate(_spec.columns, 1)})
)
NAMES = {column.id: column.name for column in THINGS.columns}


def records(path: Path, how: ReadAs = AS_IT_SAYS) -> list[Record]:
    return list(open_file(path, how).records(THINGS, 0))


def rows(path: Path, how: ReadAs = AS_IT_SAYS) -> list[dict[str, object]]:
    return [{NAMES[key]: value for key, value in row.items()} for row in file_rows(path, THINGS, how)]


def refused(path: Path, how: ReadAs = AS_IT_SAYS) -> str:
    with pytest.raises(LoadError) as error:
        records(path, how)
    return str(error.value)


TRUE = '<c t="b"><v>1</v></c>'
MERGED = '<mergeCells><mergeCell ref="A1:B1"/></mergeCells>'
HEADER = [text(name) for name in ("code", "price", "count", "day", "sold", "tags")]


def test_a_sheet_becomes_rows_of_its_types(write: Write) -> None:
    book = workbook(
        {
            "Data": sheet(
                [
                    HEADER,
                    [
                        text("0870"),
                        number(1.5),
                        number(3),
                        number(45000, 1),
                        '<c t="b"><v>1</v></c>',
                        text("[&quot;x&quot;]"),
                    ],
                    [],
                    # a number as text, a number where text is wanted, a date as text, a formula's value
                    [number(870), text("2.5"), text("4"), text("2026-01-02"), "<c/>", "<c/>"],
                    ['<c t="str"><f>A2&amp;"x"</f><v>0870x</v></c>', "<c><f>B2*2</f><v>3</v></c>"],
                ]
            )
        }
    )
    path = write("things.xlsx", book)
    assert rows(path) == [
        {"code": "0870", "price": 1.5, "count": 3, "day": "2023-03-15", "sold": True, "tags": ["x"]},
        {"code": "870", "price": 2.5, "count": 4, "day": "2026-01-02"},
        {"code": "0870x", "price": 3},
    ]
    assert [record.line for record in records(path)] == [2, 4, 5]
    assert len(records(path)[1].missing) == 2
    assert list(open_file(path).records(THINGS, 2)) == records(path)[2:]


def test_cells_that_cannot_be_trusted_cost_their_row(write: Write) -> None:
    bad = [
        [number(870, 3)],
        ['<c r="A3" t="e"><v>#DIV/0!</v></c>'],
        ['<c r="A4"><f>B4*2</f></c>'],
        [text("a"), text("x")],
        [text("a"), "<c/>", "<c/>", number(0.5, 2)],
        [text("a"), *["<c/>"] * 5, text("beyond")],
        [text("a"), "<c/>", "<c/>", number(9e9, 2)],
        [text("ok")],
    ]
    path = write("things.xlsx", workbook({"Data": sheet([HEADER, *bad])}))
    found = records(path)
    for record, said in zip(
        found,
        [
            "the number 870, and shown otherwise",
            "A3 is the error #DIV/0!",
            "A4 was never worked out: open and save it in Excel",
            "column 'price': type number: 'x'",
            "a time without a date",
            "a value in column G, which has no name",
            "9e+09, which is to be a date, is beyond any",
            "",
        ],
        strict=True,
    ):
        assert said in record.reason
    assert [record.row is not None for record in found] == [False] * 7 + [True]


def test_which_sheet_is_not_guessed(
    connection: Connection, collection: Collection, stored: Stored, write: Write
) -> None:
    one, two = sheet([[text("code")], [text("a")]]), sheet([[text("code")], [text("b")]])
    path = write("things.xlsx", workbook({"One": one, "Two": two, "Old": two}, hidden=["Old"]))
    assert "name one of its sheets (--sheet); there are: 'One', 'Two', 'Old' (hidden)" in refused(path)
    assert "no sheet 'Three'; there are: 'One'" in refused(path, ReadAs(sheet="Three"))
    for name, code in (("Two", "b"), ("One", "a")):
        loaded = load_file(connection, collection, path, actor="ann", how=ReadAs(sheet=name))
        assert stored(loaded.batches[0]) == [{"code": code}]
    assert rows(write("hidden.xlsx", workbook({"One": one, "Old": two}, hidden=["Old"]))) == [{"code": "a"}]
    assert "has no sheets" in refused(write("a.csv", "code\na\n"), ReadAs(sheet="One"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (workbook({"D": sheet([[text("code"), text("title")]], MERGED)}), "merged (A1:B1)"),
        (workbook({"D": sheet([[text("code"), "<c/>", text("title")]])}), "row 1: header 2 is empty"),
        (workbook({"D": sheet([[text("code"), text("code")]])}), "is the same as header 1"),
        (workbook({"D": sheet([[text("cod")]])}), "did you mean 'code'"),
        (workbook({"D": sheet([])}), "it is empty"),
        (workbook({"D": sheet([[text("code")]])[:-20]}), "is no XML"),
        (workbook({"D": sheet([[number("1e999x")]])}), "It is damaged"),
        (workbook({}), "there are: none"),
        (workbook({"D": sheet([[text("code")], [text("a")]])})[:-30], "cut off or damaged"),
        (workbook({"D": "<row/>" * 500_000}), "a bomb, or a very large document"),
        (
            workbook({"D": sheet([[text("code")], [text("&x;")]], head='<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]>')}),
            "declares entities",
        ),
    ],
)  # fmt: skip
def test_workbooks_that_are_refused(write: Write, content: bytes, said: str) -> None:
    path = write("things.xlsx", content)
    message = refused(path)
    assert said in message
    assert str(path) in message


@pytest.mark.parametrize(
    ("encoding", "declared"),
    [
        ("utf-8-sig", None), ("utf-16", None), ("utf-32", None), ("cp1252", "windows-1252"),
        ("iso8859-15", "iso-8859-15"), ("shift_jis", "shift_jis"), ("utf-16-le", "utf-16-le"), ("utf-8", "utf8"),
    ],
)  # fmt: skip
def test_encodings_are_read_by_their_mark_or_as_declared(write: Write, encoding: str, declared: str | None) -> None:
    code = "ソース" if encoding == "shift_jis" else "Café €"
    for name, content in (("a.csv", f"code,count\r\n{code},1\r\n"), ("a.jsonl", f'{{"code": "{code}", "count": 1}}\n')):
        path = write(name, content.encode(encoding))
        assert rows(path, ReadAs(encoding=declared)) == [{"code": code, "count": 1}]


def test_what_is_not_in_the_encoding_declared_is_refused(write: Write) -> None:
    path = write("a.csv", b"code\n" + b"\x81\n")
    assert "it is not cp1252, near offset 5" in refused(path, ReadAs(encoding="windows-1252"))
    assert "'rot13' is no encoding of text; such are utf-8" in refused(path, ReadAs(encoding="rot13"))
    assert "no encoding of text" in refused(path, ReadAs(encoding="hex"))
    assert "no encoding of text" in refused(path, ReadAs(encoding="no such"))
    said = refused(write("a.csv", "code\nCafé\nNaïve déjà vu, où ça\n".encode("cp1252")))
    assert "--encoding cp1252" in said


def test_another_encoding_is_another_content(connection: Connection, collection: Collection, write: Write) -> None:
    path = write("a.csv", "code\nœuvre\n".encode("cp1252"))
    keys = {
        load_file(connection, collection, path, actor="ann", how=ReadAs(encoding=encoding)).batches[0].key
        for encoding in ("cp1252", "cp1250", "windows-1252")
    }
    assert len(keys) == 2
