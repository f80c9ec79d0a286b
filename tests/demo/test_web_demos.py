"""The demos of what comes from the web, on a worker beside the test: what they show is true, the second time, too."""

import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from cell_engine.demo.patience import PatientStore
from cell_engine.demo.registry import Offered, find_demo
from cell_engine.demo.run import watch
from cell_engine.demo.stage import Stage
from cell_engine.specs.compile import compile_file
from cell_engine.store.database import Connection
from tests.engine import offline_model, running_worker


class Heard:
    """A screen that keeps what it was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.cells: list[Any] = []

    def say(self, text: str) -> None:
        self.lines.append(text)

    def rows(self, watched: Any, inputs: Any, cells: Any, columns: Any) -> None:
        self.cells = cells

    def following(self, watched: Any) -> Any:
        return nullcontext(lambda progress: None)


def test_the_demos_pages_and_feed(
    database: str, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in _demo("pages").environment.items():
        monkeypatch.setenv(name, value)
    with (
        offline_model(monkeypatch),
        running_worker(database),
        PatientStore(database, "demo", time.sleep) as store,
    ):
        for name in ("pages", "feed", "feed"):
            offered = _demo(name)
            folder = tmp_path / "demo" / name
            folder.mkdir(parents=True, exist_ok=True)
            watched = watch(connection, compile_file(offered.spec_file))
            heard = Heard()
            assert offered.play(Stage(folder, database, watched, store, time.sleep, heard)) == []
            gists = [cell for cell in heard.cells if cell.column_id == watched.version.by_name["gist"].id]
            assert {cell.status for cell in gists} == {"ready"}
            said = "\n".join(heard.lines)
            if name == "pages":
                assert "bodies sent: 2, answered as unchanged: 8; calls of the model: 2" in said
            else:
                assert "nothing has changed: body sent: False" in said


def _demo(name: str) -> Offered:
    found = find_demo(name)
    assert found is not None
    return found
