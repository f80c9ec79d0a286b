"""Which dispatch a run waits for: one of its own, or that of the run it repeats.

Runs die at any time: before they have asked, between that and noting it, while they wait, before they report.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, cast

import dagster as dg
from pydantic import ValidationError

from autofill_defs.config import FillConfig, TickConfig
from autofill_defs.engine import PatientEngine
from autofill_defs.request import Request
from cell_engine.store.reading import Progress, dispatch_of
from cell_engine.store.reading import progress as read_progress

DISPATCH_TAG = "autofill/dispatch"
OUTCOME_TAG = "autofill/outcome"
"""What became of a run's dispatch where the run itself could not say it; see followup."""
_DISPATCHED_BY_TAG = "autofill/dispatched_by"
# Dagster's own tags, which it exports no names for.
_FAILURE_REASON_TAG = "dagster/failure_reason"
_STEP_FAILURE = "STEP_FAILURE"
_RANGE_TAGS = ("dagster/asset_partition_range_start", "dagster/asset_partition_range_end", "dagster/partition")


def attach(
    context: dg.OpExecutionContext, config: FillConfig | TickConfig, request: Request, engine: PatientEngine
) -> int:
    """The dispatch of this run: its predecessor's where that is to be taken over, else one of its own.

    An automatic retry and a person's Re-execute look alike. A dispatch that has not ended is waited for again. One that
    has is taken over only from a run that died before it could report it, since asking again would pay for a forced
    one twice; after a run that did report it, running again means asking again.
    """
    found = _taken_over(context, config, request, engine)
    if found is None:
        found = engine(lambda connection: request.dispatch(connection, _key(context.run)))
    note(context, found)
    return found


def note(context: dg.OpExecutionContext, dispatch_id: int) -> None:
    tags = {DISPATCH_TAG: str(dispatch_id), _DISPATCHED_BY_TAG: context.run.run_id}
    if OUTCOME_TAG in context.run.tags:  # of the run that this one repeats, and no tag can be taken off again
        tags[OUTCOME_TAG] = f"this run waits for dispatch {dispatch_id} and reports it"
    context.instance.add_run_tags(context.run.run_id, tags)


def _taken_over(
    context: dg.OpExecutionContext, config: FillConfig | TickConfig, request: Request, engine: PatientEngine
) -> int | None:
    """The latest dispatch of this run and of those that it repeats, if it is this run's as well."""
    for run in _lineage(context):
        own = noted(run)
        # One that died before it noted its dispatch may have made it all the same: then its key finds it.
        found = own if own is not None else engine(partial(dispatch_of, key=_key(run)))
        if found is None:
            continue
        progress = engine(partial(read_progress, dispatch_id=found))
        same = progress is not None and _is_for(progress, request) and _asks(run, config) == _asks(context.run, config)
        return found if same and progress is not None and _is_to_take(progress, run, own is not None) else None
    return None


def _is_to_take(progress: Progress, run: dg.DagsterRun, was_noted: bool) -> bool:
    reported = run.tags.get(_FAILURE_REASON_TAG) == _STEP_FAILURE or not _failed(run)
    return progress.ended_at is None or not was_noted or not reported


def _lineage(context: dg.OpExecutionContext) -> Iterator[dg.DagsterRun]:
    run: dg.DagsterRun | None = context.run
    while run is not None:
        yield run
        run = context.instance.get_run_by_id(run.parent_run_id) if run.parent_run_id is not None else None


def _key(run: dg.DagsterRun) -> str:
    root = run.root_run_id or run.run_id
    return root if run.run_id == root else f"{root}/{run.run_id}"


def noted(run: dg.DagsterRun) -> int | None:
    """The dispatch that this very run noted: Dagster copies a run's tags to the runs that repeat it."""
    return int(run.tags[DISPATCH_TAG]) if run.tags.get(_DISPATCHED_BY_TAG) == run.run_id else None


def _failed(run: dg.DagsterRun) -> bool:
    return run.status is dg.DagsterRunStatus.FAILURE


def _is_for(progress: Progress, request: Request) -> bool:
    """Whether a dispatch asks for what this run asks for: the collection may have moved since it was made.

    Batches that have come since are no other request, where a run takes all that match: they have their own demand, and
    to ask anew would pay for a forced one twice.
    """
    before = sum(batch.rows for batch in request.batches if batch.loaded_at <= progress.created_at)
    return (
        progress.collection_id == request.collection.id
        and set(progress.columns) == set(request.column_ids)
        and progress.total == before * len(request.columns)
        and progress.force == request.force
        and set(progress.only_if or ()) == set(request.only_if or ())
    )


def _asks(run: dg.DagsterRun, config: FillConfig | TickConfig) -> object:
    """What Dagster was told to ask for: a re-execution may have another selection or config. None is like nothing."""
    ops = cast(Mapping[str, Any], run.run_config.get("ops", {}))
    op = next(iter(ops.values()), None) or {}
    told: Mapping[str, Any] = op.get("config", {})
    try:
        asked = type(config)(**told).asks
    except ValidationError:
        return run.run_id
    return run.asset_selection, [run.tags.get(tag) for tag in _RANGE_TAGS], asked
