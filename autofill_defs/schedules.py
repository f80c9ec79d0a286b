"""Schedules: one for each cron and time zone of a collection's columns, and one for what fills it.

A tick only decides; what it asks for is a run's. Dagster itself makes up for one tick at most, however long its daemon
was away, reads crons by the clock of their zone (a time that is skipped comes at the end of the gap, one that comes
twice the second time), and makes one run for a tick, whoever evaluates it.

A schedule is called by its first column, not by its cron, so that who has stopped it has stopped it. What Dagster
remembers of when it last looked may be an hour old after a restart; so a tick also asks since when the schedule is what
it is, and one of before that is none.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import dagster as dg
import psycopg

from autofill_defs.defined import DefinedCollection
from autofill_defs.engine import engine
from autofill_defs.refreshing import build_refresh_job, is_filled
from autofill_defs.ticks import build_ticks_job
from autofill_defs.versions import apply_if_unknown
from cell_engine.specs.compiled import SpecColumn
from cell_engine.specs.schedule import Schedule
from cell_engine.store.collections import load_version
from cell_engine.store.schedules import read_schedules

_STATEMENT_TIMEOUT = 20.0
# A reload, and the apply that follows it, are not at the minute of the tick that they meet.
_GRACE = timedelta(minutes=2)
# Dagster's own, which it exports no names for.
_SCHEDULE_TAG = "dagster/schedule_name"
_RUN_KEY_TAG = "dagster/run_key"
_UNENDED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def build_schedules(defined: DefinedCollection) -> dg.Definitions:
    """The schedules of a collection, and the jobs that they run."""
    jobs: list[dg.JobDefinition] = []
    schedules: list[dg.ScheduleDefinition] = []
    groups = scheduled_columns(defined)
    if groups:
        job = build_ticks_job(defined)
        jobs.append(job)
        schedules += (_columns_schedule(defined, job, *group) for group in groups.items())
    if is_filled(defined):
        job = build_refresh_job(defined)
        jobs.append(job)
        if defined.spec.loading.refresh is not None:
            schedules.append(_refresh_schedule(defined, job, defined.spec.loading.refresh))
    return dg.Definitions(jobs=jobs, schedules=schedules)


def scheduled_columns(defined: DefinedCollection) -> Mapping[Schedule, Sequence[SpecColumn]]:
    """The columns of mode cron by their schedules, in the order of the file."""
    groups: dict[Schedule, list[SpecColumn]] = {}
    for column in defined.computed:
        if column.mode == "cron" and column.schedule is not None:
            groups.setdefault(column.schedule, []).append(column)
    return groups


def _columns_schedule(
    defined: DefinedCollection, job: dg.JobDefinition, schedule: Schedule, columns: Sequence[SpecColumn]
) -> dg.ScheduleDefinition:
    keys = [column.key for column in columns]
    name = f"{defined.identifier}__{keys[0]}__cron"

    def tick(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        skip = _is_busy(context, name)
        if skip is not None:
            return skip
        try:
            due, since = _due_columns(defined, schedule, keys, context.scheduled_execution_time)
        except psycopg.OperationalError as error:
            # The run waits for the database; a day's tick that fails is gone.
            context.log.warning(f"PostgreSQL cannot be used, so the run will have to wait: {str(error).strip()}")
            due, since = [column.name for column in columns], None
        if not due:
            return _too_late(since)
        return dg.RunRequest(
            run_key=_run_key(context),
            run_config={"ops": {job.nodes[0].name: {"config": {"columns": due}}}},
        )

    names = ", ".join(f"`{column.name}`" for column in columns)
    return _schedule(
        name,
        job,
        schedule,
        tick,
        f"Refreshes {names} of {defined.full_name}, in all of its rows. Change `cron` and `timezone` of the column and "
        "reload: what the new schedule would have run before is not made up for.",
    )


def _refresh_schedule(defined: DefinedCollection, job: dg.JobDefinition, schedule: Schedule) -> dg.ScheduleDefinition:
    name = f"{defined.identifier}__refresh__cron"

    def tick(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        skip = _is_busy(context, name)
        if skip is not None:
            return skip
        try:
            since = _refreshed_since(defined, schedule)
        except psycopg.OperationalError as error:
            context.log.warning(f"PostgreSQL cannot be used, so the run will have to wait: {str(error).strip()}")
        else:
            if since is None or not _is_due(context.scheduled_execution_time, since):
                return _too_late(since)
        return dg.RunRequest(run_key=_run_key(context))

    return _schedule(
        name,
        job,
        schedule,
        tick,
        f"Looks again at what fills {defined.full_name}: its source, feed or files.",
    )


def _schedule(
    name: str, job: dg.JobDefinition, schedule: Schedule, tick: Any, description: str
) -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        name=name,
        job=job,
        cron_schedule=schedule.cron,
        execution_timezone=schedule.timezone,
        execution_fn=tick,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=description,
    )


def _is_busy(context: dg.ScheduleEvaluationContext, name: str) -> dg.SkipReason | None:
    """A refresh that takes longer than its schedule's interval is not piled up upon."""
    filters = dg.RunsFilter(statuses=_UNENDED, tags={_SCHEDULE_TAG: name})
    for run in context.instance.get_runs(filters, limit=10):
        # The tick's own, where its daemon died before it could say so, is for Dagster to find again.
        if run.tags.get(_RUN_KEY_TAG) != _run_key(context):
            return dg.SkipReason(f"run {run.run_id} of an earlier tick has not ended")
    return None


def _run_key(context: dg.ScheduleEvaluationContext) -> str:
    return context.scheduled_execution_time.isoformat()


def _due_columns(
    defined: DefinedCollection, schedule: Schedule, keys: Sequence[str], at: datetime
) -> tuple[list[str], datetime | None]:
    """The names of the columns whose tick it is, and since when the others have the schedule."""
    with engine("dagster schedule", _STATEMENT_TIMEOUT) as connection:
        collection, _ = apply_if_unknown(connection, defined)
        version = load_version(connection, collection.id)
        scheduled = read_schedules(connection, collection.id).columns
    due: list[str] = []
    latest: datetime | None = None
    for column in version.computed:
        now = scheduled.get(column.id)
        if column.key in keys and now is not None and now[0] == schedule:
            if _is_due(at, now[1]):
                due.append(column.name)
            latest = now[1]
    return due, latest


def _refreshed_since(defined: DefinedCollection, schedule: Schedule) -> datetime | None:
    with engine("dagster schedule", _STATEMENT_TIMEOUT) as connection:
        collection, _ = apply_if_unknown(connection, defined)
        found = read_schedules(connection, collection.id).refresh
    return found[1] if found is not None and found[0] == schedule else None


def _is_due(at: datetime, since: datetime) -> bool:
    return at >= since - _GRACE


def _too_late(since: datetime | None) -> dg.SkipReason:
    if since is None:
        return dg.SkipReason("the collection's current version has no such schedule: reload the code location")
    return dg.SkipReason(f"the schedule is what it is since {since:%Y-%m-%d %H:%M:%S %Z}, and this tick is of before")
