"""One service of the stack: what it is, and the child process that runs it, started again when it dies."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cell_engine.stack.processes import Mark, kill_session, mark
from cell_engine.stack.state import Running, signal_name

_BACKOFF = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_STEADY = 30.0  # seconds after which a death is the first one again
_LOG_BYTES = 10_000_000


def at_once(_pid: int) -> bool:
    return True


@dataclass(frozen=True)
class Service:
    """How to run one service. `ready` is asked again and again, with the pid, until it first says yes.

    `tier` and `grace` are those of `Running`; `after` names the services that have to be ready before it starts.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    tier: int
    ready: Callable[[int], bool] = at_once
    after: tuple[str, ...] = ()
    stop_signal: signal.Signals = signal.SIGTERM
    grace: float = 10.0


class Child:
    """The process that runs a service now, if one does. Used by one thread."""

    def __init__(self, service: Service, logs: Path) -> None:
        self.service = service
        self.log = logs / f"{service.name.lower().replace(' ', '-')}.log"
        self.ready = False
        self.deaths = 0
        """Deaths in a row, without a steady life between them."""
        self.mark: Mark | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._due = 0.0

    @property
    def runs(self) -> bool:
        return self._process is not None

    @property
    def is_due(self) -> bool:
        return not self.runs and time.monotonic() >= self._due

    @property
    def seconds(self) -> float:
        """How long it has been running."""
        return time.monotonic() - self._started

    def start(self) -> None:
        """Start it as the leader of a session of its own, out of reach of the terminal's Ctrl-C."""
        with self.log.open("ab") as log:
            # No preexec_fn, which is unsafe beside threads: `up` handles SIGINT and SIGTERM, so exec resets both to
            # their defaults here, also where `up` itself was started with SIGINT ignored.
            self._process = subprocess.Popen(
                self.service.command,
                env=dict(self.service.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.ready = False
        self._started = time.monotonic()
        self.mark = mark(self._process.pid)

    def died(self) -> str | None:
        """How it ended, once, if it has; it is due again after a pause that grows from death to death."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        if self.mark is not None:
            kill_session(self.mark)  # a child of its own would hold the port or do its work beside the next one
        self.deaths = 1 if self.ready and self.seconds > _STEADY else self.deaths + 1
        self._process = None
        self._due = time.monotonic() + self.pause
        return f"was killed by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"

    @property
    def pause(self) -> float:
        """Seconds between its last death and the next start."""
        return _BACKOFF[min(max(self.deaths, 1), len(_BACKOFF)) - 1]

    def reap(self) -> None:
        """Collect what is left of a process that has been stopped."""
        if self._process is not None:
            self._process.wait()
            self._process = None

    def running(self) -> Running | None:
        """What others need to stop it."""
        if self.mark is None or not self.runs:
            return None
        service = self.service
        return Running(service.name, self.mark, service.tier, int(service.stop_signal), service.grace)

    def rotate_log(self) -> None:
        if self.log.exists() and self.log.stat().st_size > _LOG_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))

    def last_words(self, lines: int = 15) -> str:
        """The end of its log."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, self.log.stat().st_size - 20_000))
                return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""
