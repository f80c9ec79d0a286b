"""Small files, one for each format and each fault that imports were seen to have: what comes of them, line by line."""

from pathlib import Path
from typing import Any

import pytest

from cell_engine.load import LoadError, ReadAs
from cell_engine.load.feed_entries import read_entries
from cell_engine.load.source import AS_IT_SAYS, open_file
from tests.load.test_excel_and_encodings import NAMES, THINGS

FOLDER = Path(__file__).parents[1] / "data" / "imports"
CP1252 = ReadAs(encoding="windows-1252")


@pytest.mark.parametrize(
    ("name", "how", "rows", "rejected"),
    [
        ("bom.csv", AS_IT_SAYS, [{"code": "a", "count": 1}], []),
        (
            "ragged.csv",
            AS_IT_SAYS,
            [{"code": "a", "title": "x", "count": 1}, {"code": "d", "title": "w", "count": 4}],
            [(3, "2 fields, the header has 3"), (4, "4 fields, the header has 3")],
        ),
        (
            "over-quoted.csv",
            AS_IT_SAYS,
            [{"code": "b", "title": "fine"}, {"code": "d", "title": 'doubled "quote"'}],
            [(2, "after its closing quote"), (4, "after its closing quote")],
        ),
        ("trailing-blank.csv", AS_IT_SAYS, [{"code": "a", "count": 1}], []),
        ("cr-only.csv", AS_IT_SAYS, [{"code": "a", "count": 1}, {"code": "b", "count": 2}], []),
        ("utf-16.csv", AS_IT_SAYS, [{"code": "a", "title": "Łódź"}], []),
        ("windows-1252.csv", CP1252, [{"code": "a", "title": "Café “à la carte”"}], []),
        ("tabs.tsv", AS_IT_SAYS, [{"code": "a", "title": "x, y"}], []),
        (
            "objects.jsonl",
            AS_IT_SAYS,
            [{"code": "a", "extra": {"nested": [1, {"b": None}]}}],
            [(2, "expected text"), (3, "not an object"), (4, "not JSON")],
        ),
        (
            "types.xlsx",
            AS_IT_SAYS,
            [{"code": "007", "count": 7, "day": "2023-03-15"}, {"code": "008", "count": 8, "day": "2026-01-02"}],
            [],
        ),
        ("two-sheets.xlsx", ReadAs(sheet="Two"), [{"code": "b"}], []),
        ("plain.parquet", AS_IT_SAYS, [{"code": "a", "count": 1, "title": ""}], []),
    ],
)
def test_files_that_are_read(
    name: str, how: ReadAs, rows: list[dict[str, Any]], rejected: list[tuple[int, str]]
) -> None:
    records = list(open_file(FOLDER / name, how).records(THINGS, 0))
    found = [{NAMES[key]: value for key, value in one.row.items()} for one in records if one.row is not None]
    assert found == rows
    faults = [one for one in records if one.row is None]
    assert [one.line for one in faults] == [line for line, _ in rejected]
    for one, (_, said) in zip(faults, rejected, strict=True):
        assert said in one.reason
        assert one.raw


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("newline-in-header.csv", "contains a line break; is a quote left open?"),
        ("duplicate-header.csv", "header 3, 'code', is the same as header 1"),
        ("semicolons.csv", "separated by ';'"),
        ("windows-1252.csv", "byte 0xE9 at offset 16 (line 2). As cp1252 that would read 'a,Café “à la carte”'"),
        ("cut-in-a-character.csv", "ends inside a character"),
        ("merged.xlsx", "cells are merged (A2:A3)"),
        ("two-sheets.xlsx", "name one of its sheets (--sheet); there are: 'One', 'Two'"),
        ("not-parquet.parquet", "named .parquet and is not Parquet"),
        ("empty.csv", "it is empty"),
    ],
)
def test_files_that_are_refused_by_name(name: str, said: str) -> None:
    with pytest.raises(LoadError) as refused:
        list(open_file(FOLDER / name).records(THINGS, 0))
    assert said in str(refused.value)
    assert name in str(refused.value)


def test_feeds() -> None:
    (entry,) = read_entries((FOLDER / "news.rss").read_bytes(), "https://news.example/feed")
    assert (entry.fields["link"], entry.fields["published"]) == (
        "https://news.example/one",
        "2026-01-02T03:04:05+00:00",
    )
    with pytest.raises(LoadError, match="declares entities"):
        read_entries((FOLDER / "bomb.rss").read_bytes(), "https://news.example/feed")


def test_every_file_is_used() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert [one.name for one in sorted(FOLDER.iterdir()) if f'"{one.name}"' not in text] == []
