"""The main job, end to end, as a newcomer runs it: real PostgreSQL, real HTTP, real Dagster, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import psutil
import pytest

from cell_engine.embedded import running
from cell_engine.stack.state import State, read_state
from tests.stack.conftest import Started, of_home, wait_until_gone

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

PATIENCE = 200.0


def autofill(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cell_engine.cli", *arguments],
        env=os.environ | {"AUTOFILL_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def cells(home: Path, *arguments: str) -> list[dict[str, Any]]:
    shown = autofill(home, "show", "demo/packages", "--rows", "1000", "--json", *arguments)
    assert shown.returncode == 0, shown.stderr
    return [row["cells"] for row in json.loads(shown.stdout)]


def collection(home: Path) -> dict[str, Any]:
    """The demo's collection, as `status` tells of it."""
    told = autofill(home, "status", "demo/packages", "--json")
    assert told.returncode == 0, told.stderr
    found: dict[str, Any] = json.loads(told.stdout)["collections"][0]
    return found


def wait_for_state(home: Path, *names: str) -> State:
    """Until children with all these names have been started."""
    deadline = time.monotonic() + PATIENCE
    while True:
        state = read_state(home)
        if state is not None and set(names) <= {child.name for child in state.children}:
            return state
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_demo_survives_kill_9_of_its_parts_and_stays_up_until_it_is_killed(home: Path) -> None:
    _once_with_kills_in_the_middle(home)
    found = cells(home)
    assert len(found) > 50
    for row in found:
        has_readme = row["readme"]["value"] is not None
        for column in ("summary", "words", "audience"):
            assert row[column]["status"] == ("ready" if has_readme else "blocked"), row
        assert row["licence_family"]["status"] == "ready"
        assert row["licence_family"]["model"] == "offline-model"
    by_name = {row["name"]["value"]: row for row in found}
    assert by_name["psycopg"]["licence_family"]["value"] == "weak copyleft"
    assert by_name["pydantic"]["licence_family"]["value"] == "permissive"
    assert "PostgreSQL" in by_name["psycopg"]["summary"]["value"]
    (dispatch,) = collection(home)["dispatches"]
    assert dispatch["ended_at"] is not None
    assert dispatch["attempts"]["interrupted"] > 0
    assert "failed" not in dispatch["attempts"]
    assert autofill(home, "stop").returncode == 0
    assert of_home(home) == []

    _again_for_edits(home)


def _again_for_edits(home: Path) -> None:
    demo = Started(home, "cell_engine.cli", "demo")
    demo.wait_for("Ctrl-C stops everything", patience=PATIENCE)
    assert "loaded before" in demo.text
    assert "calls: 0," in demo.text
    before = cells(home, "--column", "audience", "--column", "summary", "--column", "words")
    edited = autofill(home, "edit", "demo/packages", "1", "summary=Fixtures and assertions for testing.", "--wait")
    assert edited.returncode == 0, edited.stderr
    assert "recomputing audience" in edited.stdout
    after = cells(home, "--column", "audience", "--column", "summary", "--column", "words")
    assert after[0]["audience"]["value"] == "testers"
    assert after[0]["words"] == before[0]["words"]
    assert after[1:] == before[1:]
    status = autofill(home, "status")
    assert "Dagster: http://127.0.0.1:" in status.stdout
    second = autofill(home, "up")
    assert second.returncode == 1
    assert "already up" in second.stderr
    # Killed in the middle of its life, it leaves nothing behind.
    demo.send(signal.SIGKILL)
    demo.wait()
    wait_until_gone(home)


def _once_with_kills_in_the_middle(home: Path) -> None:
    demo = Started(home, "cell_engine.cli", "demo", "--once")
    # Slow answers, so that there is a middle to kill things in.
    model = wait_for_state(home, "offline model").urls["offline model"].removesuffix("/v1")
    demo.wait_for("offline model is ready", patience=PATIENCE)
    body = json.dumps({"latency": 8}).encode()
    urlopen(Request(f"{model}/switches", data=body, method="POST"), timeout=10).close()

    # Calls that are shown as being under way are those whose interruption is counted.
    demo.wait_for("rows running", patience=PATIENCE)
    deadline = time.monotonic() + PATIENCE
    while not any("computing" in by_status for by_status in collection(home)["cells"].values()):
        assert time.monotonic() < deadline, demo.told()
    _child(home, "worker").kill()
    demo.wait_for("worker is back", patience=PATIENCE)
    server = running(home)
    assert server is not None
    os.kill(int((server.data_dir / "postmaster.pid").read_text().splitlines()[0]), signal.SIGKILL)
    demo.wait_for("PostgreSQL is back", patience=PATIENCE)
    _run_process(home).kill()

    assert demo.process.wait(PATIENCE) == 0, demo.told()
    assert "the offline model answers" in demo.text
    assert "PROBLEM" not in demo.text
    assert " SUCCESS" in demo.text


def _child(home: Path, name: str) -> psutil.Process:
    state = wait_for_state(home, name)
    return next(psutil.Process(child.mark.pid) for child in state.children if child.name == name)


def _run_process(home: Path) -> psutil.Process:
    """The process of the Dagster run: a multiprocessing child below the code server."""
    deadline = time.monotonic() + PATIENCE
    while True:
        for process in _child(home, "Dagster code server").children(recursive=True):
            if "spawn_main" in " ".join(process.cmdline()):
                return process
        assert time.monotonic() < deadline
        time.sleep(0.05)
