"""The job that looks again at what fills a collection: in a run of its own, since a large source takes its time.

The load itself asks for what it makes due, in its own transactions; the changes sensor reports what comes of it.
"""

from typing import Any

import dagster as dg

from autofill_defs.defined import DefinedCollection
from autofill_defs.engine import PatientEngine
from autofill_defs.jobs import one_step_job
from autofill_defs.partitions import make_known
from autofill_defs.versions import ACTOR, apply_if_unknown
from cell_engine.errors import AutofillError
from cell_engine.store.batches import all_batches
from cell_engine.store.collections import Collection
from cell_engine.store.database import Connection

# Seconds for a statement: a comparison of millions of rows is one.
_STATEMENT_TIMEOUT = 600.0
_SHOWN = 20


def build_refresh_job(defined: DefinedCollection) -> dg.JobDefinition:
    """For a collection that declares what fills it."""

    @dg.op(name=f"refresh_{defined.identifier}", description=f"Syncs the declared source of {defined.full_name}.")
    def refresh_rows(context: dg.OpExecutionContext) -> None:
        refresh(context, defined)

    return one_step_job(
        defined,
        refresh_job_name(defined),
        f"Look again at what fills {defined.full_name} (its source, feed or files), and load what is new or has "
        "changed. What that makes due is computed at once.",
        refresh_rows,
    )


def is_filled(defined: DefinedCollection) -> bool:
    """Whether the collection declares something that fills it."""
    loading = defined.spec.loading
    has_files = any(column.files and column.files.fact for column in defined.inputs)
    return loading.source is not None or loading.feed is not None or has_files


def refresh_job_name(defined: DefinedCollection) -> str:
    return f"{defined.identifier}__refresh"


def refresh(context: dg.OpExecutionContext, defined: DefinedCollection) -> None:
    """Raises dg.Failure, in the engine's words, for a source that cannot be had or is refused."""
    # Polars is not for every process that loads the definitions.
    from cell_engine.load.declared import Refreshed
    from cell_engine.load.declared import refresh as refresh_declared

    def work(connection: Connection) -> tuple[Collection, list[Refreshed]]:
        collection, _ = apply_if_unknown(connection, defined)
        return collection, refresh_declared(connection, collection, actor=ACTOR)

    engine = PatientEngine("dagster refresh", _STATEMENT_TIMEOUT, context.log.info)
    try:
        collection, done = engine(work)
        for one in done:
            context.log_event(dg.AssetObservation(defined.rows_key, metadata=_metadata(one)))
        make_known(context, defined, engine(lambda db: list(all_batches(db, collection.id))))
    except AutofillError as error:
        raise dg.Failure(f"{defined.full_name}: {error}", allow_retries=False) from error
    finally:
        engine.close()


def _metadata(refreshed: Any) -> dict[str, Any]:
    """Of one source: rows by what became of them."""
    synced = refreshed.synced
    if synced is None:
        return {"source": refreshed.source, "changed": False}
    said: dict[str, Any] = {
        "source": refreshed.source,
        "changed": synced.changes > 0,
        "sync": synced.number,
        "inserted": synced.inserted,
        "updated": synced.updated,
        "restored": synced.restored,
        "deleted": synced.deleted,
        "unchanged": synced.unchanged,
        "rejected_lines": synced.rejected_lines,
    }
    if synced.withheld:
        said["not_in_it_and_kept"] = synced.withheld
    if synced.dispatches:
        said["dispatches"] = dg.MetadataValue.json(synced.dispatches[:_SHOWN])
    if synced.rejected:
        shown = [f"{line}: {reason}" for line, reason in synced.rejected[:_SHOWN]]
        said["rejected"] = dg.MetadataValue.json(shown)
    return said
