"""The job of a tick: columns of mode cron in all rows of their collection, as one request, waited for and reported.

Reported is what has changed: a materialization of each column × batch with another answer or a failure, and an
observation of each column with all its figures. A thousand batches whose pages are as they were are one event.
"""

from collections import Counter
from functools import partial

import dagster as dg

from autofill_defs import reports
from autofill_defs.attaching import attach
from autofill_defs.config import TickConfig
from autofill_defs.defined import DefinedCollection
from autofill_defs.engine import PatientEngine
from autofill_defs.jobs import one_step_job
from autofill_defs.materializing import log_materializations
from autofill_defs.request import Request
from autofill_defs.runs import Filled, connected, judge
from autofill_defs.versions import apply_if_unknown
from autofill_defs.waiting import wait
from cell_engine.specs.settings_models import SETTINGS_MODELS
from cell_engine.specs.version import Column
from cell_engine.store.batches import all_batches
from cell_engine.store.collections import load_version
from cell_engine.store.reading import partition_outcomes


def build_ticks_job(defined: DefinedCollection) -> dg.JobDefinition:
    """What the schedules of a collection's columns run."""

    @dg.op(name=f"refresh_{defined.identifier}__columns", description=f"Refreshes columns of {defined.full_name}.")
    def refresh_columns(context: dg.OpExecutionContext, config: TickConfig) -> None:
        refresh(context, config, defined)

    return one_step_job(
        defined,
        f"{defined.identifier}__cron",
        f"Refresh the columns of {defined.full_name} that have a schedule, now: pages are asked whether they have "
        "changed, models where something is outdated. Materializations of what has changed.",
        refresh_columns,
    )


def is_anew(column: Column) -> bool:
    """Whether a tick calls for each cell. Not where an equal call has an equal answer, which is there already."""
    return column.cache is None or column.kind is None or not SETTINGS_MODELS[column.kind].cached


def refresh(context: dg.OpExecutionContext, config: TickConfig, defined: DefinedCollection) -> None:
    """Raises dg.Failure when more cells ended in error than is allowed."""
    with connected(context) as (engine, say):
        request = _request(config, defined, engine)
        if not request.total:
            say(f"{defined.full_name} has no rows yet: there is nothing to refresh")
            return
        dispatch_id = attach(context, config, request, engine)
        progress = wait(say, request, dispatch_id, engine)
        outcomes = engine(partial(partition_outcomes, dispatch_id=dispatch_id))
        filled = Filled(request, progress, outcomes, reports.dispatch_metadata(progress, engine.away), {})
        _report(context, defined, filled)
    judge(config, defined, filled)


def _request(config: TickConfig, defined: DefinedCollection, engine: PatientEngine) -> Request:
    collection, _ = engine(lambda connection: apply_if_unknown(connection, defined))
    version = engine(lambda connection: load_version(connection, collection.id))
    scheduled = {column.name: column for column in version.computed if column.mode == "cron"}
    others = [name for name in config.columns if name not in scheduled]
    if others:
        raise dg.Failure(
            f"{defined.full_name} has no column {', '.join(map(repr, others))} of mode cron in its current version "
            f"{version.number}; there are: {', '.join(scheduled) or 'none'}",
            allow_retries=False,
        )
    columns = tuple(one for one in scheduled.values() if not config.columns or one.name in config.columns)
    anew = tuple(column.id for column in columns if is_anew(column))
    batches = engine(lambda db: list(all_batches(db, collection.id)))
    return Request(collection, version, columns, tuple(batches), force=bool(anew), forced=anew)


def _report(context: dg.OpExecutionContext, defined: DefinedCollection, filled: Filled) -> None:
    batches = {batch.key: batch for batch in filled.request.batches}
    changed = [one for one in filled.outcomes if not one.outcomes.keys() <= reports.UNCHANGED and one.batch in batches]
    touched = {one.batch for one in changed}
    added = touched - set(context.instance.get_dynamic_partitions(defined.full_name)) if touched else set()
    if added:  # loaded by hand, and of no sensor's knowledge yet
        keys = [key for key in batches if key in added]
        context.instance.add_dynamic_partitions(defined.full_name, keys)
    log_materializations(
        context,
        (
            dg.AssetMaterialization(
                defined.column_key(column.name),
                partition=one.batch,
                metadata=filled.metadata | reports.partition_metadata(batches[one.batch], one),
            )
            for one in changed
            if (column := filled.request.version.by_id.get(one.column_id)) is not None
        ),
    )
    for column in filled.request.columns:
        counts: Counter[str] = Counter()
        for one in filled.outcomes:
            if one.column_id == column.id:
                counts.update(one.outcomes)
        figures = {
            "cells": counts.total(),
            **counts,
            "batches": len(batches),
            "batches_changed": sum(one.column_id == column.id for one in changed),
        }
        context.log_event(dg.AssetObservation(defined.column_key(column.name), metadata=filled.metadata | figures))
