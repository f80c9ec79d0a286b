"""The sensor of a collection's arrivals: what is dropped becomes batches, and every batch becomes known to Dagster.

A sensor that exceeds its time keeps running beside its next tick, and its daemon may be killed between any two effects.
So each effect is idempotent, and what a tick hands over is worked out from what is there, not from what it just did.
"""

import threading
import time
from collections.abc import Collection as Container
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeAlias

import dagster as dg

from autofill_defs import reports
from autofill_defs.arrivals import INBOX_ACTOR, SHOWN_REFUSALS, Refusal, load_arrived
from autofill_defs.defined import DefinedCollection
from autofill_defs.engine import engine
from autofill_defs.inbox import Memory
from autofill_defs.versions import ACTOR, apply_if_changed
from cell_engine.store.batches import Batch, count_batches, list_batches, list_files, unknown_batches
from cell_engine.store.collections import Collection, find_collection
from cell_engine.store.database import Connection

# The daemon's own loop is 5 s: this is every round of it.
_LOOK_EVERY = 3
_LOAD_STATEMENT_TIMEOUT = 120.0
# Its daemon writes an event for each, one after the other: 5 to 20 ms.
_BATCHES_A_TICK = 200
# Seconds in which a run that loads rows itself has made its batches known, too.
_RUNS_OWN = 120.0

_REASONS_SHOWN = 5
_FILES_SHOWN = 20

AssetEvent: TypeAlias = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation


def build_inbox_sensor(defined: DefinedCollection) -> dg.SensorDefinition:
    """The sensor of one collection's arrivals."""
    looking = threading.Lock()

    def inbox(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        # Two loads of one large file would do no harm and cost twice.
        if not looking.acquire(blocking=False):
            return dg.SkipReason("the look before this one is still loading")
        try:
            return look(context, defined)
        finally:
            looking.release()

    return dg.SensorDefinition(
        name=f"{defined.identifier}__inbox",
        evaluation_fn=inbox,
        job_name=defined.identifier if defined.computed else None,
        minimum_interval_seconds=_LOOK_EVERY,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Loads the CSV, TSV, JSON Lines, Parquet and Excel files dropped into {defined.inbox} as batches "
        f"of {defined.full_name}, small ones together, and what is new in the folder of its `files`, if it has one. "
        "Requests the run that fills their columns. A file is loaded once two looks find it unchanged. Makes batches "
        "known that came in by any other way, and keeps the collection's definition applied.",
    )


def look(context: dg.SensorEvaluationContext, defined: DefinedCollection) -> dg.SensorResult:
    """One tick. Raises psycopg.OperationalError while the database is away: the next tick begins again."""
    memory = Memory.parse(context.cursor)
    with engine("dagster inbox", _LOAD_STATEMENT_TIMEOUT) as connection:
        applied = apply_if_changed(connection, defined, memory.spec)
        if applied is not None:
            memory.spec = defined.spec.hash.hex()
            memory.reconsider()
            if applied.created:
                context.log.info(f"applied version {applied.version.number} of {defined.full_name}")
        collection = find_collection(connection, defined.full_name)
        if memory.last is None:
            memory.last = count_batches(connection, collection.id)[1]
        done = load_arrived(context.log, connection, collection, defined, memory)
        partitions = list(context.instance.get_dynamic_partitions(defined.full_name))
        batches = _unregistered(connection, collection, memory, partitions)
        metadata = {batch.key: _rows_metadata(connection, collection, defined, batch) for batch in batches}
    added, events, requests = _register(context, defined, partitions, batches, metadata)
    events += _observations(defined, done.refused)
    notes = [*done.notes, *([f"batches made known: {len(batches):,}"] if batches else [])]
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else dg.SkipReason("; ".join([_summary(defined, memory), *notes])),
        dynamic_partitions_requests=[defined.partitions.build_add_request(added)] if added else [],
        asset_events=events,
        cursor=memory.dump(),
    )


def _unregistered(
    connection: Connection, collection: Collection, memory: Memory, partitions: Sequence[str]
) -> list[Batch]:
    """Batches that Dagster may not know yet, in arrival order.

    Those behind the cursor, since a partition that is there says neither that its run was requested nor, where somebody
    else has added it, that its rows have their event. And those without a partition, wherever they are: ids are given
    out before batches commit.
    """
    count, _ = count_batches(connection, collection.id)
    assert memory.last is not None
    later = list_batches(connection, collection.id, after=memory.last, limit=_BATCHES_A_TICK)
    others: list[Batch] = []
    if count != memory.batches:
        others = unknown_batches(connection, collection.id, partitions, limit=_BATCHES_A_TICK)
    found = {batch.id: batch for batch in [*later, *others]}
    now = time.time()
    ripe = [
        number
        for number, batch in sorted(found.items())
        if batch.actor != ACTOR or now - batch.loaded_at.timestamp() > _RUNS_OWN
    ]
    taken = ripe[:_BATCHES_A_TICK]
    # Looked at again where not all could be taken.
    memory.batches = count if len(taken) == len(found) and len(others) < _BATCHES_A_TICK else None
    for batch in later:
        if batch.id not in taken:
            break
        memory.last = batch.id
    return [found[number] for number in taken]


def _register(
    context: dg.SensorEvaluationContext,
    defined: DefinedCollection,
    partitions: Sequence[str],
    batches: Sequence[Batch],
    metadata: dict[str, dict[str, Any]],
) -> tuple[list[str], list[AssetEvent], list[dg.RunRequest]]:
    """What makes Dagster know the batches: partition keys to add, materializations of rows, and run requests.

    Each only as far as it is not there yet: a tick killed half-way is done again.
    """
    if not batches:
        return [], [], []
    keys = [batch.key for batch in batches]
    known = set(partitions)
    added = [key for key in keys if key not in known]
    materialized = {
        record.partition_key
        for record in context.instance.fetch_materializations(
            dg.AssetRecordsFilter(asset_key=defined.rows_key, asset_partitions=keys), limit=10 * len(keys)
        ).records
    }
    events: list[AssetEvent] = [
        dg.AssetMaterialization(defined.rows_key, partition=key, metadata=metadata[key])
        for key in keys
        if key not in materialized
    ]
    columns = [defined.column_key(column.name) for column in defined.computed if column.mode == "on_change"]
    undemanded = {batch.key for batch in batches if batch.actor == INBOX_ACTOR and batch.rows}
    requests = [
        dg.RunRequest(
            run_key=blake2b("\n".join(range_).encode(), digest_size=12).hexdigest(),
            asset_selection=columns,
            tags={"dagster/asset_partition_range_start": range_[0], "dagster/asset_partition_range_end": range_[-1]},
        )
        for range_ in contiguous([*partitions, *added], undemanded)
        if columns
    ]
    return added, events, requests


def contiguous(order: Sequence[str], wanted: Container[str]) -> list[list[str]]:
    """The wanted keys as runs of neighbours in `order`: a range of partitions takes in all between its ends."""
    ranges: list[list[str]] = []
    last = -2
    for place, key in enumerate(order):
        if key in wanted:
            if place == last + 1:
                ranges[-1].append(key)
            else:
                ranges.append([key])
            last = place
    return ranges


def _rows_metadata(
    connection: Connection, collection: Collection, defined: DefinedCollection, batch: Batch
) -> dict[str, Any]:
    files = list_files(connection, collection.id, batch.id, _FILES_SHOWN)
    alone = len(files) == 1 and batch.actor == INBOX_ACTOR
    path = defined.inbox / batch.source if alone else Path(batch.source)
    metadata = dict(reports.rows_metadata(batch, str(path)))
    if len(files) > 1:
        metadata["files"] = reports.files_table([(one.name, one.rows, one.rejected_rows) for one in files])
    return metadata


def _observations(defined: DefinedCollection, refused: Sequence[Refusal]) -> list[dg.AssetObservation]:
    """Of each file that was not loaded; where they are many, of the first, and one of all the others."""
    events = [
        dg.AssetObservation(
            defined.rows_key,
            description=f"{one.name} was not loaded: {one.reason}",
            metadata={"path": dg.MetadataValue.path(one.path), "reason": one.reason},
        )
        for one in refused[:SHOWN_REFUSALS]
    ]
    more = refused[SHOWN_REFUSALS:]
    if more:
        names = ", ".join(one.name for one in more[:SHOWN_REFUSALS])
        events.append(
            dg.AssetObservation(
                defined.rows_key,
                description=f"{len(more):,} more files were not loaded, the first of them {names}",
                metadata={"path": dg.MetadataValue.path(str(defined.inbox)), "reason": more[0].reason},
            )
        )
    return events


def _summary(defined: DefinedCollection, memory: Memory) -> str:
    parts = [f"{defined.inbox}: loaded {len(memory.inbox.loaded):,}"]
    waiting = len(memory.inbox.seen) + len(memory.files.seen)
    if waiting:
        parts.append(f"waiting for {waiting:,} to stop changing")
    refused = len(memory.inbox.refused) + len(memory.files.refused)
    if refused:
        reasons = [*memory.inbox.reasons.items(), *memory.files.reasons.items()][:_REASONS_SHOWN]
        shown = "; ".join(f"{name}: {reason}" for name, reason in reasons)
        parts.append(f"not loaded until they change {refused:,}: {shown}")
    return ", ".join(parts)
