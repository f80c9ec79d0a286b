"""A code location for tests that need one: the collection of the file that TEST_SPEC names."""

import os
from pathlib import Path

import dagster as dg

from autofill_defs.assets import build_assets
from autofill_defs.defined import DefinedCollection
from autofill_defs.schedules import build_schedules
from cell_engine.specs.compile import compile_file


@dg.definitions
def defs() -> dg.Definitions:
    defined = DefinedCollection(compile_file(os.environ["TEST_SPEC"]), Path("inbox"))
    return dg.Definitions.merge(build_assets(defined), build_schedules(defined))
