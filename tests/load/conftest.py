"""A collection with an input column of every type, and what is stored of a batch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cell_engine.specs.compile import compile_text
from cell_engine.store.applying import apply
from cell_engine.store.batches import Batch
from cell_engine.store.collections import Collection, find_collection, load_version
from cell_engine.store.database import Connection

SPEC = """
namespace: demo
name: things
columns:
  - {name: code, type: text}
  - {name: title, type: text}
  - {name: price, type: number}
  - {name: count, type: integer}
  - {name: sold, type: boolean}
  - {name: day, type: date}
  - {name: moment, type: datetime}
  - {name: colour, type: choice, choices: [red, green]}
  - {name: tags, type: list, items: text}
  - {name: days, type: list, items: date}
  - {name: extra, type: json}
  - {name: page, type: url}
  - {name: words, type: integer, kind: function, deps: [title], function: {name: "tests.load.conftest:count_words"}}
"""

Stored = Callable[[Batch], list[dict[str, Any]]]
Write = Callable[[str, bytes | str], Path]


def count_words(title: str) -> int:
    return len(title.split())


@pytest.fixture
def collection(connection: Connection) -> Collection:
    apply(connection, compile_text(SPEC), actor="test")
    return find_collection(connection, "demo/things")


@pytest.fixture
def stored(connection: Connection, collection: Collection) -> Stored:
    """The rows of a batch, in order: column name → value, missing ones absent."""
    names = {str(column.id): column.name for column in load_version(connection, collection.id).columns}

    def stored(batch: Batch) -> list[dict[str, Any]]:
        found = connection.execute(
            "select inputs from autofill.row where collection_id = %s and batch_id = %s order by row_id",
            [collection.id, batch.id],
        )
        return [{names[key]: value for key, value in one.inputs.items()} for one in found]

    return stored


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, content: bytes | str) -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write
