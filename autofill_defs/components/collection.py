"""The `dg` component of a collection."""

from pathlib import Path

import dagster as dg
from pydantic import Field

from autofill_defs.assets import build_assets
from autofill_defs.defined import ROWS, DefinedCollection
from autofill_defs.schedules import build_schedules
from autofill_defs.sensors import build_inbox_sensor
from cell_engine.errors import AutofillError
from cell_engine.settings import get_settings
from cell_engine.specs.compile import compile_file


class CollectionComponent(dg.Component, dg.Model, dg.Resolvable):
    """A collection: a table whose computed columns an AI fills in.

    Makes an asset of its rows and one of each computed column, partitioned by batch, the job that fills them, and a
    sensor that loads the files dropped into its inbox. Needs no database to load.
    """

    spec: str = Field(
        description="The collection's YAML (namespace, name, columns). Relative paths start at this file's folder.",
        examples=["../../collections/packages.yaml"],
    )
    inbox: str | None = Field(
        default=None,
        description="The folder watched for CSV, TSV, JSON Lines and Parquet files. Relative paths start at "
        "AUTOFILL_HOME; the default is inbox/NAMESPACE/NAME there.",
        examples=["inbox/demo/packages", "/data/incoming/packages"],
    )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Raises SpecError, with file and line, for a YAML with mistakes."""
        spec = compile_file((context.path / self.spec).resolve())
        inbox = get_settings().home / (self.inbox or Path("inbox", spec.namespace, spec.name))
        if any(column.name == ROWS for column in spec.columns):
            raise AutofillError(
                f"{self.spec}: no column can be called {ROWS!r}: that is the asset of the rows themselves"
            )
        defined = DefinedCollection(spec, inbox)
        return dg.Definitions.merge(
            build_assets(defined), build_schedules(defined), dg.Definitions(sensors=[build_inbox_sensor(defined)])
        )
