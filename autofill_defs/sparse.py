"""The job that fills any set of a collection's batches: Dagster's own runs take one range of partitions each."""

import dagster as dg

from autofill_defs.config import BatchesConfig
from autofill_defs.defined import DefinedCollection
from autofill_defs.jobs import one_step_job
from autofill_defs.runs import fill_batches


def build_batches_job(defined: DefinedCollection) -> dg.JobDefinition:
    """One dispatch for the batches and columns of its config, reported as materializations of just what it touched."""

    @dg.op(
        name=f"fill_{defined.identifier}__batches",
        description=f"Brings columns of {defined.full_name} up to date in any set of batches: one dispatch.",
    )
    def fill_any(context: dg.OpExecutionContext, config: BatchesConfig) -> None:
        fill_batches(context, config, defined)

    return one_step_job(
        defined,
        f"{defined.identifier}__batches",
        f"Fill columns of {defined.full_name} in any set of its batches, with holes, by pattern, or only what is "
        "outdated in all of them. One dispatch; materializations of exactly what it touched.",
        fill_any,
    )
