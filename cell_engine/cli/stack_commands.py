"""Commands that run the whole thing on this machine: up and demo."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cell_engine.errors import AutofillError, BadValueError

if TYPE_CHECKING:
    from rich.console import Console

    from cell_engine.demo.distributions import Installed
    from cell_engine.demo.patience import PatientStore
    from cell_engine.demo.run import Demo
    from cell_engine.specs.compiled import CompiledSpec
    from cell_engine.stack.running import Stack

_INTERRUPTED = 130
_FIRST_ROWS = 10
_SHOWN_COLUMNS = ("name", "version", "summary", "audience", "licence_family", "words")


def up() -> None:
    """Start everything on this machine: PostgreSQL, a worker, the janitor and Dagster; Ctrl-C stops it all.

    The offline model, a stand-in that needs no key, answers where neither OPENAI_API_KEY nor OPENAI_BASE_URL is set.
    With AUTOFILL_DATABASE_URL, that database is used, and left running.
    """
    from cell_engine.cli import render

    screen = render.console()
    with _stack(screen) as stack:
        _check_schema(stack)
        urls = _start(stack, screen)
        stack.wait_until_ready()
        for name, url in urls.items():
            screen.print(f"{name}: {url}", soft_wrap=True)
        screen.print("Everything is up. Ctrl-C stops it.")
        stack.wait()


def demo(
    once: Annotated[
        bool, typer.Option("--once", help="Stop when all cells have ended; exit code 0 if all is well.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before calling a real API.")] = False,
) -> None:
    """Everything at work: `up`, plus a collection of the Python packages installed here, filled before your eyes.

    A file with one row for each package is dropped into the inbox; Dagster's sensor loads it and starts the run that
    fills the computed columns. Stays up until Ctrl-C.
    """
    from cell_engine.cli import render
    from cell_engine.demo import SPEC_FILE
    from cell_engine.demo.distributions import installed
    from cell_engine.demo.patience import PatientStore
    from cell_engine.demo.run import prepare
    from cell_engine.parts import open_store
    from cell_engine.specs.compile import compile_file
    from cell_engine.store.migrating import migrate

    screen = render.console()
    spec = compile_file(SPEC_FILE)
    rows = installed()
    _say_model(screen, spec, rows, yes)
    with _stack(screen) as stack:
        migrate(stack.url)
        with open_store("demo", stack.url) as connection:
            prepared = prepare(connection, spec, rows, stack.home)
        screen.print(f"{len(rows)} packages are installed here: {prepared.file}", soft_wrap=True)
        urls = _start(stack, screen)
        dagster = urls.get("Dagster")
        if dagster is None:
            raise AutofillError("The demo needs Dagster: pip install 'collection-autofill[dagster]'")
        stack.wait_until_ready()
        with PatientStore(stack.url, "demo", stack.pause) as store:
            well = _watch(stack, screen, store, prepared, dagster, f"{spec.namespace}__{spec.name}")
        if not once:
            _say_next(screen, prepared, dagster)
            stack.wait()
    if once and not well:
        raise typer.Exit(1)


def _watch(stack: Stack, screen: Console, store: PatientStore, demo: Demo, dagster: str, job: str) -> bool:
    """Follow the demo to its end and print what came of it; returns whether all is well."""
    from cell_engine.cli import render
    from cell_engine.demo import run
    from cell_engine.demo.dagster_runs import wait_for_success
    from cell_engine.store.reading import page, status_counts

    if demo.is_loaded:
        screen.print("This very file was loaded before: its cells are kept, and only what is missing is computed.")
    else:
        screen.print("waiting for Dagster's sensor to see the file")
        rows = run.wait_for_rows(store, demo, stack.pause)
        screen.print(f"{rows} rows are in; Dagster runs {job}")
    with render.follower(screen, demo.collection.full_name) as shown:
        run.follow(store, demo, stack.pause, shown.update)
    found = store(lambda connection: run.problems(connection, demo))
    inputs, cells = store(lambda connection: page(connection, demo.collection.id, limit=_FIRST_ROWS))
    screen.print(render.rows_table(demo.version, inputs, cells, _SHOWN_COLUMNS, screen.width))
    counts = store(lambda connection: status_counts(connection, demo.collection.id))
    screen.print(render.status_table(demo.version, counts))
    screen.print("waiting for Dagster's run to report")
    latest, trouble = wait_for_success(dagster, job, stack.pause)
    found += [trouble] if trouble else []
    total = store(lambda connection: run.totals(connection, demo))
    by_status = ", ".join(f"{count:,} {status}" for status, count in sorted(total.cells.items()))
    screen.print(
        f"cells: {by_status}; calls: {total.calls:,}, {total.interrupted:,} of them interrupted; "
        f"tokens: {total.tokens_in:,} in, {total.tokens_out:,} out; {total.seconds:.1f} s",
        soft_wrap=True,
    )
    if latest is not None:
        screen.print(f"Dagster's run: {latest.url} {latest.status}", soft_wrap=True)
    for problem in found:
        screen.print(f"PROBLEM: {problem}", soft_wrap=True)
    return not found


def _say_next(screen: Console, demo: Demo, dagster: str) -> None:
    name = demo.collection.full_name
    # As it can be pasted: not on everybody's PATH, and about this home.
    program = Path(sys.executable).with_name("autofill")
    shown = program.relative_to(Path.cwd()) if program.is_relative_to(Path.cwd()) else program
    home = f"AUTOFILL_HOME={shlex.quote(os.environ['AUTOFILL_HOME'])} " if os.environ.get("AUTOFILL_HOME") else ""
    autofill = home + shlex.quote(str(shown))
    screen.print(
        f"""
Dagster: {dagster}
  Assets → {" / ".join(name.split("/"))} → summary: what each batch brought, with counts, tokens and a preview
  Runs → the latest: how it waited for the cells, while workers outside of Dagster computed them
  Automation: the sensor that saw the file

From another terminal, while this is up:
  {autofill} edit {name} 1 summary='A tool for testers.'    # recomputes the audience of row 1, and nothing else
  {autofill} show {name} --rows 3
  {autofill} status {name}

Ctrl-C stops everything.""",
        soft_wrap=True,
    )


def _say_model(screen: Console, spec: CompiledSpec, rows: list[Installed], yes: bool) -> None:
    """Say who will answer; where that is a real API, ask first."""
    from cell_engine.demo.confirm import describe, estimate
    from cell_engine.stack.services import needs_offline_model

    if needs_offline_model():
        screen.print(
            "No OPENAI_API_KEY or OPENAI_BASE_URL is set: the offline model answers. It extracts sentences and counts "
            "words; it is a stand-in that needs no key, not an LLM.",
            soft_wrap=True,
        )
        return
    if not os.environ.get("OPENAI_API_KEY"):
        raise BadValueError(
            "OPENAI_BASE_URL is set and OPENAI_API_KEY is not: set it, too (to any text, if that server asks for none)."
        )
    screen.print(describe(estimate(spec, rows), os.environ), soft_wrap=True)
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadValueError("There is nobody to ask, so nothing was called: say --yes to go on.")
    typer.confirm("Go on?", abort=True)


def _start(stack: Stack, screen: Console) -> dict[str, str]:
    """Start the services; returns their addresses by name."""
    from cell_engine.settings import get_settings
    from cell_engine.stack.services import plan_services

    plan = plan_services(get_settings(), stack.url)
    for note in plan.notes:
        screen.print(note, soft_wrap=True)
    stack.start(plan.services, plan.urls)
    return plan.urls


def _check_schema(stack: Stack) -> None:
    from cell_engine.parts import open_store

    open_store("up", stack.url).close()


@contextmanager
def _stack(screen: Console) -> Iterator[Stack]:
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


COMMANDS = (up, demo)
CONTEXT_SETTINGS: dict[str, dict[str, Any]] = {}
