"""The demo `documents`: write the contracts, load the folder, and hold what was read against what is true."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cell_engine.demo.documents.contracts import Contract, write_folder
from cell_engine.demo.run import ACTOR
from cell_engine.errors import AutofillError
from cell_engine.files.local import SETTLED_SECONDS
from cell_engine.load.folder import load_folder
from cell_engine.settings import get_settings
from cell_engine.specs.text import Json
from cell_engine.stack.services import needs_offline_model
from cell_engine.store.reading import page

if TYPE_CHECKING:
    from cell_engine.demo.stage import Stage

_COLUMNS = ("file", "counterparty", "starts", "ends", "amount", "law", "risk")
_NAMED = 5
_SHOWN_ROWS = 10

Read = dict[str, dict[str, Json]]
"""By file, what its row shows by column."""


def play(stage: Stage) -> list[str]:
    """The demo, on a stack that is up; returns what is not as it should be."""
    settings = get_settings()
    root = settings.file_roots[0]
    if "://" in root:
        return [f"The demo writes its contracts into a folder, and AUTOFILL_FILES begins with {root}."]
    folder = Path(root) / stage.watched.collection.full_name
    made = write_folder(folder)
    with stage.round(f"{len(made)} contracts in {folder}"):
        _load(stage, folder)
    stage.show(*_COLUMNS)
    stage.screen.say("Each answer rests on a quote that was found in its contract:")
    for line in _quotes(stage):
        stage.screen.say(f"  {line}")
    wrong, right = compared(made, _read(stage))
    stage.screen.say(
        f"{right} of {right + len(wrong)} facts were read as they were written: {', '.join(made[0].facts())}, of each."
    )
    if needs_offline_model():
        return [*stage.problems(), *wrong]
    for one in wrong[:_NAMED]:  # a model may well see a name or a sentence otherwise
        stage.screen.say(f"  {one}")
    return stage.problems()


def _load(stage: Stage, folder: Path) -> None:
    stage.pause(SETTLED_SECONDS + 0.5)  # what has just been written is passed over until it is left alone
    with stage.connect() as connection:
        loaded = load_folder(connection, stage.watched.collection, str(folder), actor=ACTOR)
    if loaded.synced.rejected:
        raise AutofillError(f"Not every file could be read: {loaded.synced.rejected[0][1]}")


def compared(made: Sequence[Contract], read: Read) -> tuple[list[str], int]:
    """Each fact that was read otherwise than it was written, and how many were not."""
    wrong: list[str] = []
    right = 0
    for contract in made:
        row = read.get(contract.path, {})
        for column, fact in contract.facts().items():
            if column in row and row[column] == fact:
                right += 1
            else:
                wrong.append(f"{contract.path}: {column} is {fact!r}, and was read as {row.get(column)!r}")
    return wrong, right


def _quotes(stage: Stage) -> list[str]:
    """The evidence of the first risks."""
    collection, version = stage.watched.collection, stage.watched.version
    inputs, cells = stage.store(lambda connection: page(connection, collection.id, limit=_SHOWN_ROWS))
    files = {one.row_id: one.value for one in inputs if version.by_id[one.column_id].name == "file"}
    lines = []
    for cell in cells:
        if version.by_id[cell.column_id].name == "risk" and cell.value is not None:
            for one in cast("list[dict[str, Any]]", (cell.details or {}).get("evidence") or []):
                where = f", page {one['page']}" if "page" in one else ""
                lines.append(f"{files[cell.row_id]}{where}: {cell.value}: {' '.join(one['quote'].split())}")
    return lines


def _read(stage: Stage) -> Read:
    collection, version = stage.watched.collection, stage.watched.version
    inputs, cells = stage.store(lambda connection: page(connection, collection.id, limit=1000))
    rows: dict[int, dict[str, Json]] = {}
    for given in inputs:
        rows.setdefault(given.row_id, {})[version.by_id[given.column_id].name] = given.value
    for cell in cells:
        rows.setdefault(cell.row_id, {})[version.by_id[cell.column_id].name] = cell.value
    return {str(row.get("file")): row for row in rows.values()}
