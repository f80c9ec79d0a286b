"""Keeps the services and the embedded server running: a thread that starts what is due and notices what has died."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cell_engine.embedded import ensure
from cell_engine.embedded import running as running_server
from cell_engine.errors import AutofillError
from cell_engine.stack.service import Child, Service
from cell_engine.stack.state import Running

_POLL = 0.2
_SERVER_POLL = 1.0
_START_DEATHS = 3
_START_SECONDS = 120.0

Say = Callable[[str], None]


class Supervisor:
    """Starts services in the order they wait for each other, and again whenever one dies.

    A service that dies over and over before it was ever ready ends the attempt: `failure` is then what to tell.
    """

    def __init__(
        self,
        services: Sequence[Service],
        home: Path,
        *,
        embedded: bool,
        say: Say,
        changed: Callable[[tuple[Running, ...]], None],
    ) -> None:
        """`embedded`: the home's server is to be kept running, too. `changed` gets the children after each start."""
        logs = home / "logs"
        logs.mkdir(mode=0o700, exist_ok=True)
        self._children = {service.name: Child(service, logs) for service in services}
        self._home = home
        self._embedded = embedded
        self._say = say
        self._changed = changed
        self._ended = threading.Event()
        self._been_ready: set[str] = set()
        self._server_due = 0.0
        self.failure: AutofillError | None = None
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    @property
    def all_ready(self) -> bool:
        """Whether every service has been ready once."""
        return len(self._been_ready) == len(self._children)

    def start(self) -> None:
        for child in self._children.values():
            child.rotate_log()
        self._thread.start()

    def end(self) -> tuple[Running, ...]:
        """Stop supervising; returns the children that still run, for the caller to stop and then `reap`."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        return self._running()

    def reap(self) -> None:
        for child in self._children.values():
            child.reap()

    def _run(self) -> None:
        try:
            while not self._ended.wait(_POLL) and self.failure is None:
                self._look()
        except AutofillError as error:
            self.failure = error
        except Exception as error:  # noqa: BLE001 - a supervisor that is gone must be noticed, whatever ended it
            self.failure = AutofillError(f"The supervisor of the stack failed: {type(error).__name__}: {error}")

    def _look(self) -> None:
        self._keep_server()
        for name, child in self._children.items():
            how = child.died()
            if how is not None:
                self._tell_death(name, child, how)
            elif child.is_due and all(self._children[before].ready for before in child.service.after):
                child.start()
                self._changed(self._running())
            elif child.mark is not None and child.runs and not child.ready:
                self._look_if_ready(name, child, child.mark.pid)

    def _look_if_ready(self, name: str, child: Child, pid: int) -> None:
        if child.service.ready(pid):
            child.ready = True
            self._say(f"{name} is ready" if name not in self._been_ready else f"{name} is back")
            self._been_ready.add(name)
        elif name not in self._been_ready and child.seconds > _START_SECONDS:
            raise AutofillError(
                f"{name} is not ready after {_START_SECONDS:g} s. Its log, {child.log}, ends:\n{child.last_words()}"
            )

    def _tell_death(self, name: str, child: Child, how: str) -> None:
        self._changed(self._running())
        if name not in self._been_ready and child.deaths >= _START_DEATHS:
            raise AutofillError(f"{name} does not start: it {how}. Its log, {child.log}, ends:\n{child.last_words()}")
        self._say(f"{name} {how}; starting it again in {child.pause:g} s (log: {child.log})")

    def _keep_server(self) -> None:
        if not self._embedded or time.monotonic() < self._server_due:
            return
        self._server_due = time.monotonic() + _SERVER_POLL
        if running_server(self._home) is None:
            self._say("PostgreSQL is gone; starting it again")
            ensure(self._home)
            self._say("PostgreSQL is back")

    def _running(self) -> tuple[Running, ...]:
        found = (child.running() for child in self._children.values())
        return tuple(running for running in found if running is not None)
