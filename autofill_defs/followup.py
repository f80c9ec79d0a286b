"""What became of a dispatch whose run is over: said on the run's page. Nothing is started, canceled or paid for."""

import time
from collections.abc import Sequence

import dagster as dg
from dagster._core.storage.tags import AUTO_RETRY_RUN_ID_TAG, WILL_RETRY_TAG

from autofill_defs.attaching import DISPATCH_TAG, OUTCOME_TAG
from autofill_defs.engine import engine
from cell_engine.store.outbox import open_runs
from cell_engine.store.reading import Progress
from cell_engine.store.reading import progress as read_progress

_SAID_OF_TAG = "autofill/outcome_of"

_LOOK_EVERY = 30
_STATEMENT_TIMEOUT = 20.0
_DISPATCHES_A_TICK = 100
# Seconds after its end in which a run may still be followed by its retry.
_SOON, _SOON_RETRIED = 60.0, 600.0


def runs_of(instance: dg.DagsterInstance, dispatch_id: int, key: str | None) -> list[dg.RunRecord]:
    """The runs that have waited for a dispatch, newest first: by their tag, and by the dispatch's own key, since a run
    may die before it notes anything."""
    found = {
        record.dagster_run.run_id: record
        for record in instance.get_run_records(dg.RunsFilter(tags={DISPATCH_TAG: str(dispatch_id)}))
    }
    made = (key or "").rpartition("/")[2]
    if made and made not in found:
        found |= {
            record.dagster_run.run_id: record for record in instance.get_run_records(dg.RunsFilter(run_ids=[made]))
        }
    return sorted(found.values(), key=lambda record: -record.storage_id)


def is_awaited(runs: Sequence[dg.RunRecord]) -> bool:
    """Whether one of them waits for the dispatch, or is about to be followed by a run that will."""
    now = time.time()
    for record in runs:
        run = record.dagster_run
        age = now - (record.end_time or record.update_timestamp.timestamp())
        retried = run.tags.get(WILL_RETRY_TAG) == "true" and AUTO_RETRY_RUN_ID_TAG not in run.tags
        failed = run.status is dg.DagsterRunStatus.FAILURE
        if not run.is_finished or (failed and age < (_SOON_RETRIED if retried else _SOON)):
            return True
    return False


def say_of(instance: dg.DagsterInstance, run: dg.DagsterRun, outcome: str) -> None:
    """On the run's page, as a tag and in its log; once."""
    if not was_said(run) or run.tags[OUTCOME_TAG] != outcome:
        instance.add_run_tags(run.run_id, {OUTCOME_TAG: outcome, _SAID_OF_TAG: run.run_id})
        instance.report_engine_event(outcome, run)


def was_said(run: dg.DagsterRun) -> bool:
    """Whether anything was said of this very run: Dagster copies a run's tags to the runs that repeat it."""
    return run.tags.get(_SAID_OF_TAG) == run.run_id


@dg.sensor(
    minimum_interval_seconds=_LOOK_EVERY,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Says on a run's page what becomes of its dispatch, where the run has failed or was terminated and the "
    "dispatch goes on. It starts no run and costs nothing.",
)
def followup(context: dg.SensorEvaluationContext) -> dg.SkipReason:
    said = 0
    with engine("dagster followup", _STATEMENT_TIMEOUT) as connection:
        for dispatch_id, key in open_runs(connection, _DISPATCHES_A_TICK):
            runs = runs_of(context.instance, dispatch_id, key)
            if not runs or is_awaited(runs) or was_said(runs[0].dagster_run):
                continue
            progress = read_progress(connection, dispatch_id)
            if progress is not None and progress.ended_at is None:
                say_of(context.instance, runs[0].dagster_run, _goes_on(progress))
                said += 1
    return dg.SkipReason(f"dispatches that go on without their run, and that was not said: {said}")


def _goes_on(progress: Progress) -> str:
    total = max(progress.total, progress.done)
    return (
        f"dispatch {progress.id} goes on without this run, at {progress.done:,} of {total:,} cells: its "
        "outcome is reported on the assets once it has ended. Re-execute this run to wait for it again, or "
        f"`autofill cancel {progress.id}`"
    )
