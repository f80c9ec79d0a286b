"""Commands that run one process, or end them: worker, janitor, migrate, psql, stop."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from cell_engine.health import Watched

LOOPBACK = "127.0.0.1"
_HealthPort = Annotated[
    int | None,
    typer.Option(
        envvar="AUTOFILL_HEALTH_PORT", min=0, max=65535, help="Answer /live, /ready and /metrics (Prometheus) there."
    ),
]
_HealthAddress = Annotated[
    str, typer.Option(envvar="AUTOFILL_HEALTH_ADDRESS", help="Where --health-port listens; 0.0.0.0 in a pod.")
]
_Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log what it does, not only what goes wrong.")]


def worker(
    job_type: Annotated[
        list[str] | None,
        typer.Option(help="Serve only this kind's pool (llm, function, …); may be repeated. Default: all."),
    ] = None,
    slots: Annotated[int, typer.Option(min=1, help="Calls in flight at most.")] = 500,
    drain: Annotated[
        float,
        typer.Option(envvar="AUTOFILL_DRAIN", min=0, help="Seconds for calls in flight once it is asked to stop."),
    ] = 60.0,
    health_port: _HealthPort = None,
    health_address: _HealthAddress = LOOPBACK,
    verbose: _Verbose = False,
) -> None:
    """Work on the queue of AUTOFILL_DATABASE_URL until SIGTERM or Ctrl-C; then finish or hand back what is in flight.

    Whatever stops it (systemd, Kubernetes) has to wait a while longer than --drain.

    Run as many as you like, on as many machines as you like. Kill one, and its rows go to the others.
    """
    import asyncio

    from cell_engine.log import configure_logging
    from cell_engine.parts import service_url
    from cell_engine.worker import run_worker
    from cell_engine.worker.watch import Watch

    configure_logging(verbose=verbose, json=not sys.stderr.isatty())
    url, watch = service_url(), Watch()

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def ask() -> None:
            stop.set()
            for number in (signal.SIGINT, signal.SIGTERM):  # a second one ends it at once
                loop.remove_signal_handler(number)

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, ask)
        with _health(watch, health_address, health_port):
            await run_worker(url, job_types=job_type or None, slots=slots, grace=drain, watch=watch, stop=stop)

    asyncio.run(serve())


def janitor(
    health_port: _HealthPort = None, health_address: _HealthAddress = LOOPBACK, verbose: _Verbose = False
) -> None:
    """Give back the rows of workers that died and end what is over, every few seconds, until SIGTERM or Ctrl-C.

    Run one at least; several are safe.
    """
    import threading

    from cell_engine.janitor import run_janitor
    from cell_engine.janitor_watch import JanitorWatch
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
    watch = JanitorWatch()
    with _health(watch, health_address, health_port):
        run_janitor(url, watch=watch, stop=stop)


def _health(watched: Watched, address: str, port: int | None) -> AbstractContextManager[object]:
    if port is None:
        return nullcontext()
    from cell_engine.health import serve_health

    return serve_health(watched, address, port)


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
