"""What Dagster need not keep for ever, and keeps: runs that are over, and events that newer ones have replaced.

Of each asset and partition the latest materialization stays, and the run it is of: it is what the asset's page shows,
however old. Older ones, observations, check evaluations that a newer one replaces, and runs that nothing is left of go
once they are older than AUTOFILL_RUNS_KEPT days. Only what belongs to this code location. Ticks: `dagster.yaml`.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import dagster as dg
from dagster_postgres import PostgresEventLogStorage
from sqlalchemy import text

from cell_engine.settings import get_settings

_EVERY = 3600
# Seconds, and rows a statement: a tick stays well below its time limit, and locks little at a time.
_TICK, _STATEMENT = 20.0, 30.0
_EVENTS, _RUNS = 5_000, 20

_OLD_EVENTS = text("""
    delete from event_logs where id in (
        select old.id
        from event_logs as old
        where old.asset_key = any(:assets) and old.timestamp < :before
            and (
                old.dagster_event_type = 'ASSET_OBSERVATION'
                or old.dagster_event_type = 'ASSET_MATERIALIZATION' and (
                    exists (
                        select from event_logs as new
                        where new.asset_key = old.asset_key and new.partition = old.partition
                            and new.dagster_event_type = old.dagster_event_type and new.id > old.id
                    )
                    or old.partition is null and exists (
                        select from event_logs as new
                        where new.asset_key = old.asset_key and new.partition is null
                            and new.dagster_event_type = old.dagster_event_type and new.id > old.id
                    )
                )
            )
        limit :limit
    )
    returning id
""")
_THEIR_TAGS = text("delete from asset_event_tags where event_id = any(:ids)")
_OLD_CHECKS = text("""
    delete from asset_check_executions where id in (
        select old.id
        from asset_check_executions as old
        where old.asset_key = any(:assets) and old.create_timestamp < :before
            and exists (
                select from asset_check_executions as new
                where new.asset_key = old.asset_key and new.check_name = old.check_name
                    and new.partition is not distinct from old.partition and new.id > old.id
            )
        limit :limit
    )
""")
_OLD_RUNS = text("""
    select run_id
    from runs
    join run_tags using (run_id)
    where run_tags.key = '.dagster/code_location' and run_tags.value = :location
        and runs.status in ('SUCCESS', 'FAILURE', 'CANCELED') and runs.update_timestamp < :before
        and not exists (
            select from event_logs
            where event_logs.run_id = runs.run_id and dagster_event_type = 'ASSET_MATERIALIZATION'
        )
    order by runs.id
    limit :limit
""")


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
            ids = list(connection.execute(_OLD_EVENTS, {**given, "limit": _EVENTS}).scalars())
            connection.execute(_THEIR_TAGS, {"ids": ids})
            replaced = connection.execute(_OLD_CHECKS, {**given, "limit": _EVENTS}).rowcount
            found = connection.execute(_OLD_RUNS, {**given, "location": location, "limit": _RUNS})
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
