from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

PROJECT = Path(__file__).resolve().parents[2]
PATIENCE = 40.0


class Started:
    """A process that runs a stack, whose lines can be waited for."""

    def __init__(self, home: Path, *command: str, ignoring_sigint: bool = False) -> None:
        self.home = home
        self.output = home.parent / f"output-{time.monotonic_ns()}"
        environment = os.environ | {"AUTOFILL_HOME": str(home)}
        shell = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"] if ignoring_sigint else []
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*shell, sys.executable, "-m", *command],
                cwd=PROJECT,
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )

    @property
    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def wait_for(self, line: str, patience: float = PATIENCE) -> None:
        deadline = time.monotonic() + patience
        while line not in self.text:
            assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.told()}"
            assert time.monotonic() < deadline, f"waited in vain for {line!r}:\n{self.told()}"
            time.sleep(0.02)

    def told(self) -> str:
        """What it printed and the ends of its children's logs."""
        logs = sorted((self.home / "logs").glob("*.log"))
        ends = [f"--- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-30:]) for log in logs]
        return "\n".join([self.text, *ends])

    def send(self, how: signal.Signals) -> None:
        self.process.send_signal(how)

    def wait(self) -> int:
        return self.process.wait(PATIENCE)


def of_home(home: Path) -> list[psutil.Process]:
    """Living processes that belong to a home: by its mention in their environment, arguments or folder."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            told = [process.environ().get("AUTOFILL_HOME", ""), process.cwd(), *process.cmdline()]
            if any(str(home) in one for one in told):
                found.append(process)
    return found


def wait_until_gone(home: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while left := of_home(home):
        assert time.monotonic() < deadline, f"still running: {[process.cmdline() for process in left]}"
        time.sleep(0.05)


@pytest.fixture
def home() -> Iterator[Path]:
    """An installation of the test's own, in a folder that the database's account can reach; all of it ends with it."""
    with tempfile.TemporaryDirectory(prefix="autofill-test-") as folder:
        reachable = Path(folder).resolve()
        reachable.chmod(0o755)
        yield reachable / "home"
        for process in of_home(reachable / "home"):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        wait_until_gone(reachable / "home")
