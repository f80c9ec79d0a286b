"""CSV: what goes in, what is rejected with its line, what is refused whole; the faults of others as tests."""

import os
from pathlib import Path

import pytest

from cell_engine.load import LoadError, csv_rows, load_file
from cell_engine.load.csv_rows import RECORD_LIMIT
from cell_engine.store.collections import Collection
from cell_engine.store.database import Connection
from tests.load.conftest import Stored, Write


def batches(connection: Connection) -> int:
    return int(connection.execute("select count(*) from autofill.batch").fetchone()[0])  # type: ignore[index]


def test_every_type(connection: Connection, collection: Collection, stored: Stored, write: Write) -> None:
    path = write(
        "things.csv",
        "code,title,price,count,sold,day,moment,colour,tags,days,extra,page\n"
        '0870,"A, ""B""\nC",1.50,-7,true,2026-02-28,2026-11-29T13:00:00Z,Red,"[""x""]","[""2026-01-01""]",'
        '"{""a"": [1, null]}",https://example.org/\n'
        ",,,,,,,,,,,\n",
    )
    loaded = load_file(connection, collection, path, actor="ann")
    assert (loaded.new, loaded.rows, loaded.rejected, loaded.rejected_rows) == (True, 2, [], 0)
    assert stored(loaded.batches[0]) == [
        {
            "code": "0870",
            "title": 'A, "B"\nC',
            "price": 1.5,
            "count": -7,
            "sold": True,
            "day": "2026-02-28",
            "moment": "2026-11-29T13:00:00+00:00",
            "colour": "red",
            "tags": ["x"],
            "days": ["2026-01-01"],
            "extra": {"a": [1, None]},
            "page": "https://example.org/",
        },
        {},
    ]
    batch = loaded.batches[0]
    assert (batch.source, batch.rows) == ("things.csv", 2)
    dispatch = connection.execute("select reason, actor, total from autofill.dispatch").fetchall()
    assert dispatch == [("load", "ann", 2)]


def test_good_lines_go_in_next_to_rejected_ones(
    connection: Connection, collection: Collection, stored: Stored, write: Write
) -> None:
    path = write(
        "faults.csv",
        "code,title,count\n"
        "1,good,1\n"
        "2,short\n"
        "3,long,3,4\n"
        "4,type,four\n"
        '5,"multi\nline",5\n'
        '6,"bad"quote,6\n'
        "\n"
        "8,two bad,008\n"
        "9,good,9\n",
    )
    loaded = load_file(connection, collection, path, actor="ann")
    assert [row["code"] for row in stored(loaded.batches[0])] == ["1", "5", "9"]
    assert loaded.rejected_rows == 5
    assert [line for line, _ in loaded.rejected] == [3, 4, 5, 8, 10]
    reasons = [reason for _, reason in loaded.rejected]
    assert reasons[0] == "2 fields, the header has 3"
    assert reasons[1] == "4 fields, the header has 3"
    assert reasons[2].startswith("column 'count': type integer: 'four': expected digits")
    assert "closing quote" in reasons[3]
    assert "leading zero" in reasons[4]


def test_a_quote_left_open_costs_its_own_line(
    connection: Connection, collection: Collection, stored: Stored, write: Write
) -> None:
    lines = [
        "code,title",
        '1,"open',
        *[f"{n},fine" for n in range(2, 50)],
        '50,"quoted"',
        "51,fine",
        '52,"never closed',
    ]
    loaded = load_file(connection, collection, write("open.csv", "\n".join(lines)), actor="ann")
    assert [row["code"] for row in stored(loaded.batches[0])] == [str(n) for n in range(2, 52)]
    assert [line for line, _ in loaded.rejected] == [2, 53]
    assert "never closed" in loaded.rejected[1][1]


def test_records_longer_than_the_limit(
    connection: Connection,
    collection: Collection,
    stored: Stored,
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(csv_rows, "RECORD_LIMIT", 100)
    long = "x" * 250
    path = write(
        "long.csv", f'code,title\n1,{long}\n2,fine\n3,"open\n4,{"y" * 90}\n5,{long}\n6,"a ""b"""\n7,{"z" * 98}\n8,end'
    )
    loaded = load_file(connection, collection, path, actor="ann")
    assert [row["code"] for row in stored(loaded.batches[0])] == ["2", "4", "6", "8"]
    assert [line for line, _ in loaded.rejected] == [2, 4, 6, 8]
    assert all("longer than 100 characters" in reason for _, reason in loaded.rejected)


def test_fields_beyond_the_csv_modules_own_limit(
    connection: Connection, collection: Collection, stored: Stored, write: Write
) -> None:
    text = "é" * 1_000_000
    loaded = load_file(connection, collection, write("wide.csv", f'code,title\n1,"{text}"\n'), actor="ann")
    assert stored(loaded.batches[0])[0]["title"] == text
    assert RECORD_LIMIT > 1_000_000


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("tail", ["", "{end}", "{end}{end}"])
def test_line_ends_marks_and_blank_lines(
    connection: Connection, collection: Collection, stored: Stored, write: Write, end: str, mark: str, tail: str
) -> None:
    text = mark + end.join(['"code",title', "1,a", "", "2,b", "3"]) + tail.format(end=end)
    loaded = load_file(connection, collection, write("ends.csv", text), actor="ann")
    assert [row["code"] for row in stored(loaded.batches[0])] == ["1", "2"]
    assert loaded.rejected == [(5, "1 fields, the header has 2")]


def test_what_cannot_be_stored_is_cleaned(
    connection: Connection, collection: Collection, stored: Stored, write: Write
) -> None:
    path = write(
        "unclean.csv", b'code,title,extra\n1,a\x00b\xed\xa0\x80c,"{""k"": ""x\\u0000\\ud800y""}"\n2,\x0b\xe2\x80\xa8,\n'
    )
    loaded = load_file(connection, collection, path, actor="ann")
    assert stored(loaded.batches[0]) == [
        {"code": "1", "title": "abc", "extra": {"k": "xy"}},
        {"code": "2", "title": "\x0b\u2028"},
    ]


def refused(connection: Connection, collection: Collection, path: Path) -> str:
    with pytest.raises(LoadError) as caught:
        load_file(connection, collection, path, actor="ann")
    assert batches(connection) == 0
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("codes,title", ["things.csv:1: header 1, 'codes', is no column of the collection; did you mean 'code'?"]),
        ("code, title", ["header 2, ' title', is no column", "did you mean 'title'?"]),
        ("code,title,code", ["header 3, 'code', is the same as header 1"]),
        ("code,words", ["header 2, 'words', is a computed column", "function"]),
        ("code,,title", ["header 2 is empty"]),
        ("code,", ["header 2 is empty"]),
        ('code,"first\ntitle"', ["header 2, 'first\\ntitle', is no column", "line break"]),
        ("code;title", ["separated by ';'? They must be by commas"]),
        ("code\ttitle", ["separated by '\\t'?"]),
        ('code,"title', ["things.csv:1: a quote is opened and never closed"]),
        ('code,"ti"tle', ["closing quote"]),
        ("aaa,bbb", ["header 1, 'aaa'", "header 2, 'bbb'"]),
        ("\ufeff\n\ncode,zzz", ["things.csv:3: header 2, 'zzz'"]),
    ],
)
def test_headers_that_name_no_input(
    connection: Connection, collection: Collection, write: Write, header: str, said: list[str]
) -> None:
    message = refused(connection, collection, write("things.csv", f"{header}\n1,2\n"))
    for part in said:
        assert part in message
    if "quote" not in message or "line break" in message:
        assert message.endswith(
            "columns that can be loaded: 'code', 'title', 'price', 'count', 'sold', 'day', 'moment', 'colour', 'tags', "
            "'days', 'extra', 'page'"
        )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty"),
        (b"\xef\xbb\xbf\r\n\n", "there is no header line"),
        (b"\xff\xfe" + "code\nä".encode("utf-16-le")[:-1], "it is not utf-16, near offset 12"),
        (b"\xff\xfec\x00\x00\xd8\n\x00", "it is not utf-16, near offset 4"),
        ("code,title\n1,2".encode("utf-16-le"), "is the file UTF-16?"),
        ("code,title\n1,2".encode("utf-16-be"), "is the file UTF-16?"),
        (
            "code,title\r\n1,ok\r\n2,Café au lait\r\n".encode("latin-1"),
            "byte 0xE9 at offset 23 (line 3). As cp1252 that would read '2,Café au lait'",
        ),
        (
            "code,title\n2,Café\n".encode("latin-1"),
            "it is not UTF-8: byte 0xE9 at offset 16 (line 2). As cp1252 that would read '2,Café'",
        ),
        ("code\nCafé\nx".encode("latin-1"), "byte 0xE9 at offset 8 (line 2). As cp1252 that would read 'Café'"),
        (b"code\r1\r2\r\x81\x8d\r", "byte 0x81 at offset 9 (line 4); save it as UTF-8 where it comes from"),
        ("code\nCafé".encode()[:-1], "it ends inside a character, byte 0xC3 at offset 8 (line 2)"),
        (b"code\n" + b"x" * (2**20 - 6) + "é\n\xff".encode("latin-1"), "0xE9 at offset 1,048,575 (line 2)"),
        (b"code\n" + b"x" * (2**20 - 6) + "é\n".encode() + b"\xff\n", "0xFF at offset 1,048,578 (line 3)"),
        (
            b"code\n" + b"x" * (2**20 - 8) + b"\xed\xa0\xbd\xed\xb8\x80",
            "CESU-8, not UTF-8: a surrogate pair at offset 1,048,573",
        ),
        (b"\x1f\x8b\x08\x00", "gzip: unpack it first"),
        (b"PK\x03\x04xxxx", "a ZIP archive: unpack it; a workbook is named .xlsx"),
        (b"PAR1 and no more", "not readable as Parquet"),
    ],
)
def test_files_that_are_not_what_they_should_be(
    connection: Connection, collection: Collection, write: Write, content: bytes, said: str
) -> None:
    path = write("things.csv", content)
    message = refused(connection, collection, path)
    assert said in message
    assert str(path) in message


def test_a_parquet_file_that_is_none_is_refused_by_its_name(
    connection: Connection, collection: Collection, write: Write
) -> None:
    message = refused(connection, collection, write("things.Parquet", "code,title\n1,x\n"))
    assert "named .parquet and is not Parquet" in message
    assert batches(connection) == 0


def test_paths_that_are_no_files(connection: Connection, collection: Collection, tmp_path: Path) -> None:
    assert "No such file" in refused(connection, collection, tmp_path / "none.csv")
    assert "not a file" in refused(connection, collection, tmp_path)
    os.mkfifo(tmp_path / "pipe.csv")
    assert "not a file" in refused(connection, collection, tmp_path / "pipe.csv")


def test_a_header_alone_is_no_batch(connection: Connection, collection: Collection, write: Write) -> None:
    loaded = load_file(connection, collection, write("header.csv", "code,title\r\n"), actor="ann")
    assert (loaded.batches, loaded.new, loaded.rows, loaded.rejected) == ([], False, 0, [])


def test_nothing_is_stored_when_nothing_fits(connection: Connection, collection: Collection, write: Write) -> None:
    message = refused(connection, collection, write("things.csv", "count\na\nb\nc\nd\n"))
    assert message.startswith("things.csv: no row of the first 4 fits the collection, so nothing was loaded\n")
    assert "things.csv:2: column 'count': type integer: 'a'" in message
    assert len(message.splitlines()) == 4
