"""A running stack: `with Stack(…) as stack` has the lock, the guardian and the database, `stack.start` the services."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from cell_engine import embedded
from cell_engine.errors import AutofillError
from cell_engine.settings import Settings
from cell_engine.stack.processes import mark
from cell_engine.stack.service import Service
from cell_engine.stack.state import Running, State, read_state, stack_lock, write_state
from cell_engine.stack.stopping import clean_up, stop_children
from cell_engine.stack.supervisor import Say, Supervisor

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SLICE = 0.05
# Seconds. A killed stack's guardian needs its workers' grace and a shutdown of the server.
_LOCK_PATIENCE = 60.0
# One Ctrl-C may arrive twice, from the terminal and from the `make` in between: only a later one means "at once".
_SECOND_SIGNAL = 1.0


class StopRequested(Exception):
    """Ctrl-C, SIGTERM or `autofill stop`."""


class AlreadyUpError(AutofillError):
    """This home's stack is up: one is enough."""


class Stack:
    """One home's stack, from the main thread. Leaving the `with` block stops everything, in order, whatever ended it.

    Signals only set a flag, which `pause` and `wait_until_ready` turn into StopRequested: nothing is interrupted half
    done. A second signal during the stop kills what is left.
    """

    def __init__(self, settings: Settings, say: Say) -> None:
        self.home = settings.home
        self.url = ""
        """The database, once the stack has been entered."""
        self._settings = settings
        self._say = say
        self._exit = ExitStack()
        self._supervisor: Supervisor | None = None
        self._guardian: subprocess.Popen[bytes] | None = None
        self._urls: dict[str, str] = {}
        self._asked_at: float | None = None
        self._hurry = False

    @property
    def is_embedded(self) -> bool:
        return self._settings.database_url is None

    def __enter__(self) -> Stack:
        """Raises AlreadyUpError, and AutofillError when the embedded server does not start."""
        try:
            self.home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise AutofillError(
                f"Cannot create {self.home} ({error.strerror}): set AUTOFILL_HOME to a folder that you can write to."
            ) from error
        with ExitStack() as entered:
            entered.enter_context(self._handled_signals())
            lock = entered.enter_context(stack_lock(self.home, self._patience_for_lock()))
            if lock is None:
                raise self._already_up()
            clean_up(self.home, self._say)  # in case that both the last `up` and its guardian were killed
            entered.callback(self._stop)
            self._write_state(())
            self._guard(lock)
            self.url = embedded.database_url(self._settings)
            self._check()
            self._exit = entered.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.__exit__(kind, error, trace)

    def start(self, services: Sequence[Service], urls: dict[str, str]) -> None:
        """Start the services, in the background. `urls` (name → address) are for others to find in the state."""
        self._urls = urls
        self._supervisor = Supervisor(
            services, self.home, embedded=self.is_embedded, say=self._say, changed=self._write_state
        )
        self._supervisor.start()

    def wait_until_ready(self) -> None:
        """Raises StopRequested, or AutofillError with the end of its log when a service does not start."""
        while self._supervisor is not None and not self._supervisor.all_ready:
            self.pause(_SLICE)

    def pause(self, seconds: float) -> None:
        """Let time pass. Raises StopRequested once the stack was asked to stop, AutofillError if it cannot go on."""
        deadline = time.monotonic() + seconds
        while True:
            self._check()
            left = deadline - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, _SLICE))

    def wait(self) -> None:
        """Until someone asks to stop."""
        try:
            while True:
                self.pause(3600)
        except StopRequested:
            return

    def _check(self) -> None:
        if self._asked_at is not None:
            raise StopRequested
        if self._supervisor is not None and self._supervisor.failure is not None:
            raise self._supervisor.failure

    def _stop(self) -> None:
        self._asked_at = self._asked_at or time.monotonic()
        if self._supervisor is not None:
            children = self._supervisor.end()
            try:
                self._write_state(children)
            except OSError:  # the disk is full: what was started last is in no file
                stop_children(children, self._say, lambda: self._hurry)
        clean_up(self.home, self._say, lambda: self._hurry)
        if self._supervisor is not None:
            self._supervisor.reap()
        if self._guardian is not None:
            assert self._guardian.stdin is not None
            self._guardian.stdin.close()
            self._guardian.wait()

    def _guard(self, lock: int) -> None:
        with (self._logs() / "guardian.log").open("ab") as log:
            self._guardian = subprocess.Popen(
                [sys.executable, "-m", "cell_engine.stack.guardian", str(self.home)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(lock,),
            )

    def _logs(self) -> Path:
        logs = self.home / "logs"
        logs.mkdir(mode=0o700, exist_ok=True)
        return logs

    def _write_state(self, children: tuple[Running, ...]) -> None:
        up = mark(os.getpid())
        assert up is not None
        write_state(self.home, State(up, self.is_embedded, children, self._urls))

    def _patience_for_lock(self) -> float:
        """No time for an `up` that lives, but some for the guardian of one that was killed."""
        state = read_state(self.home)
        if state is None or state.is_up:
            return 0.0
        self._say("cleaning up after the last stack, which was killed")
        return _LOCK_PATIENCE

    def _already_up(self) -> AlreadyUpError:
        state = read_state(self.home)
        if state is None or not state.is_up:
            return AlreadyUpError(f"Another process is starting or stopping the stack of {self.home}: try again.")
        urls = "".join(f"\n{name}: {url}" for name, url in state.urls.items())
        return AlreadyUpError(
            f"The stack of {self.home} is already up (pid {state.up.pid}); `autofill stop` stops it.{urls}"
        )

    def _handled_signals(self) -> ExitStack:
        handlers = ExitStack()

        def note(number: int, _frame: FrameType | None) -> None:
            now = time.monotonic()
            if self._asked_at is None:
                self._asked_at = now
            elif number == signal.SIGINT and now - self._asked_at > _SECOND_SIGNAL:
                self._hurry = True

        for handled in _SIGNALS:
            before: Any = signal.getsignal(handled)
            if handled == signal.SIGHUP and before == signal.SIG_IGN:
                continue  # nohup
            signal.signal(handled, note)
            handlers.callback(signal.signal, handled, before)
        return handlers
