"""The command that shows the product at work: the packages on everything there is, and smaller demos by name."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cell_engine.cli.stack_commands import open_stack, start_services
from cell_engine.demo.registry import OFFERED, PACKAGES, Offered, find_demo
from cell_engine.errors import AutofillError, BadValueError

if TYPE_CHECKING:
    from rich.console import Console

    from cell_engine.demo.patience import PatientStore
    from cell_engine.demo.run import Demo, Watched
    from cell_engine.specs.compiled import CompiledSpec
    from cell_engine.stack.running import Stack
    from cell_engine.store.reading import Progress

_FIRST_ROWS = 10
_SHOWN_COLUMNS = ("name", "version", "summary", "audience", "licence_family", "words")
_NAMES = f"Which: {', '.join([PACKAGES, *(one.name for one in OFFERED)])}."


def demo(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help=_NAMES)] = PACKAGES,
    once: Annotated[
        bool, typer.Option("--once", help="Stop when all cells have ended; exit code 0 if all is well.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before calling a real API.")] = False,
) -> None:
    """Everything at work: `up`, plus a collection of the Python packages installed here, filled before your eyes.

    A file with one row for each package is dropped into the inbox; Dagster's sensor loads it and starts the run that
    fills the computed columns. With a NAME another, smaller demo, without Dagster. Stays up until Ctrl-C.
    """
    offered = find_demo(name)
    well = _packages(once, yes) if offered is None else _play(offered, once, yes)
    if once and not well:
        raise typer.Exit(1)


def _packages(once: bool, yes: bool) -> bool:
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
    _say_model(screen, spec, [asdict(row) for row in rows], yes)
    with open_stack(screen) as stack:
        migrate(stack.url)
        with open_store("demo", stack.url) as connection:
            prepared = prepare(connection, spec, rows, stack.home)
        screen.print(f"{len(rows)} packages are installed here: {prepared.file}", soft_wrap=True)
        urls = start_services(stack, screen)
        dagster = urls.get("Dagster")
        if dagster is None:
            raise AutofillError("The demo needs Dagster: pip install 'collection-autofill[dagster]'")
        stack.wait_until_ready()
        with PatientStore(stack.url, "demo", stack.pause) as store:
            well = _watch(stack, screen, store, prepared, dagster, f"{spec.namespace}__{spec.name}")
        if not once:
            _say_next(screen, prepared, dagster)
            stack.wait()
    return well


def _play(offered: Offered, once: bool, yes: bool) -> bool:
    from cell_engine.cli import render
    from cell_engine.demo.patience import PatientStore
    from cell_engine.demo.run import watch
    from cell_engine.demo.stage import Stage
    from cell_engine.parts import open_store
    from cell_engine.specs.compile import compile_file
    from cell_engine.store.migrating import migrate

    screen = render.console()
    spec = compile_file(offered.spec_file)
    screen.print(offered.about, soft_wrap=True)
    _say_model(screen, spec, offered.largest_rows(spec), yes)
    with open_stack(screen) as stack:
        migrate(stack.url)
        with open_store("demo", stack.url) as connection:
            watched = watch(connection, spec)
        start_services(stack, screen, dagster=False, of_worker=offered.environment)
        stack.wait_until_ready()
        folder = stack.home / "demo" / offered.name
        folder.mkdir(parents=True, exist_ok=True)
        with PatientStore(stack.url, "demo", stack.pause) as store:
            stage = Stage(folder, stack.url, watched, store, stack.pause, _Screen(screen))
            found = offered.play(stage)
        for problem in found:
            screen.print(f"PROBLEM: {problem}", soft_wrap=True)
        if not once:
            name = watched.collection.full_name
            screen.print(
                f"""
From another terminal, while this is up:
  {_program()} show {name} --rows 5
  {_program()} attempts {name}
  {_program()} status {name}

Ctrl-C stops everything.""",
                soft_wrap=True,
            )
            stack.wait()
    return not found


class _Screen:
    """The terminal, for a Stage."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)

    def rows(self, watched: Watched, inputs: Any, cells: Any, columns: Sequence[str]) -> None:
        from cell_engine.cli import render

        self._console.print(render.rows_table(watched.version, inputs, cells, columns, self._console.width))

    @contextmanager
    def following(self, watched: Watched) -> Iterator[Callable[[Progress], None]]:
        from cell_engine.cli import render

        with render.follower(self._console, watched.collection.full_name) as shown:
            yield shown.update


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
    autofill = _program()
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


def _program() -> str:
    """`autofill` as it can be pasted: not on everybody's PATH, and about this home."""
    program = Path(sys.executable).with_name("autofill")
    shown = program.relative_to(Path.cwd()) if program.is_relative_to(Path.cwd()) else program
    home = f"AUTOFILL_HOME={shlex.quote(os.environ['AUTOFILL_HOME'])} " if os.environ.get("AUTOFILL_HOME") else ""
    return home + shlex.quote(str(shown))


def _say_model(screen: Console, spec: CompiledSpec, rows: Sequence[Mapping[str, Any]], yes: bool) -> None:
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


COMMANDS = (demo,)
CONTEXT_SETTINGS: dict[str, dict[str, Any]] = {}
