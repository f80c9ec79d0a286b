"""A run: its columns × its batches as one dispatch, waited for, and reported as materializations.

The cells are the workers' business. This process only asks, looks, and says what came of it, so that it may die at any
time: the dispatch goes on, and the next run of the same root takes it over.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import dagster as dg
from dagster._core.errors import DagsterExecutionInterruptedError
from dagster._utils.interrupts import capture_interrupts

from autofill_defs import reports
from autofill_defs.attaching import attach
from autofill_defs.config import BatchesConfig, FillConfig, TickConfig
from autofill_defs.defined import DefinedCollection
from autofill_defs.engine import PatientEngine
from autofill_defs.materializing import add_partitions_metadata, log_materializations
from autofill_defs.request import Request, resolve
from autofill_defs.waiting import Say, is_at_its_cap, say_in, wait
from cell_engine.errors import NotFoundError
from cell_engine.estimate import estimate
from cell_engine.prices import shown
from cell_engine.store.control import DispatchStateError, cancel
from cell_engine.store.database import Connection
from cell_engine.store.reading import (
    FAILED,
    PartitionOutcome,
    Progress,
    durations,
    error_examples,
    pace,
    page,
    partition_outcomes,
)

_STATEMENT_TIMEOUT = 30.0
_PREVIEWED_BATCHES = 50
_TIMED_CALLS = 50_000


@dataclass(frozen=True)
class Filled:
    """What a dispatch came to. `metadata` is the whole run's, `figures` that of a batch key and column id."""

    request: Request
    progress: Progress
    outcomes: Sequence[PartitionOutcome]
    metadata: dict[str, Any]
    figures: dict[tuple[str, int], dict[str, Any]]


def fill(
    context: dg.AssetExecutionContext, config: FillConfig, defined: DefinedCollection
) -> Iterator[dg.MaterializeResult[None]]:
    """The body of a collection's multi-asset. Raises dg.Failure when its cells' error rate is above the one allowed."""
    names = {key.path[-1] for key in context.selected_asset_keys}
    with connected(context.op_execution_context) as (engine, say):
        request = resolve(context.log, config, defined, names, list(context.partition_keys), engine)
        if config.dry_run:
            _estimate(context.op_execution_context, defined, request, engine)
            return
        filled = _carry_out(context.op_execution_context, config, defined, request, engine, say)
        yield from _results(context, defined, filled)
        _log_cascaded(context.op_execution_context, defined, filled)
    judge(config, defined, filled)


def fill_batches(context: dg.OpExecutionContext, config: BatchesConfig, defined: DefinedCollection) -> None:
    """The same for any set of batches: what Dagster has no partition range for. Raises dg.Failure likewise."""
    with connected(context) as (engine, say):
        request = resolve(context.log, config, defined, config.columns, config.batches, engine, patterns=True)
        if config.dry_run:
            _estimate(context, defined, request, engine)
            return
        filled = _carry_out(context, config, defined, request, engine, say)
        _log_touched(context, defined, filled)
        _log_cascaded(context, defined, filled)
    judge(config, defined, filled)


@contextmanager
def connected(context: dg.OpExecutionContext) -> Iterator[tuple[PatientEngine, Say]]:
    say = say_in(context)
    engine = PatientEngine("dagster run", _STATEMENT_TIMEOUT, say)
    try:
        yield engine, say
    finally:
        engine.close()


def _carry_out(
    context: dg.OpExecutionContext,
    config: FillConfig,
    defined: DefinedCollection,
    request: Request,
    engine: PatientEngine,
    say: Say,
) -> Filled:
    dispatch_id = attach(context, config, request, engine)
    try:
        progress = wait(say, request, dispatch_id, engine)
    except DagsterExecutionInterruptedError:
        if config.cancel_on_terminate:
            _cancel(say, dispatch_id, engine)
        raise
    _say_of_cost(say, progress)
    outcomes = engine(lambda connection: partition_outcomes(connection, dispatch_id))
    details = engine(lambda connection: _details(connection, defined, request, dispatch_id))
    seconds, cells = engine(lambda connection: pace(connection, dispatch_id))
    metadata = reports.dispatch_metadata(progress, engine.away)
    found = {(one.batch, one.column_id): one for one in outcomes}
    columns = {*request.column_ids, *(one.column_id for one in outcomes)}
    batch_keys = {batch.key for batch in request.batches}
    figures = {
        (batch.key, column_id): reports.partition_metadata(batch, found.get((batch.key, column_id)))
        | details.get((batch.key, column_id), {})
        for batch in request.batches
        for column_id in columns
    }
    every = max(1, sum(progress.attempts.values()) // _TIMED_CALLS)
    taken = engine(lambda connection: durations(connection, dispatch_id, every))
    chart = reports.pace_metadata(seconds, cells)
    # Once a column, on the last that is reported of it, where its asset's page looks: else it would be on every event.
    touched = {one.column_id: one.batch for one in outcomes if _was_computed(one)}
    for column_id in columns:
        once = chart | (reports.duration_metadata(taken[column_id]) if column_id in taken else {})
        last = [batch.key for batch in request.batches[-1:]]
        for key in {touched.get(column_id, ""), *last} & batch_keys:
            figures[key, column_id] |= once
    return Filled(request, progress, outcomes, metadata, figures)


def _say_of_cost(say: Say, progress: Progress) -> None:
    """Of a dispatch that has ended above its cap: nothing of it is left that a failed run could be tried again for, so
    the run succeeds. One that was paused in time fails, by `judge`."""
    if progress.ended_at is not None and progress.max_cost is not None and progress.cost > progress.max_cost:
        say(
            f"dispatch {progress.id} has cost {shown(progress.cost)}, more than its max_cost of "
            f"{shown(progress.max_cost)}: all that was left of it was in flight already when that was reached",
            warning=True,
        )


def _cancel(say: Say, dispatch_id: int, engine: PatientEngine) -> None:
    with capture_interrupts(), suppress(DispatchStateError, NotFoundError):
        engine.close()  # whatever it was doing when the interrupt came
        engine(lambda connection: cancel(connection, dispatch_id))
        say(f"dispatch {dispatch_id} is canceled; calls in flight run to their end")


def _estimate(
    context: dg.OpExecutionContext, defined: DefinedCollection, request: Request, engine: PatientEngine
) -> None:
    """A dry run: an observation of each column it would compute."""
    found = engine(
        lambda connection: estimate(
            connection,
            request.collection,
            request.version,
            request.scope,
            columns=request.column_ids,
            force=request.force,
            only_if=request.only_if,
        )
    )
    context.log.info(f"dry run: {reports.on_one_line(found.summary)}")
    by_name = {one.column: one for one in found.columns}
    for name in {column.name for column in request.columns} | by_name.keys():
        metadata = reports.estimate_metadata(found, by_name.get(name))
        context.log_event(dg.AssetObservation(defined.column_key(name), description="dry run", metadata=metadata))


def _details(
    connection: Connection, defined: DefinedCollection, request: Request, dispatch_id: int
) -> dict[tuple[str, int], dict[str, Any]]:
    """By batch key and column id: previews, of the first batches only, as each is a query; errors, with what retries
    them."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for batch in [batch for batch in request.batches if batch.rows][:_PREVIEWED_BATCHES]:
        limit = min(reports.PREVIEW_ROWS, batch.rows)
        _, cells = page(connection, request.collection.id, after=batch.first_row - 1, limit=limit)
        for column_id in {cell.column_id for cell in cells}:
            preview = reports.preview([cell for cell in cells if cell.column_id == column_id])
            found[batch.key, column_id] = {"preview": preview}
    examples = error_examples(connection, dispatch_id)
    for key in {(one.batch, one.column_id) for one in examples}:
        of = [one for one in examples if (one.batch, one.column_id) == key]
        column = request.version.by_id.get(key[1])
        if column is not None:
            found.setdefault(key, {}).update(reports.errors_metadata(defined, column.name, key[0], of))
    return found


def _results(
    context: dg.AssetExecutionContext, defined: DefinedCollection, filled: Filled
) -> Iterator[dg.MaterializeResult[None]]:
    """One result a column, which Dagster fans out over the run's partitions; each partition has figures of its own."""
    for column in filled.request.columns:
        key = defined.column_key(column.name)
        of = {batch.key: filled.figures[batch.key, column.id] for batch in filled.request.batches}
        add_partitions_metadata(context.op_execution_context, key, of)
        yield dg.MaterializeResult(asset_key=key, metadata=filled.metadata)


def _log_touched(context: dg.OpExecutionContext, defined: DefinedCollection, filled: Filled) -> None:
    """A materialization of each column × batch that something came of, and of no other: a filter passes the rest."""
    is_filtered = filled.request.only_if is not None
    touched = [
        one
        for one in filled.outcomes
        # A row that a filter has found is visited for all columns asked for: those it did not mean are fresh.
        if one.column_id in filled.request.column_ids and (_was_computed(one) or not is_filtered)
    ]
    known = set(context.instance.get_dynamic_partitions(defined.full_name))
    wanted = {one.batch for one in touched}
    added = [batch.key for batch in filled.request.batches if batch.key in wanted - known]
    if added:  # loaded by hand, and of no sensor's knowledge yet
        context.instance.add_dynamic_partitions(defined.full_name, added)
    _log(context, defined, filled, touched)


def _log_cascaded(context: dg.OpExecutionContext, defined: DefinedCollection, filled: Filled) -> None:
    """What nobody asked for by name, and was computed all the same, since its inputs moved."""
    asked = filled.request.column_ids
    cascaded = [one for one in filled.outcomes if one.column_id not in asked and _was_computed(one)]
    _log(context, defined, filled, cascaded)


def _log(
    context: dg.OpExecutionContext, defined: DefinedCollection, filled: Filled, outcomes: Sequence[PartitionOutcome]
) -> None:
    materializations = []
    for one in outcomes:
        column = filled.request.version.by_id.get(one.column_id)
        of = filled.figures.get((one.batch, one.column_id))
        if column is not None and of is not None:
            key = defined.column_key(column.name)
            materializations.append(dg.AssetMaterialization(key, partition=one.batch, metadata=filled.metadata | of))
    log_materializations(context, materializations)


def _was_computed(outcome: PartitionOutcome) -> bool:
    return not outcome.outcomes.keys() <= reports.UNTOUCHED


def judge(config: FillConfig | TickConfig, defined: DefinedCollection, filled: Filled) -> None:
    """Over the columns asked for: what cascaded from them is for their own runs to judge."""
    counts: Counter[str] = Counter()
    for outcome in filled.outcomes:
        if outcome.column_id in filled.request.column_ids:
            counts.update(outcome.outcomes)
    if filled.request.only_if is not None:
        # The other cells of the rows that it found: a filter did not mean them.
        del counts["fresh"]
    failed = {name: cells for name, cells in counts.items() if name in FAILED}
    allowed = defined.max_error_rate if config.max_error_rate is None else config.max_error_rate
    rate = sum(failed.values()) / max(counts.total(), 1)
    metadata: dict[str, Any] = {"dispatch": filled.progress.id, "failed_by_class": dg.MetadataValue.json(failed)}
    if rate > allowed:
        classes = ", ".join(f"{name} {cells:,}" for name, cells in sorted(failed.items()))
        raise dg.Failure(
            f"{sum(failed.values()):,} of {counts.total():,} cells ended in error ({classes}): {100 * rate:.1f} %, "
            f"more than the {100 * allowed:.1f} % that max_error_rate allows. The other cells are kept. "
            "Re-execute the run to try the failed ones again; those that are fresh are left alone.",
            metadata=metadata,
            allow_retries=False,
        )
    progress = filled.progress
    if progress.ended_at is None and is_at_its_cap(progress):
        raise dg.Failure(
            f"dispatch {progress.id} has cost {shown(progress.cost)}, and its max_cost is {shown(progress.max_cost)}: "
            f"it is paused, and what is computed is kept. `autofill budget set {progress.id} AMOUNT` lets it go on "
            f"(then re-execute this run to wait for it), `autofill cancel {progress.id}` gives the rest up.",
            metadata=metadata,
            allow_retries=False,
        )
    if progress.canceled_at is not None:
        raise dg.Failure(
            f"dispatch {progress.id} was canceled: what was computed until then is kept. Re-execute the run to ask for "
            "the rest again.",
            metadata=metadata,
            allow_retries=False,
        )
