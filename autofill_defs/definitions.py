"""The code location: every collection under `defs/`, and what serves all of them."""

from pathlib import Path

import dagster as dg

from autofill_defs.janitor import janitor


@dg.definitions
def defs() -> dg.Definitions:
    """Loads without a database."""
    return dg.Definitions.merge(
        dg.load_from_defs_folder(path_within_project=Path(__file__).parent),
        # In the run's own process: a run is one step that waits.
        dg.Definitions(sensors=[janitor], executor=dg.in_process_executor),
    )
