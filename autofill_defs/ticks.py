"""The job of a tick: columns of mode cron in all rows of their collection, as one request, waited for and reported.

Reported is what has changed: a materialization of each column × batch with another answer or a failure, and an
observation of each column with all its figures. A thousand batches whose pages are as they were are one event.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial

import dagster as dg
from pydantic import Field

from autofill_defs import reports
from autofill_defs.defined import DefinedCollection
from autofill_defs.engine import PatientEngine
from autofill_defs.runs import Request, _say, _wait
from autofill_defs.versions import ACTOR, apply_if_unknown
from cell_engine.specs.settings_models import SETTINGS_MODELS
from cell_engine.specs.version import Column
from cell_engine.store.batches import find_batches
from cell_engine.store.collections import load_version
from cell_engine.store.demands import RangeScope, dispatch
from cell_engine.store.reading import FAILED, PartitionOutcome, Progress, partition_outcomes

_STATEMENT_TIMEOUT = 30.0
_UNCHANGED = frozenset({"unchanged", "fresh", "superseded", "deleted", "blocked", "waiting"})
# Dagster's own, which it exports no names for.
_FAILURE_REASON_TAG = "dagster/failure_reason"
_STEP_FAILURE = "STEP_FAILURE"
_MAX_ERROR_RATE = 0.05


class TickConfig(dg.Config):
    """Which columns."""

    columns: list[str] = Field(
        default=[], description="Columns of mode cron, by name; [] for all of them, whatever their schedules."
    )


def build_ticks_job(defined: DefinedCollection) -> dg.JobDefinition:
    """What the schedules of a collection's columns run."""

    @dg.op(name=f"refresh_{defined.identifier}__columns", description=f"Refreshes columns of {defined.full_name}.")
    def refresh_columns(context: dg.OpExecutionContext, config: TickConfig) -> None:
        refresh(context, config, defined)

    @dg.job(
        name=f"{defined.identifier}__cron",
        description=f"Refresh the columns of {defined.full_name} that have a schedule, now: pages are asked whether "
        "they have changed, models where something is outdated. Materializations of what has changed.",
        executor_def=dg.in_process_executor,
    )
    def ticks() -> None:
        refresh_columns()

    return ticks


def is_anew(column: Column) -> bool:
    """Whether a tick calls for each cell. Not where an equal call has an equal answer, which is there already."""
    return column.cache is None or column.kind is None or not SETTINGS_MODELS[column.kind].cached


def refresh(context: dg.OpExecutionContext, config: TickConfig, defined: DefinedCollection) -> None:
    """Raises dg.Failure when more cells ended in error than is allowed."""
    say = partial(_say, context)  # type: ignore[arg-type]
    engine = PatientEngine("dagster schedule", _STATEMENT_TIMEOUT, say)
    try:
        collection, _ = engine(lambda connection: apply_if_unknown(connection, defined))
        version = engine(lambda connection: load_version(connection, collection.id))
        columns = tuple(
            column
            for column in version.computed
            if column.mode == "cron" and (column.name in config.columns or not config.columns)
        )
        if not columns or collection.next_row == 1:
            say("no rows, or no columns of mode cron: nothing to refresh")
            return
        anew = [column.id for column in columns if is_anew(column)]
        dispatch_id = engine(
            lambda connection: dispatch(
                connection,
                collection.id,
                RangeScope(((1, collection.next_row - 1),)),
                columns=[column.id for column in columns],
                force=bool(anew),
                forced=anew,
                reason="run",
                actor=ACTOR,
                key=f"cron {_origin(context)}",
            )
        )
        request = Request(collection, version, columns, (), False)
        ended = _wait(say, request, dispatch_id, engine)
        outcomes = engine(partial(partition_outcomes, dispatch_id=dispatch_id))
        _report(context, defined, request, ended, outcomes, engine)
    finally:
        engine.close()
    _judge({column.id for column in columns}, outcomes)


def _origin(context: dg.OpExecutionContext) -> str:
    """The first of the runs that this one goes on for: those that ended before they could report. Asking again after
    one that did is asking anew."""
    run = context.run
    while run.parent_run_id is not None:
        parent = context.instance.get_run_by_id(run.parent_run_id)
        if parent is None or parent.status is dg.DagsterRunStatus.SUCCESS:
            break
        if parent.tags.get(_FAILURE_REASON_TAG) == _STEP_FAILURE:
            break
        run = parent
    return run.run_id


def _report(
    context: dg.OpExecutionContext,
    defined: DefinedCollection,
    request: Request,
    ended: Progress,
    outcomes: Sequence[PartitionOutcome],
    engine: PatientEngine,
) -> None:
    changed = [one for one in outcomes if not one.outcomes.keys() <= _UNCHANGED]
    keys = sorted({one.batch for one in changed})
    found = engine(lambda connection: find_batches(connection, request.collection.id, keys))
    batches = {batch.key: batch for batch in found}
    common = reports.dispatch_metadata(ended, engine.away)
    for one in changed:
        column = request.version.by_id.get(one.column_id)
        if column is not None and one.batch in batches:
            metadata = common | reports.partition_metadata(batches[one.batch], one)
            context.log_event(
                dg.AssetMaterialization(defined.column_key(column.name), partition=one.batch, metadata=metadata)
            )
    for column in request.columns:
        of = [one for one in outcomes if one.column_id == column.id]
        counts: Counter[str] = Counter()
        for one in of:
            counts.update(one.outcomes)
        metadata = common | {
            "cells": counts.total(),
            **dict(counts),
            "batches_changed": sum(one in changed for one in of),
            "batches": len(of),
        }
        context.log_event(dg.AssetObservation(defined.column_key(column.name), metadata=metadata))


def _judge(asked: Collection[int], outcomes: Sequence[PartitionOutcome]) -> None:
    counts: Counter[str] = Counter()
    for one in outcomes:
        if one.column_id in asked:
            counts.update(one.outcomes)
    failed = {name: cells for name, cells in counts.items() if name in FAILED}
    if sum(failed.values()) > _MAX_ERROR_RATE * counts.total():
        classes = ", ".join(f"{name} {cells:,}" for name, cells in sorted(failed.items()))
        raise dg.Failure(
            f"{sum(failed.values()):,} of {counts.total():,} cells ended in error ({classes}), more than the "
            f"{100 * _MAX_ERROR_RATE:.1f} % allowed. The others are kept.",
            metadata={"failed_by_class": dg.MetadataValue.json(failed)},
            allow_retries=False,
        )
