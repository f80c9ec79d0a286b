"""JSON Lines and TSV: each line by itself, and the names that tell them from CSV."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cell_engine.load import LoadError, load_file
from cell_engine.load.content import read_content
from cell_engine.load.jsonl_rows import jsonl_rows
from cell_engine.specs.compile import compile_text
from cell_engine.specs.version import Version
from cell_engine.store.collections import Collection
from cell_engine.store.database import Connection
from tests.load.conftest import SPEC, Stored, Write

VALUES = {
    "code": "0870", "title": "", "price": 1.5, "count": -7, "sold": True, "day": "2026-02-28",
    "moment": "2026-11-29T13:00:00+00:00", "colour": "red", "tags": ["x"], "days": ["2026-01-01"],
    "extra": {"a": [1, None]}, "page": "https://example.org/",
}  # fmt: skip


def test_every_type_null_and_a_line_of_nothing(
    connection: Connection, collection: Collection, stored: Stored, write: Write
) -> None:
    path = write("things.jsonl", "\ufeff" + json.dumps(VALUES) + '\n\n{"code": null}\r\n{}')
    loaded = load_file(connection, collection, path, actor="ann")
    assert (loaded.rows, loaded.rejected) == (3, [])
    assert stored(loaded.batches[0]) == [VALUES, {}, {}]


def test_what_breaks_a_line_costs_that_line_alone(
    connection: Connection, collection: Collection, stored: Stored, write: Write
) -> None:
    lines = [
        '{"code": "1"}',
        '{"code": "2"',
        '["3"]',
        '{"code": "4", "code": "5"}',
        '{"cod": "6"}',
        '{"count": "7"}',
        '{"price": NaN}',
        '{"words": 8}',
        "[" * 100_000,
        '{"code": "9"}',
    ]
    loaded = load_file(connection, collection, write("faults.ndjson", "\n".join(lines)), actor="ann")
    assert stored(loaded.batches[0]) == [{"code": "1"}, {"code": "9"}]
    reasons = dict(loaded.rejected)
    assert list(reasons) == [2, 3, 4, 5, 6, 7, 8, 9]
    assert reasons[2].startswith("not JSON: Expecting ',' delimiter at character")
    assert "not an object" in reasons[3]
    assert reasons[4] == "the key 'code' stands there twice"
    assert reasons[5] == "key 'cod' is no column of the collection; did you mean 'code'?"
    assert reasons[6].startswith("column 'count': type integer: '7'")
    assert reasons[7] == "not JSON: NaN is no number in JSON"
    assert reasons[8] == "key 'words' is a computed column: its cells are filled in by function, not loaded"
    assert reasons[9].startswith("not JSON: ")


def test_a_line_beyond_the_limit_is_passed(
    connection: Connection, collection: Collection, stored: Stored, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cell_engine.load.jsonl_rows.LINE_LIMIT", 30)
    path = write("long.jsonl", '{"code": "1"}\n{"code": "' + "x" * 200 + '"}\n{"code": "3"}\n')
    loaded = load_file(connection, collection, path, actor="ann")
    assert stored(loaded.batches[0]) == [{"code": "1"}, {"code": "3"}]
    assert [line for line, _ in loaded.rejected] == [2]


def test_a_tsv_is_known_by_its_name(
    connection: Connection, collection: Collection, stored: Stored, write: Write
) -> None:
    path = write("things.tsv", 'code\ttitle\n1\t"a, b"\n2\tc, d\n3\t"e"f\n')
    loaded = load_file(connection, collection, path, actor="ann")
    assert stored(loaded.batches[0]) == [{"code": "1", "title": "a, b"}, {"code": "2", "title": "c, d"}]
    assert loaded.rejected[0][0] == 4 and "closing quote" in loaded.rejected[0][1]
    with pytest.raises(LoadError, match=r"separated by '\\t'\? Name the file \.tsv"):
        load_file(connection, collection, write("things.csv", "code\ttitle\n1\tx\n"), actor="ann")


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\x00"), max_size=60),
        min_size=1,
        max_size=8,
    )
)
def test_no_line_costs_another(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    path = Path(tmp_path_factory.mktemp("lines")) / "any.jsonl"
    path.write_bytes("".join(f'{line}\n{{"code": "{number}"}}\n' for number, line in enumerate(lines)).encode())
    good = [record.row for record in jsonl_rows(read_content(path), _version(), 0) if record.row is not None]
    assert [row.get(1) for row in good if row.get(1, "").isdecimal()][-len(lines) or None :] == [
        str(number) for number in range(len(lines))
    ]


def _version() -> Version:
    spec = compile_text(SPEC)
    return Version(1, 1, spec.bind({column.key: number for number, column in enumerate(spec.columns, 1)}))
