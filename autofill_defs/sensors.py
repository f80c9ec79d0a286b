"""The sensors: files that arrive, and the janitor.

A sensor that exceeds its time keeps running beside its next tick, and its daemon may be killed between any two effects.
So each effect is idempotent, and what a tick hands over is worked out from what is there, not from what it just did.
"""

import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias

import dagster as dg
import psycopg

from autofill_defs import reports
from autofill_defs.defined import DefinedCollection
from autofill_defs.engine import engine
from autofill_defs.inbox import Found, Memory, find_files
from autofill_defs.versions import ACTOR, apply_if_changed
from cell_engine.errors import AutofillError
from cell_engine.store.batches import Batch, find_batches
from cell_engine.store.budgets import enforce_all
from cell_engine.store.collections import Collection, find_collection
from cell_engine.store.database import Connection
from cell_engine.store.upkeep import is_alone, keep_up, vacuum_work
from cell_engine.store.usage import ROLL_BATCH, roll_up

# The daemon's own loop is 5 s: this is every round of it.
_LOOK_EVERY = 3
# Seconds and counts within which a tick begins with another file: one tick stays well below its time limit (60 s by
# default), and its daemon writes an event or more for each batch.
_LOADING_TIME = 20.0
_BATCHES_A_TICK = 100
_LOAD_STATEMENT_TIMEOUT = 120.0

_JANITOR_EVERY = 30
_JANITOR_STATEMENT_TIMEOUT = 20.0

_REASONS_SHOWN = 5

AssetEvent: TypeAlias = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation


def build_inbox_sensor(defined: DefinedCollection) -> dg.SensorDefinition:
    """The sensor of one collection's inbox."""
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
        description=f"Loads the CSV, TSV, JSON Lines and Parquet files dropped into {defined.inbox} as batches of "
        f"{defined.full_name}, and requests the run that fills their columns. A file is loaded once two "
        "looks find it unchanged. Keeps the collection's definition applied.",
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
        defined.inbox.mkdir(parents=True, exist_ok=True)
        settled = memory.look(find_files(defined.inbox))
        batches, refused = _load(context, connection, defined, memory, settled)
    added, events, requests = _register(context, defined, batches)
    events += [
        dg.AssetObservation(
            defined.rows_key,
            description=f"{file.name} was not loaded: {reason}",
            metadata={"path": dg.MetadataValue.path(str(file.path)), "reason": reason},
        )
        for file, reason in refused
    ]
    return dg.SensorResult(
        run_requests=requests,
        skip_reason=None if requests else dg.SkipReason(_summary(defined, memory)),
        dynamic_partitions_requests=[defined.partitions.build_add_request(added)] if added else [],
        asset_events=events,
        cursor=memory.dump(),
    )


def _load(
    context: dg.SensorEvaluationContext,
    connection: Connection,
    defined: DefinedCollection,
    memory: Memory,
    settled: Sequence[Found],
) -> tuple[list[tuple[Batch, Path]], list[tuple[Found, str]]]:
    """Load as many of the settled files as a tick has time for; the others stay so. One bad file stops no other."""
    batches: list[tuple[Batch, Path]] = []
    refused: list[tuple[Found, str]] = []
    collection = find_collection(connection, defined.full_name)
    deadline = time.monotonic() + _LOADING_TIME
    for file in settled:
        if time.monotonic() > deadline or len(batches) + len(refused) >= _BATCHES_A_TICK:
            break
        loaded, reason = _load_file(connection, collection, file.path)
        batches += ((batch, file.path) for batch in loaded)
        if reason is None:
            memory.load(file)
            rows, rejected = (sum(one.rows for one in loaded), sum(one.rejected_rows for one in loaded))
            context.log.info(f"{file.name}: {rows:,} rows, {rejected:,} lines rejected")
        else:
            memory.refuse(file, reason)
            refused.append((file, reason))
            context.log.warning(f"{file.name} was not loaded: {reason}")
    return batches, refused


def _load_file(connection: Connection, collection: Collection, path: Path) -> tuple[list[Batch], str | None]:
    """The file's batches, and why it could not be loaded, or not any further; None if it is in."""
    # Polars is not for every process that loads the definitions: the runs do without.
    from cell_engine.load import LoadError, batch_keys, load_file

    try:
        return load_file(connection, collection, path, actor=ACTOR, demand=False).batches, None
    except (psycopg.OperationalError, psycopg.InterfaceError):
        raise
    except (AutofillError, OSError) as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 (whatever it is, it is this file's, and the next one is to go in)
        reason = f"{type(error).__name__}: {error}"
    found: list[Batch] = []
    with suppress(LoadError):
        prefix = batch_keys(path)
        while more := find_batches(connection, collection.id, [f"{prefix}-{len(found) + 1:04d}"]):
            found += more
    return found, reason


def _register(
    context: dg.SensorEvaluationContext,
    defined: DefinedCollection,
    batches: Sequence[tuple[Batch, Path]],
) -> tuple[list[str], list[AssetEvent], list[dg.RunRequest]]:
    """What makes Dagster know the batches: partition keys to add, materializations of rows, and run requests.

    Each only as far as it is not there yet: a tick killed half-way is done again.
    """
    if not batches:
        return [], [], []
    by_key = {batch.key: (batch, path) for batch, path in batches}
    partitions = list(context.instance.get_dynamic_partitions(defined.full_name))
    known = set(partitions)
    added = [key for key in by_key if key not in known]
    materialized = {
        record.partition_key
        for record in context.instance.fetch_materializations(
            dg.AssetRecordsFilter(asset_key=defined.rows_key, asset_partitions=list(by_key)), limit=10 * len(by_key)
        ).records
    }
    events: list[AssetEvent] = [
        dg.AssetMaterialization(defined.rows_key, partition=key, metadata=reports.rows_metadata(batch, str(path)))
        for key, (batch, path) in by_key.items()
        if key not in materialized
    ]
    columns = [defined.column_key(column.name) for column in defined.computed if column.mode == "on_change"]
    requests = [
        dg.RunRequest(
            run_key=blake2b("\n".join(keys).encode(), digest_size=12).hexdigest(),
            asset_selection=columns,
            tags={"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]},
        )
        for keys in contiguous([*partitions, *added], by_key)
        if columns
    ]
    return added, events, requests


def contiguous(order: Sequence[str], wanted: "dict[str, tuple[Batch, Path]] | set[str]") -> list[list[str]]:
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


def _summary(defined: DefinedCollection, memory: Memory) -> str:
    parts = [f"{defined.inbox}: loaded {len(memory.loaded):,}"]
    if memory.seen:
        parts.append(f"waiting for {len(memory.seen):,} to stop changing")
    if memory.refused:
        shown = [f"{name}: {reason}" for name, (_, _, reason) in list(memory.refused.items())[:_REASONS_SHOWN]]
        parts.append(f"not loaded until they change {len(memory.refused):,}: " + "; ".join(shown))
    return ", ".join(parts)


@dg.sensor(
    minimum_interval_seconds=_JANITOR_EVERY,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Gives the work of dead workers to others and ends dispatches that are over. `autofill janitor` does "
    "the same in a process of its own; several at once are safe.",
)
def janitor() -> dg.SkipReason:
    with (
        engine("dagster janitor lock", _JANITOR_STATEMENT_TIMEOUT) as guard,
        engine("dagster janitor", _JANITOR_STATEMENT_TIMEOUT) as connection,
        guard.transaction(),
    ):
        # Rounds that outlast their tick must not pile up.
        if not is_alone(guard, "autofill.janitor.sensor"):
            return dg.SkipReason("another round is under way")
        done = keep_up(connection)
        vacuum_work(connection)
        enforce_all(connection)
        while roll_up(connection) == ROLL_BATCH:
            pass
    return dg.SkipReason(
        f"workers ended: {done.workers}, visits given back: {done.visits}, dispatches ended: {done.dispatches}"
    )
