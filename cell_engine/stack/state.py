"""What a stack leaves in its home folder for others to find: `stack.json`, and the lock that says that one is up."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cell_engine.stack.processes import Mark, alive

_POLL = 0.05


@dataclass(frozen=True)
class Running:
    """A child process of a stack, the leader of its own session, and how it is asked to stop.

    Children of a higher `tier` use those of a lower one, and so stop before them. `grace` is seconds.
    """

    name: str
    mark: Mark
    tier: int
    stop_signal: int
    grace: float


@dataclass(frozen=True)
class State:
    """A stack as its file describes it: the `up` process, its children, and the addresses to open."""

    up: Mark
    embedded: bool
    """Whether the home's server belongs to it."""
    children: tuple[Running, ...] = ()
    urls: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_up(self) -> bool:
        return alive(self.up)


def read_state(home: Path) -> State | None:
    """The stack that was started last and not cleaned up after; whether it runs is for `is_up` to say."""
    try:
        found = json.loads((home / "stack.json").read_text(encoding="utf-8"))
        return State(
            up=Mark(**found["up"]),
            embedded=bool(found["embedded"]),
            children=tuple(Running(**{**child, "mark": Mark(**child["mark"])}) for child in found["children"]),
            urls=found["urls"],
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_state(home: Path, state: State) -> None:
    """Write and rename: whoever reads it while `up` is killed must find all of it."""
    unfinished = home / f"stack.json.{os.getpid()}"
    try:
        unfinished.write_text(json.dumps(asdict(state), indent=1), encoding="utf-8")
        unfinished.chmod(0o600)
        unfinished.replace(home / "stack.json")
    finally:
        unfinished.unlink(missing_ok=True)


def forget_state(home: Path) -> None:
    (home / "stack.json").unlink(missing_ok=True)


@contextmanager
def stack_lock(home: Path, patience: float) -> Iterator[int | None]:
    """Be the only one who starts or cleans up this home's stack; yields the lock's descriptor, to be inherited.

    Yields None when somebody else still holds it after `patience` seconds. The kernel ends it with its last holder.
    """
    lock = os.open(home / "stack.lock", os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + patience
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    yield None
                    return
                time.sleep(_POLL)
            else:
                yield lock
                return
    finally:
        os.close(lock)


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
