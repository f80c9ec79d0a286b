"""The command that runs the whole thing on this machine, and what the demos need of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from cell_engine.stack.running import Stack

_INTERRUPTED = 130


def up() -> None:
    """Start everything on this machine: PostgreSQL, a worker, the janitor and Dagster; Ctrl-C stops it all.

    The offline model, a stand-in that needs no key, answers where neither OPENAI_API_KEY nor OPENAI_BASE_URL is set.
    With AUTOFILL_DATABASE_URL, that database is used, and left running.
    """
    from cell_engine.cli import render

    screen = render.console()
    with open_stack(screen) as stack:
        _check_schema(stack)
        urls = start_services(stack, screen)
        stack.wait_until_ready()
        for name, url in urls.items():
            screen.print(f"{name}: {url}", soft_wrap=True)
        screen.print("Everything is up. Ctrl-C stops it.")
        stack.wait()


def start_services(
    stack: Stack, screen: Console, *, dagster: bool = True, of_worker: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Start the services; returns their addresses by name. `of_worker` are variables of the worker's environment."""
    from cell_engine.settings import get_settings
    from cell_engine.stack.services import plan_services

    plan = plan_services(get_settings(), stack.url, dagster=dagster, of_worker=of_worker)
    for note in plan.notes:
        screen.print(note, soft_wrap=True)
    stack.start(plan.services, plan.urls)
    return plan.urls


def _check_schema(stack: Stack) -> None:
    from cell_engine.parts import open_store

    open_store("up", stack.url).close()


@contextmanager
def open_stack(screen: Console) -> Iterator[Stack]:
    """The stack of this home, stopped in the end whatever happens; exit code 130 when that was asked for too early."""
    from cell_engine.settings import get_settings
    from cell_engine.stack.running import Stack, StopRequested

    try:
        with Stack(get_settings(), _sayer(screen)) as stack:
            screen.print(
                "PostgreSQL is ready" if stack.is_embedded else "the database of AUTOFILL_DATABASE_URL is used"
            )
            yield stack
    except StopRequested:
        raise typer.Exit(_INTERRUPTED) from None


def _sayer(screen: Console) -> Callable[[str], None]:
    def say(line: str) -> None:
        # A terminal that is gone must not keep the stack from being stopped in order.
        with suppress(OSError):
            screen.print(line, soft_wrap=True)

    return say


COMMANDS = (up,)
CONTEXT_SETTINGS: dict[str, dict[str, Any]] = {}
