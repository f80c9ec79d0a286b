from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cell_engine.cli.main import app
from cell_engine.worker import run_worker

SPEC = """\
namespace: test
name: things
columns:
  - {name: title, type: text}
  - {name: amount, type: integer}
  - name: words
    type: integer
    kind: function
    deps: [title]
    function: {name: "tests.cli.functions:count"}
  - name: doubled
    type: integer
    kind: function
    deps: [words]
    function: {name: "tests.cli.functions:double"}
"""

Run = Callable[..., Result]


@pytest.fixture
def run(database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `autofill` with these arguments on a database of the test's own."""
    monkeypatch.setenv("AUTOFILL_DATABASE_URL", database)
    monkeypatch.setenv("AUTOFILL_HOME", str(tmp_path))

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, list(arguments))

    return run


@pytest.fixture
def things(run: Run, tmp_path: Path) -> str:
    """A collection of three rows; row 2 has no title."""
    (tmp_path / "things.yaml").write_text(SPEC)
    (tmp_path / "things.csv").write_text("title,amount\none two,1\n,2\nthree,3\n")
    assert run("apply", str(tmp_path / "things.yaml")).exit_code == 0
    assert run("load", "test/things", str(tmp_path / "things.csv")).exit_code == 0
    return "test/things"


@contextmanager
def working(url: str) -> Iterator[None]:
    """A worker, in a thread of its own."""
    stop = asyncio.Event()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(
        target=lambda: loop.run_until_complete(run_worker(url, job_types=["function"], stop=stop)), daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


@pytest.fixture
def worker(database: str) -> Iterator[None]:
    with working(database):
        yield
