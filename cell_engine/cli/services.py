"""Commands that run one process, or end them: worker, janitor, migrate, psql, stop."""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated, Any

import typer

_Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log what it does, not only what goes wrong.")]


def worker(
    job_type: Annotated[
        list[str] | None,
        typer.Option(help="Serve only this kind's pool (llm, function, …); may be repeated. Default: all."),
    ] = None,
    slots: Annotated[int, typer.Option(min=1, help="Calls in flight at most.")] = 500,
    verbose: _Verbose = False,
) -> None:
    """Work on the queue of AUTOFILL_DATABASE_URL until SIGTERM or Ctrl-C; then finish or hand back what is in flight.

    Run as many as you like, on as many machines as you like. Kill one, and its rows go to the others.
    """
    import asyncio

    from cell_engine.log import configure_logging
    from cell_engine.parts import service_url
    from cell_engine.worker import run_worker

    configure_logging(verbose=verbose, json=not sys.stderr.isatty())
    url = service_url()

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def ask() -> None:
            stop.set()
            for number in (signal.SIGINT, signal.SIGTERM):  # a second one ends it at once
                loop.remove_signal_handler(number)

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ask)
        await run_worker(url, job_types=job_type or None, slots=slots, stop=stop)

    asyncio.run(serve())


def janitor(verbose: _Verbose = False) -> None:
    """Give back the rows of workers that died and end what is over, every few seconds, until SIGTERM or Ctrl-C.

    Run one at least; several are safe.
    """
    import threading

    from cell_engine.janitor import run_janitor
    from cell_engine.log import configure_logging
    from cell_engine.parts import service_url

    configure_logging(verbose=verbose, json=not sys.stderr.isatty())
    url = service_url()
    stop = threading.Event()

    def ask(*_: object) -> None:
        # Elsewhere: the main thread, interrupted anywhere, may be holding the event's own lock.
        threading.Thread(target=stop.set).start()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, ask)
    run_janitor(url, stop=stop)


def migrate() -> None:
    """Bring the database to the newest schema. Safe while older processes work with it; they go on."""
    from cell_engine.embedded import database_url
    from cell_engine.settings import get_settings
    from cell_engine.store.migrating import migrate as migrate_schema

    before, after = migrate_schema(database_url(get_settings()))
    typer.echo(f"schema {before} is the newest already" if before == after else f"schema {before} → {after}")


def psql(context: typer.Context) -> None:
    """Open psql on the database; everything behind `psql` is passed on to it: `autofill psql -c 'select 1'`."""
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    from cell_engine.embedded import database_url, find_psql, running
    from cell_engine.settings import get_settings

    settings = get_settings()
    options: dict[str, Any] = dict(conninfo_to_dict(database_url(settings)))
    environment = dict(os.environ)
    password = options.pop("password", None)
    if password is not None:
        environment["PGPASSWORD"] = password  # everybody can read the arguments of a process
    server = running(settings.home) if settings.database_url is None else None
    program = find_psql(server.version if server is not None else 0)
    sys.stdout.flush()
    arguments = [str(program), f"--dbname={make_conninfo(**options)}", *context.args]
    os.execve(program, arguments, environment)  # noqa: S606 - psql is what was asked for


def stop() -> None:
    """Stop the stack and the embedded PostgreSQL, whatever started them; fine when nothing runs."""
    from cell_engine.settings import get_settings
    from cell_engine.stack.stopping import stop as stop_stack

    home = get_settings().home
    typer.echo("everything has stopped" if stop_stack(home, typer.echo) else f"nothing of {home} was running")


COMMANDS = (worker, janitor, migrate, psql, stop)
CONTEXT_SETTINGS: dict[str, dict[str, Any]] = {"psql": {"allow_extra_args": True, "ignore_unknown_options": True}}
