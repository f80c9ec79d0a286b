"""What Dagster need not keep for ever, and keeps: runs that are over, and events that newer ones have replaced.

Of each asset and partition the latest materialization stays, and the run it is of: it is what the asset's page shows,
however old. Older ones, observations, check evaluations that a newer one replaces, and runs that nothing is left of go
once they are older than AUTOFILL_RUNS_KEPT days. Only what belongs to this code location. Ticks: `dagster.yaml`.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache

import dagster as dg
from dagster_postgres import PostgresEventLogStorage
from sqlalchemy import TextClause, text

from cell_engine.settings import get_settings
from cell_engine.store.database import SQL

_EVERY = 3600
# Seconds, and rows a statement: a tick stays well below its time limit, and locks little at a time.
_TICK, _STATEMENT = 20.0, 30.0
_EVENTS, _RUNS = 5_000, 20


@cache
def _statement(name: str) -> TextClause:
    """One of `dbt_like_sql/dagster`, which are about Dagster's own tables; parameters as SQLAlchemy writes them."""
    return text((SQL / "dagster" / f"{name}.sql").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Purged:
    """How many of each are gone."""

    events: int
    checks: int
    runs: int


def purge(
    instance: dg.DagsterInstance, location: str, assets: Sequence[dg.AssetKey], before: datetime, seconds: float = _TICK
) -> Purged:
    """Delete what of the code location's is older than `before` and not needed, until `seconds` are over.

    Each step is a transaction of its own, and repeats nothing: a tick killed or overtaken by the next does no harm.
    """
    storage = instance.event_log_storage
    assert isinstance(storage, PostgresEventLogStorage)
    deadline = time.monotonic() + seconds
    given = {"assets": [key.to_string() for key in assets], "before": before.astimezone(UTC).replace(tzinfo=None)}
    events = checks = runs = 0
    while time.monotonic() < deadline:
        with storage.index_transaction() as connection:
            connection.execute(text(f"set local statement_timeout = '{_STATEMENT:.0f}s'"))
            ids = list(connection.execute(_statement("old_events"), {**given, "limit": _EVENTS}).scalars())
            connection.execute(_statement("event_tags"), {"ids": ids})
            replaced = connection.execute(_statement("old_checks"), {**given, "limit": _EVENTS}).rowcount
            found = connection.execute(_statement("old_runs"), {**given, "location": location, "limit": _RUNS})
            over = list(found.scalars())
        for run_id in over:
            instance.delete_run(run_id)
        events, checks, runs = events + len(ids), checks + replaced, runs + len(over)
        if len(ids) < _EVENTS and replaced < _EVENTS and len(over) < _RUNS:
            break
    return Purged(events, checks, runs)


@dg.sensor(
    minimum_interval_seconds=_EVERY,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Deletes runs and events older than AUTOFILL_RUNS_KEPT days (30 by default), except each partition's "
    "latest materialization and its run. Dagster deletes ticks itself, and nothing else.",
)
def retention(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    origin, repository = context.code_location_origin, context.repository_def
    if (
        origin is None
        or repository is None
        or not isinstance(context.instance.event_log_storage, PostgresEventLogStorage)
    ):
        return dg.SkipReason("only an instance on PostgreSQL is kept small")
    assets = sorted(repository.asset_graph.get_all_asset_keys())
    days = get_settings().runs_kept
    done = purge(context.instance, origin.location_name, assets, datetime.now(UTC) - timedelta(days=days))
    return dg.SkipReason(
        f"older than {days} days, and deleted: runs {done.runs}, events {done.events}, check evaluations {done.checks}"
    )
