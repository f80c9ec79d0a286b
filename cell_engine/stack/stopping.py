"""Ending a stack: in order, with grace, and whether or not the `up` that started it is still there."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from cell_engine import embedded
from cell_engine.errors import AutofillError
from cell_engine.stack.processes import alive, kill_session, members, send
from cell_engine.stack.state import Running, forget_state, read_state, stack_lock

_POLL = 0.05
# Seconds. `up` itself needs its workers' grace and a shutdown of the server; whoever cleans up after it, the same.
_UP_PATIENCE = 120.0
_KILLED_PATIENCE = 120.0

Say = Callable[[str], None]


def never() -> bool:
    return False


def stop_children(children: Sequence[Running], say: Say, hurry: Callable[[], bool] = never) -> None:
    """Stop children and all that they have started, a tier at a time. Those that overstay their grace are killed.

    As soon as `hurry` says so, everything that is left is killed at once.
    """
    for tier in sorted({child.tier for child in children}, reverse=True):
        living = [child for child in children if child.tier == tier and members(child.mark)]
        if not living:
            continue
        names = ", ".join(child.name for child in living)
        say(f"stopping {names}")
        asked: set[int] = set()
        started = time.monotonic()
        while living:
            for child in list(living):
                left = members(child.mark)
                if not left:
                    living.remove(child)
                elif hurry() or time.monotonic() - started > child.grace:
                    kill_session(child.mark)
                    if not hurry():
                        say(f"{child.name} did not stop within {child.grace:g} s and was killed")
                else:
                    _ask(child, left, asked)
            time.sleep(_POLL)


def _ask(child: Running, left: Sequence[psutil.Process], asked: set[int]) -> None:
    """Ask the leader, once; when it has gone, those it has left behind, once each."""
    leader = [process for process in left if process.pid == child.mark.pid]
    wanted = [process for process in leader or left if process.pid not in asked]
    asked.update(process.pid for process in wanted)
    send(wanted, signal.Signals(child.stop_signal))


def clean_up(home: Path, say: Say, hurry: Callable[[], bool] = never) -> bool:
    """End what the state describes, children first and then the server; returns whether anything ran.

    Only for who holds the stack's lock.
    """
    state = read_state(home)
    if state is None:
        return False
    children = [child for child in state.children if members(child.mark)]
    stop_children(children, say, hurry)
    stopped = state.embedded and stop_server(home, say)
    forget_state(home)
    return bool(children) or stopped


def stop_server(home: Path, say: Say) -> bool:
    """Stop the home's embedded server; returns whether it ran."""
    if embedded.running(home) is not None:
        say("stopping PostgreSQL")
    return embedded.stop(home)


def stop(home: Path, say: Say) -> bool:
    """Stop this home's stack and server, from wherever they were started, and whatever state they are in.

    Returns whether anything ran. Raises AutofillError for processes that may not be touched or that do not end.
    """
    if not home.exists():
        return False
    state = read_state(home)
    ran = state is not None and state.is_up
    if state is not None and ran:
        say(f"asking the stack (pid {state.up.pid}) to stop")
        try:
            os.kill(state.up.pid, signal.SIGTERM)
        except PermissionError:
            raise AutofillError(
                f"The stack in {home} runs as another user (pid {state.up.pid}): stop it as that user."
            ) from None
        except ProcessLookupError:
            pass
        deadline = time.monotonic() + _UP_PATIENCE
        while alive(state.up) and time.monotonic() < deadline:
            time.sleep(_POLL)
        if alive(state.up):
            say("it does not stop; killing it")
            with suppress(ProcessLookupError):
                os.kill(state.up.pid, signal.SIGKILL)
    with stack_lock(home, _KILLED_PATIENCE) as lock:
        if lock is None:
            raise AutofillError(
                f"Something still holds {home / 'stack.lock'}, perhaps in another container: stop it there."
            )
        left = clean_up(home, say)
        return stop_server(home, say) or left or ran
