"""The code location: every collection under `defs/`, and what serves all of them."""

import importlib
from pathlib import Path

import dagster as dg

from autofill_defs.changes import changes
from autofill_defs.followup import followup
from autofill_defs.janitor import janitor
from autofill_defs.models import build_engine
from autofill_defs.retention import retention


@dg.definitions
def defs() -> dg.Definitions:
    """Loads without a database."""
    # Not dg.load_from_defs_folder: it looks for a pyproject.toml, and beside an installed wheel there is none.
    folder = dg.ComponentTree.from_module(
        defs_module=importlib.import_module("autofill_defs.defs"), project_root=Path(__file__).parents[1]
    )
    return dg.Definitions.merge(
        folder.build_defs(),
        build_engine(),
        # In the run's own process: a run is one step that waits.
        dg.Definitions(sensors=[janitor, changes, followup, retention], executor=dg.in_process_executor),
    )
