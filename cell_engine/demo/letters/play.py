"""The demo `letters`: letters are written from a table of roles, styles and facts; then one has news to tell, and only
that one is written anew."""

from __future__ import annotations

import csv
from pathlib import Path

from cell_engine.demo import editions
from cell_engine.demo.stage import ACTOR, Stage
from cell_engine.load import sync_file
from cell_engine.stack.services import needs_offline_model
from cell_engine.store.reading import page

_TABLE = Path(__file__).with_name("letters.csv")
_SHOWN = ("letter", "role", "style", "subject")
_CHANGING = "storm"
_COLUMNS_WRITTEN = 2
_ROWS = 100


def play(stage: Stage) -> list[str]:
    found: list[str] = []
    edition = editions.current(stage.home)
    rows = _rows(edition)
    with stage.round(f"{len(rows)} letters are written: who writes, how, and what there is to say are columns."):
        _load(stage, rows)
    stage.show(*_SHOWN)
    if needs_offline_model():
        stage.screen.say(
            "The offline model cannot write: its drafts are the facts' first sentences as they stand, whatever role "
            "and style say, and its subjects how these begin. A language model writes both."
        )
    with stage.round(f"The letter {_CHANGING} has other facts."):
        _load(stage, _rows(editions.next_after(stage.home, edition)))
    stage.show(*_SHOWN)
    _read_out(stage)
    calls = stage.took.calls if stage.took is not None else 0
    if calls != _COLUMNS_WRITTEN:
        found.append(f"one letter had other facts, which is {_COLUMNS_WRITTEN} calls: {calls} were made")
    return found + stage.problems()


def _read_out(stage: Stage) -> None:
    """The letter that has changed, in full."""
    inputs, cells = stage.store(lambda connection: page(connection, stage.watched.collection.id, limit=_ROWS))
    row = next(one.row_id for one in inputs if one.value == _CHANGING)
    written = {stage.watched.version.by_id[one.column_id].name: one.value for one in cells if one.row_id == row}
    stage.screen.say(f"{written['subject']}\n\n{written['draft']}")


def _rows(edition: int) -> list[dict[str, str]]:
    with _TABLE.open(encoding="utf-8", newline="") as table:
        rows = list(csv.DictReader(table))
    for row in rows:
        if edition and row["letter"] == _CHANGING:
            row["facts"] = f"By bulletin number {edition} the wind turns north. " + row["facts"]
    return rows


def _load(stage: Stage, rows: list[dict[str, str]]) -> None:
    file = stage.home / "letters.csv"
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    with stage.connect() as connection:
        sync_file(connection, stage.watched.collection, file, actor=ACTOR)
