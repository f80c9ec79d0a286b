"""The demo of columns that write: what the model is asked, and that a letter with other facts is written anew alone."""

import csv
import time
from pathlib import Path
from typing import Any

import pytest

from cell_engine.demo.letters import play
from cell_engine.demo.patience import PatientStore
from cell_engine.demo.registry import find_demo
from cell_engine.demo.run import watch
from cell_engine.demo.stage import Stage
from cell_engine.specs import prompt
from cell_engine.specs.compile import compile_file
from cell_engine.store.database import Connection
from tests.demo.test_web_demos import Heard
from tests.engine import offline_model, running_worker

OFFERED = find_demo("letters")
assert OFFERED is not None
SPEC = compile_file(OFFERED.spec_file)


def test_role_style_and_facts_are_columns_and_stand_in_the_prompt() -> None:
    draft = next(column for column in SPEC.columns if column.name == "draft")
    assert [dep.column for dep in draft.deps] == ["facts", "role", "style"]
    ids = {column.key: number for number, column in enumerate(SPEC.columns)}
    names = {number: key for key, number in ids.items()}
    cells: dict[int, Any] = {ids[name]: f"what stands in {name}" for name in ("facts", "role", "style")}
    asked = prompt.render(prompt.bind(draft.settings["prompt"], ids), cells, names)  # type: ignore[arg-type]
    assert all(str(text) in asked for text in cells.values())


def test_the_letters_are_written_and_one_with_other_facts_alone_again(
    database: str, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(play, "needs_offline_model", lambda: True)
    with (
        offline_model(monkeypatch),
        running_worker(database),
        PatientStore(database, "demo", time.sleep) as store,
    ):
        watched, heard = watch(connection, SPEC), Heard()
        assert play.play(Stage(tmp_path, database, watched, store, time.sleep, heard)) == []
    texts: dict[str, dict[int, Any]] = {"draft": {}, "subject": {}}
    for cell in heard.cells:
        texts[watched.version.by_id[cell.column_id].name][cell.row_id] = cell.value
    with (tmp_path / "letters.csv").open(encoding="utf-8", newline="") as table:
        facts = {row: given["facts"] for row, given in enumerate(csv.DictReader(table), 1)}
    assert texts["draft"].keys() == texts["subject"].keys() == facts.keys()
    assert sum("By bulletin number 1" in one for one in texts["draft"].values()) == 1
    for row, told in facts.items():
        assert told.startswith(texts["draft"][row])  # it makes nothing up, and says that it cannot write
        assert texts["subject"][row] == " ".join(told.split()[:8]).rstrip(",") + " …"
    said = "\n".join(heard.lines)
    assert "The offline model cannot write" in said
    assert "\n\nBy bulletin number 1 the wind turns north. Wind of nine" in said
