"""Jobs beside the assets' own: one op, in the run's own process, since a run is one step that waits."""

import dagster as dg

from autofill_defs.defined import DefinedCollection


def one_step_job(defined: DefinedCollection, name: str, description: str, op: dg.OpDefinition) -> dg.JobDefinition:
    """The job that runs `op`, with the collection's tags on its runs."""

    @dg.job(name=name, description=description, executor_def=dg.in_process_executor, tags=defined.tags)
    def job() -> None:
        op()

    return job
