"""Waiting for a dispatch: it needs nothing of the run, which looks, says how far it is, and may end at any time."""

import time
from collections.abc import Sequence
from typing import Protocol

import dagster as dg
from dagster_postgres.utils import DagsterPostgresException
from sqlalchemy.exc import SQLAlchemyError

from autofill_defs import reports
from autofill_defs.engine import SLICE, PatientEngine
from autofill_defs.request import Request
from cell_engine.specs.version import Column
from cell_engine.store.database import Connection
from cell_engine.store.reading import Progress, live_workers
from cell_engine.store.reading import progress as read_progress
from cell_engine.store.results import end_dispatches

# Progress is summed up over all that the dispatch has done, so it is read for at most this share of the time.
_READING_SHARE = 0.05
# Seconds between two progress lines: a few, then a quarter of the time waited so far, so that even a run of a week
# writes some dozens.
_LINE_EVERY, _LINE_GROWTH = 3.0, 0.25
_WORKERS_EVERY, _WARN_EVERY = 5.0, 120.0


class Say(Protocol):
    """A line in the run's log."""

    def __call__(self, message: str, *, warning: bool = False) -> None: ...


def wait(say: Say, request: Request, dispatch_id: int, engine: PatientEngine) -> Progress:
    """Until the dispatch has ended, or has cost what it may and nothing of it is in flight; in short slices."""
    say(
        f"dispatch {dispatch_id}: {', '.join(column.name for column in request.columns)}; batches: "
        f"{len(request.batches):,}, cells: {request.total:,}"
    )
    started = time.monotonic()
    look_at = line_at = workers_at = 0.0
    warn_at = _WORKERS_EVERY
    away = 0.0
    while True:
        ended = engine(lambda connection: end_dispatches(connection, [dispatch_id]))
        elapsed = time.monotonic() - started
        if engine.away > away:
            say(f"PostgreSQL was away for {engine.away - away:.0f} s; the dispatch goes on")
            away = engine.away
        if ended or elapsed >= look_at:
            progress = engine(lambda connection: read_progress(connection, dispatch_id))
            if progress is None:
                raise dg.Failure(f"dispatch {dispatch_id} is gone: somebody deleted it", allow_retries=False)
            now = time.monotonic() - started
            look_at = now + (now - elapsed) / _READING_SHARE
            if progress.ended_at is not None or (is_at_its_cap(progress) and not progress.running):
                say(reports.progress_line(progress))
                return progress
            if elapsed >= line_at:
                line_at = elapsed + max(_LINE_EVERY, elapsed * _LINE_GROWTH)
                say(reports.progress_line(progress))
        if elapsed >= workers_at:
            workers_at = elapsed + _WORKERS_EVERY
            unserved = engine(lambda connection: _unserved(connection, request.columns))
            if unserved and elapsed >= warn_at:
                warn_at = elapsed + _WARN_EVERY
                say(
                    f"no live worker serves {' or '.join(unserved)}: these cells wait until one is started "
                    f"(`autofill worker --job-type {unserved[0]}`)",
                    warning=True,
                )
        time.sleep(SLICE)


def is_at_its_cap(progress: Progress) -> bool:
    """Whether it is paused for what it has cost: it does not go on by itself."""
    return progress.paused_at is not None and progress.max_cost is not None and progress.cost >= progress.max_cost


def say_in(context: dg.OpExecutionContext) -> Say:
    """Lines in the log of a run. For display: where Dagster's own storage is away as well, they are dropped."""

    def say(message: str, *, warning: bool = False) -> None:
        try:
            (context.log.warning if warning else context.log.info)(message)
        except (SQLAlchemyError, DagsterPostgresException):
            return

    return say


def _unserved(connection: Connection, columns: Sequence[Column]) -> list[str]:
    served = {job_type for worker in live_workers(connection) for job_type in worker.job_types}
    return sorted({column.job_type for column in columns} - served)
