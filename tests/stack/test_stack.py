"""A stack of stand-in services: it starts, survives deaths, and always ends with nothing left."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from cell_engine.cli.main import app
from cell_engine.embedded import running
from cell_engine.errors import AutofillError
from cell_engine.settings import Settings
from cell_engine.stack.running import Stack
from cell_engine.stack.service import Service
from cell_engine.stack.state import State, read_state, write_state
from cell_engine.stack.stopping import stop

from ..embedded.helpers import alive
from .conftest import PATIENCE, Started, of_home, wait_until_gone

SLEEPER = "import time; time.sleep(1000)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(1000)"
)
# Leaves a grandchild behind when it is asked to stop.
PARENT = (
    "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)']); "
    "time.sleep(1000)"
)


def start(home: Path, *services: str, ignoring_sigint: bool = False) -> Started:
    return Started(home, "tests.stack.driver", *services, ignoring_sigint=ignoring_sigint)


def child(home: Path, name: str) -> psutil.Process:
    state = read_state(home)
    assert state is not None
    return next(psutil.Process(one.mark.pid) for one in state.children if one.name == name)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_everything_in_order(home: Path, how: signal.Signals) -> None:
    stack = start(home, f"low={SLEEPER}", f"high={PARENT}")
    stack.wait_for("up\n")
    assert running(home) is not None
    stack.send(how)
    assert stack.wait() == 0
    assert of_home(home) == []
    assert [line for line in stack.text.splitlines() if line.startswith("stopping")] == [
        "stopping high",
        "stopping low",
        "stopping PostgreSQL",
    ]
    assert read_state(home) is None


def test_ctrl_c_works_where_sigint_was_ignored_at_the_start(home: Path) -> None:
    stack = start(home, f"one={SLEEPER}", ignoring_sigint=True)
    stack.wait_for("up\n")
    stack.send(signal.SIGINT)
    assert stack.wait() == 0
    assert of_home(home) == []


def test_children_can_be_interrupted(home: Path) -> None:
    # They must not inherit that SIGINT is ignored: Dagster is stopped by it.
    stack = start(home, f"one={SLEEPER}", ignoring_sigint=True)
    stack.wait_for("up\n")
    child(home, "one").send_signal(signal.SIGINT)
    stack.wait_for("one is back")
    stack.send(signal.SIGTERM)
    assert stack.wait() == 0


def test_kill_9_of_the_parent_leaves_nothing(home: Path) -> None:
    stack = start(home, f"one={SLEEPER}", f"two={PARENT}")
    stack.wait_for("up\n")
    stack.send(signal.SIGKILL)
    stack.wait()
    wait_until_gone(home)
    assert running(home) is None


def guardian(home: Path) -> psutil.Process:
    return next(process for process in of_home(home) if "cell_engine.stack.guardian" in process.cmdline())


def test_the_next_stack_waits_for_what_the_killed_one_left(home: Path) -> None:
    first = start(home, f"one={SLEEPER}")
    first.wait_for("up\n")
    left = child(home, "one")
    cleaning = guardian(home)
    cleaning.suspend()
    first.send(signal.SIGKILL)
    first.wait()
    second = start(home, f"one={SLEEPER}")
    second.wait_for("cleaning up after the last stack")
    # Two that clean up at once would end each other's server.
    for _ in range(20):
        time.sleep(0.05)
        assert alive(left)
        state = read_state(home)
        assert state is not None
        assert state.up.pid == first.process.pid
    cleaning.resume()
    second.wait_for("up\n")
    assert not alive(left)
    second.send(signal.SIGTERM)
    assert second.wait() == 0
    assert "PostgreSQL is gone" not in second.text
    assert of_home(home) == []


def test_stop_works_after_even_the_guardian_was_killed(home: Path) -> None:
    stack = start(home, f"one={SLEEPER}", f"two={PARENT}")
    stack.wait_for("up\n")
    guardian(home).kill()
    stack.send(signal.SIGKILL)
    stack.wait()
    assert len(of_home(home)) > 3
    said: list[str] = []
    assert stop(home, said.append)
    assert of_home(home) == []
    assert not stop(home, said.append)


def test_stop_asks_a_living_stack(home: Path) -> None:
    stack = start(home, f"one={SLEEPER}")
    stack.wait_for("up\n")
    assert stop(home, lambda _: None)
    assert stack.wait() == 0
    assert of_home(home) == []


def test_stop_before_it_is_up(home: Path) -> None:
    stack = start(home, f"one={SLEEPER}")
    deadline = time.monotonic() + PATIENCE
    while read_state(home) is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    stack.send(signal.SIGTERM)
    assert stack.wait() in (0, 130)
    assert of_home(home) == []


def test_a_second_stack_is_refused(home: Path) -> None:
    first = start(home, f"one={SLEEPER}")
    first.wait_for("up\n")
    second = start(home, f"one={SLEEPER}")
    assert second.wait() == 1
    assert f"already up (pid {first.process.pid})" in second.text
    assert "http://127.0.0.1:1" in second.text
    first.send(signal.SIGTERM)
    assert first.wait() == 0


def test_a_dead_child_is_started_again_without_its_own_children(home: Path) -> None:
    stack = start(home, f"one={PARENT}")
    stack.wait_for("up\n")
    one = child(home, "one")
    deadline = time.monotonic() + PATIENCE
    while not (grandchildren := one.children()):
        assert time.monotonic() < deadline
    one.kill()
    stack.wait_for("one is back")
    assert "one was killed by SIGKILL; starting it again" in stack.text
    assert not any(map(alive, grandchildren))
    stack.send(signal.SIGTERM)
    assert stack.wait() == 0
    assert of_home(home) == []


def test_a_dead_server_is_started_again(home: Path) -> None:
    stack = start(home, f"one={SLEEPER}")
    stack.wait_for("up\n")
    server = running(home)
    assert server is not None
    os.kill(int((server.data_dir / "postmaster.pid").read_text().splitlines()[0]), signal.SIGKILL)
    stack.wait_for("PostgreSQL is back")
    assert running(home) is not None
    stack.send(signal.SIGTERM)
    assert stack.wait() == 0


def test_a_child_that_does_not_start_is_told_with_its_last_words(home: Path) -> None:
    stack = start(home, "fine=" + SLEEPER, "broken=raise SystemExit('no such thing as a frobnicator')")
    assert stack.wait() == 1
    assert "ERROR broken does not start: it ended with exit code 1" in stack.text
    assert "no such thing as a frobnicator" in stack.text
    assert of_home(home) == []


def test_a_child_that_overstays_its_grace_is_killed(home: Path) -> None:
    stack = start(home, f"deaf={STUBBORN}")
    stack.wait_for("up\n")
    log = home / "logs" / "deaf.log"
    deadline = time.monotonic() + PATIENCE
    while "deaf" not in log.read_text():
        assert time.monotonic() < deadline
    stack.send(signal.SIGTERM)
    assert stack.wait() == 0
    assert "deaf did not stop within 2 s and was killed" in stack.text
    assert of_home(home) == []


def test_a_recycled_pid_is_not_touched(home: Path) -> None:
    home.mkdir()
    stranger = psutil.Popen(["sleep", "1000"], start_new_session=True)
    try:
        mark = {"pid": stranger.pid, "started": "12345 another"}
        one = {"name": "one", "mark": mark, "tier": 0, "stop_signal": 15, "grace": 1}
        state = {"up": mark, "embedded": True, "children": [one], "urls": {}}
        (home / "stack.json").write_text(json.dumps(state))
        assert not stop(home, lambda _: None)
        assert stranger.poll() is None
        assert read_state(home) is None
    finally:
        stranger.kill()
        stranger.wait()


def test_an_unreadable_state_is_none(home: Path) -> None:
    home.mkdir()
    (home / "stack.json").write_text('{"up": 1}')
    assert read_state(home) is None
    assert not stop(home, lambda _: None)


def test_a_full_disk_leaves_no_child_behind(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(to: Path, state: State) -> None:
        if state.children:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_state(to, state)

    monkeypatch.setattr("cell_engine.stack.running.write_state", fails)
    settings = Settings(home=home, database_url=SecretStr("postgresql:///none"))
    before = psutil.Process().children()
    with pytest.raises(AutofillError, match="No space left"), Stack(settings, lambda _: None) as stack:
        stack.start([Service("one", (sys.executable, "-c", SLEEPER), os.environ, tier=0)], {})
        stack.pause(PATIENCE)
    assert psutil.Process().children() == before


def test_up_on_a_full_disk_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(to: Path, _state: State) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(to / "stack.json"))

    monkeypatch.setattr("cell_engine.stack.running.write_state", fails)
    monkeypatch.setenv("AUTOFILL_HOME", str(home))
    told = CliRunner().invoke(app, ["up"])
    assert told.exit_code == 1
    assert told.stderr.strip().startswith(f"Cannot write {home / 'stack.json'}: No space left on device.")


def test_up_refuses_a_database_that_was_not_migrated(home: Path) -> None:
    up = Started(home, "cell_engine.cli", "up")
    assert up.wait() == 3
    assert "run `autofill migrate`" in up.text
    assert of_home(home) == []
