"""Batches that somebody has loaded become partitions: what a run that loads does last."""

from collections.abc import Iterable

import dagster as dg

from autofill_defs import reports
from autofill_defs.defined import DefinedCollection
from cell_engine.store.batches import Batch


def make_known(
    context: dg.OpExecutionContext | dg.AssetExecutionContext, defined: DefinedCollection, batches: Iterable[Batch]
) -> int:
    """Partitions, and materializations of their rows, for the batches that Dagster has none of, those of a load that
    died before this as well; returns how many."""
    known = set(context.instance.get_dynamic_partitions(defined.full_name))
    new = [batch for batch in batches if batch.key not in known]
    for batch in new:
        metadata = reports.rows_metadata(batch, batch.source)
        context.log_event(dg.AssetMaterialization(defined.rows_key, partition=batch.key, metadata=metadata))
    if new:  # last: until then, the next load does all of it again
        context.instance.add_dynamic_partitions(defined.full_name, [batch.key for batch in new])
    return len(new)
