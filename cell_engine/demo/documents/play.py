"""The demo `documents`: write the contracts, load the folder, and hold what was read against what is true."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

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
            if row.get(column) == fact:
                right += 1
            else:
                wrong.append(f"{contract.path}: {column} is {fact!r}, and was read as {row.get(column)!r}")
    return wrong, right


def _read(stage: Stage) -> Read:
    collection, version = stage.watched.collection, stage.watched.version
    inputs, cells = stage.store(lambda connection: page(connection, collection.id, limit=1000))
    rows: dict[int, dict[str, Json]] = {}
    for given in inputs:
        rows.setdefault(given.row_id, {})[version.by_id[given.column_id].name] = given.value
    for cell in cells:
        rows.setdefault(cell.row_id, {})[version.by_id[cell.column_id].name] = cell.value
    return {str(row.get("file")): row for row in rows.values()}
