"""A run: its columns × its batches as one dispatch, waited for, and reported as materializations.

The cells are the workers' business. This process only asks, looks, and says what came of it, so that it may die at any
time: the dispatch goes on, and the next run of the same root takes it over.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import dagster as dg
from dagster_postgres.utils import DagsterPostgresException
from pydantic import Field
from sqlalchemy.exc import SQLAlchemyError

from autofill_defs import reports
from autofill_defs.defined import DefinedCollection
from autofill_defs.engine import SLICE, PatientEngine
from autofill_defs.versions import ACTOR, apply_if_unknown
from cell_engine.specs.version import Column, Version
from cell_engine.store.batches import Batch, find_batches
from cell_engine.store.collections import Collection, load_version
from cell_engine.store.database import Connection
from cell_engine.store.demands import RangeScope, dispatch
from cell_engine.store.reading import FAILED, PartitionOutcome, Progress, live_workers, page, partition_outcomes
from cell_engine.store.reading import progress as read_progress
from cell_engine.store.results import end_dispatches

DISPATCH_TAG = "autofill/dispatch"
_DISPATCHED_BY_TAG = "autofill/dispatched_by"
# Dagster's own tags, which it exports no names for.
_FAILURE_REASON_TAG = "dagster/failure_reason"
_STEP_FAILURE = "STEP_FAILURE"

_STATEMENT_TIMEOUT = 30.0
# Progress is summed up over all that the dispatch has done, so it is read for at most this share of the time.
_READING_SHARE = 0.05
# Seconds between two progress lines: a few, then a quarter of the time waited so far, so that even a run of a week
# writes some dozens.
_LINE_EVERY, _LINE_GROWTH = 3.0, 0.25
_WORKERS_EVERY, _WARN_EVERY = 5.0, 120.0
_PREVIEWED_BATCHES = 50


class FillConfig(dg.Config):
    """What can be set in the launchpad."""

    force: bool = Field(
        default=False, description="Compute again also what is up to date. Every cell in scope is paid for again."
    )
    max_error_rate: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="The run fails when more than this share of its cells ended in error. Good cells are kept, and "
        "reported, either way.",
    )


@dataclass(frozen=True)
class Request:
    """What a run asks for, in the engine's terms."""

    collection: Collection
    version: Version
    columns: tuple[Column, ...]
    batches: tuple[Batch, ...]
    force: bool

    @property
    def scope(self) -> RangeScope:
        return RangeScope(merged_ranges(self.batches))

    @property
    def total(self) -> int:
        return sum(batch.rows for batch in self.batches) * len(self.columns)


def merged_ranges(batches: Sequence[Batch]) -> tuple[tuple[int, int], ...]:
    """The row ranges of the batches, in order, neighbours as one: each becomes a sweep."""
    ranges: list[tuple[int, int]] = []
    for batch in sorted((one for one in batches if one.rows), key=lambda one: one.first_row):
        if ranges and batch.first_row <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], max(ranges[-1][1], batch.last_row))
        else:
            ranges.append((batch.first_row, batch.last_row))
    return tuple(ranges)


def fill(
    context: dg.AssetExecutionContext, config: FillConfig, defined: DefinedCollection
) -> Iterator[dg.MaterializeResult[None]]:
    """The body of a collection's multi-asset. Raises dg.Failure when its cells' error rate is above the one allowed."""
    say = partial(_say, context)
    engine = PatientEngine("dagster run", _STATEMENT_TIMEOUT, say)
    try:
        request = _request(context, config, defined, engine)
        dispatch_id = attach(context, request, engine)
        ended = _wait(say, request, dispatch_id, engine)
        outcomes = engine(lambda connection: partition_outcomes(connection, dispatch_id))
        previews = engine(lambda connection: _previews(connection, request))
        yield from _report(context, defined, request, ended, outcomes, previews, engine.away)
    finally:
        engine.close()
    _judge(config, request, ended, outcomes)


def _request(
    context: dg.AssetExecutionContext, config: FillConfig, defined: DefinedCollection, engine: PatientEngine
) -> Request:
    collection, is_current = engine(lambda connection: apply_if_unknown(connection, defined))
    if not is_current:
        context.log.warning(
            f"{defined.full_name} is at version {collection.version}, which is not the definition this run was started "
            f"with: it works with version {collection.version}. Reload the code location to see it."
        )
    version = engine(lambda connection: load_version(connection, collection.id))
    names = [key.path[-1] for key in context.selected_asset_keys]
    gone = [name for name in names if name not in version.by_name or version.by_name[name].kind is None]
    if gone:
        raise dg.Failure(
            f"{defined.full_name} has no computed column {', '.join(map(repr, sorted(gone)))} in its current version "
            f"{version.number}, which was applied from another definition than the one Dagster loads. Apply Dagster's "
            "again (`autofill apply`), or put the new one into its file and reload the code location.",
            allow_retries=False,
        )
    keys = list(context.partition_keys)
    batches = engine(lambda connection: find_batches(connection, collection.id, keys))
    lacking = set(keys) - {batch.key for batch in batches}
    if lacking:
        raise dg.Failure(
            f"{defined.full_name} has no batch {', '.join(sorted(lacking)[:5])}: its rows were never loaded. "
            "Delete the partition, or drop its file into the inbox again.",
            allow_retries=False,
        )
    columns = tuple(column for column in version.computed if column.name in names)
    return Request(collection, version, columns, tuple(batches), config.force)


def attach(context: dg.AssetExecutionContext, request: Request, engine: PatientEngine) -> int:
    """The dispatch of this run: its predecessor's where that is to be taken over, else one of its own.

    An automatic retry and a person's Re-execute look alike. A dispatch that has not ended is waited for again. One that
    has is taken over only from a run that died before it could report it, since asking again would pay for a forced
    one twice; after a run that did report it, running again means asking again.
    """
    run, parent = context.run, _parent(context, context.run)
    while parent is not None and _noted(parent) is None:
        # It died before it noted its dispatch, perhaps after making it: be that run, and so find it by its key.
        run, parent = parent, _parent(context, parent)
    root = run.root_run_id or run.run_id
    own_key = root if parent is None else f"{root}/{run.run_id}"
    noted = _noted(parent) if parent is not None else None
    found = noted if noted is not None else engine(lambda connection: _dispatch(connection, request, own_key))
    progress = engine(lambda connection: read_progress(connection, found))
    reported = parent is None or parent.tags.get(_FAILURE_REASON_TAG) == _STEP_FAILURE or not _failed(parent)
    is_over = noted is not None and progress is not None and progress.ended_at is not None and reported
    if progress is None or is_over or not _is_for(progress, request):
        found = engine(lambda connection: _dispatch(connection, request, f"{root}/{context.run.run_id}"))
    context.instance.add_run_tags(
        context.run.run_id, {DISPATCH_TAG: str(found), _DISPATCHED_BY_TAG: context.run.run_id}
    )
    return found


def _parent(context: dg.AssetExecutionContext, run: dg.DagsterRun) -> dg.DagsterRun | None:
    return context.instance.get_run_by_id(run.parent_run_id) if run.parent_run_id is not None else None


def _noted(run: dg.DagsterRun) -> int | None:
    """The dispatch that this very run noted: Dagster copies a run's tags to the runs that repeat it."""
    return int(run.tags[DISPATCH_TAG]) if run.tags.get(_DISPATCHED_BY_TAG) == run.run_id else None


def _failed(run: dg.DagsterRun) -> bool:
    return run.status is dg.DagsterRunStatus.FAILURE


def _is_for(progress: Progress, request: Request) -> bool:
    """Whether a dispatch asks for what this run asks for: a re-execution may have another selection or config."""
    return (
        progress.collection_id == request.collection.id
        and set(progress.columns) == {column.id for column in request.columns}
        and progress.total == request.total
        and progress.force >= request.force
    )


def _dispatch(connection: Connection, request: Request, key: str) -> int:
    return dispatch(
        connection,
        request.collection.id,
        request.scope,
        columns=[column.id for column in request.columns],
        force=request.force,
        reason="run",
        actor=ACTOR,
        key=key,
    )


def _wait(say: "partial[None]", request: Request, dispatch_id: int, engine: PatientEngine) -> Progress:
    """Until the dispatch has ended, in short slices. It needs nothing of this run: ending the run leaves it alone."""
    say(
        f"dispatch {dispatch_id}: {', '.join(column.name for column in request.columns)}; batches: "
        f"{len(request.batches):,}, cells: {request.total:,}"
    )
    started = time.monotonic()
    look_at = line_at = workers_at = 0.0
    warn_at = _WORKERS_EVERY
    away = 0.0
    before: int | None = None
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
            before = progress.done if before is None else before
            now = time.monotonic() - started
            look_at = now + (now - elapsed) / _READING_SHARE
            if progress.ended_at is not None:
                say(reports.progress_line(progress, before, now) + "; ended")
                return progress
            if elapsed >= line_at:
                line_at = elapsed + max(_LINE_EVERY, elapsed * _LINE_GROWTH)
                say(reports.progress_line(progress, before, elapsed))
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


def _unserved(connection: Connection, columns: Sequence[Column]) -> list[str]:
    served = {job_type for worker in live_workers(connection) for job_type in worker.job_types}
    return sorted({column.job_type for column in columns} - served)


def _previews(connection: Connection, request: Request) -> dict[tuple[str, int], dg.MarkdownMetadataValue]:
    """By batch key and column id; of the first batches only, as each is a query."""
    found: dict[tuple[str, int], dg.MarkdownMetadataValue] = {}
    for batch in [batch for batch in request.batches if batch.rows][:_PREVIEWED_BATCHES]:
        limit = min(reports.PREVIEW_ROWS, batch.rows)
        _, cells = page(connection, request.collection.id, after=batch.first_row - 1, limit=limit)
        for column_id in {cell.column_id for cell in cells}:
            found[batch.key, column_id] = reports.preview([cell for cell in cells if cell.column_id == column_id])
    return found


def _report(
    context: dg.AssetExecutionContext,
    defined: DefinedCollection,
    request: Request,
    ended: Progress,
    outcomes: Sequence[PartitionOutcome],
    previews: dict[tuple[str, int], dg.MarkdownMetadataValue],
    away: float,
) -> Iterator[dg.MaterializeResult[None]]:
    """One result a column, which Dagster fans out over the run's partitions; each partition has figures of its own."""
    by_cell = {(one.batch, one.column_id): one for one in outcomes}
    common = reports.dispatch_metadata(ended, away)
    for column in request.columns:
        key = defined.column_key(column.name)
        for batch in request.batches:
            metadata = reports.partition_metadata(batch, by_cell.get((batch.key, column.id)))
            if (batch.key, column.id) in previews:
                metadata["preview"] = previews[batch.key, column.id]
            context.add_asset_metadata(metadata, asset_key=key, partition_key=batch.key)
        yield dg.MaterializeResult(asset_key=key, metadata=common)
    batches = {batch.key: batch for batch in request.batches}
    for one in outcomes:
        cascaded = request.version.by_id.get(one.column_id)
        # What nobody asked for by name, and was computed all the same, since its inputs moved.
        if cascaded is not None and cascaded not in request.columns and _was_computed(one) and one.batch in batches:
            metadata = common | reports.partition_metadata(batches[one.batch], one)
            key = defined.column_key(cascaded.name)
            context.log_event(dg.AssetMaterialization(key, partition=one.batch, metadata=metadata))


def _was_computed(outcome: PartitionOutcome) -> bool:
    return not outcome.outcomes.keys() <= {"fresh", "superseded", "deleted", "blocked", "waiting"}


def _judge(config: FillConfig, request: Request, ended: Progress, outcomes: Sequence[PartitionOutcome]) -> None:
    """Over the columns asked for: what cascaded from them is for their own runs to judge."""
    asked = {column.id for column in request.columns}
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        if outcome.column_id in asked:
            counts.update(outcome.outcomes)
    failed = {name: cells for name, cells in counts.items() if name in FAILED}
    rate = sum(failed.values()) / max(counts.total(), 1)
    if rate > config.max_error_rate:
        classes = ", ".join(f"{name} {cells:,}" for name, cells in sorted(failed.items()))
        raise dg.Failure(
            f"{sum(failed.values()):,} of {counts.total():,} cells ended in error ({classes}): {100 * rate:.1f} %, "
            f"more than the {100 * config.max_error_rate:.1f} % that max_error_rate allows. The other cells are kept. "
            "Re-execute the run to try the failed ones again; those that are fresh are left alone.",
            metadata={"dispatch": ended.id, "failed_by_class": dg.MetadataValue.json(failed)},
            allow_retries=False,
        )


def _say(context: dg.AssetExecutionContext, message: str, *, warning: bool = False) -> None:
    """A line in the run's log. For display: where Dagster's own storage is away as well, it is dropped."""
    try:
        (context.log.warning if warning else context.log.info)(message)
    except (SQLAlchemyError, DagsterPostgresException):
        return
