"""The `dg` component of a collection."""

from pathlib import Path

import dagster as dg
from pydantic import Field

from autofill_defs.assets import build_assets
from autofill_defs.check_settings import ChecksModel
from autofill_defs.checks import build_checks
from autofill_defs.defined import LOAD, RESERVED, DefinedCollection
from autofill_defs.sensors import build_inbox_sensor
from autofill_defs.upstream import build_load
from autofill_defs.wide import build_table
from cell_engine.errors import AutofillError
from cell_engine.settings import get_settings
from cell_engine.specs.compile import compile_file


class CollectionComponent(dg.Component, dg.Model, dg.Resolvable):
    """A collection: a table whose computed columns an AI fills in.

    Makes assets of its rows, of each computed column and of its wide table, partitioned by batch, the job that fills
    the columns, and a sensor that loads the files dropped into its inbox. Needs no database to load.
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

    parquet: str | None = Field(
        default=None,
        description="The folder of the wide table's Parquet files, one a batch. Relative paths start at AUTOFILL_HOME; "
        "the default is tables/NAMESPACE/NAME there.",
        examples=["/data/tables/packages"],
    )

    rows_from: str | None = Field(
        default=None,
        description="The key of an asset whose output, a polars frame, is the rows: loaded by the asset "
        "NAMESPACE/COLLECTION/load. With a `source` in the collection's YAML, that is loaded, and the asset only comes "
        "before it.",
        examples=["raw/reviews"],
    )
    checks: ChecksModel = Field(
        default_factory=ChecksModel,
        description="When the checks of the computed columns fail, and which of them keep the table from being made.",
        examples=[{"error_rate": {"max": 0.02, "blocking": True}, "freshness": {"within": "15m"}}],
    )

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Raises SpecError, with file and line, for a YAML with mistakes."""
        spec = compile_file((context.path / self.spec).resolve())
        home = get_settings().home
        inbox = home / (self.inbox or Path("inbox", spec.namespace, spec.name))
        reserved = RESERVED | ({LOAD: "what loads the rows"} if self.rows_from is not None else {})
        for column in spec.columns:
            if column.name in reserved:
                taken = reserved[column.name]
                raise AutofillError(
                    f"{self.spec}: no column can be called {column.name!r}: that is the asset of {taken}"
                )
        parquet = home / self.parquet if self.parquet else None
        rows_from = dg.AssetKey.from_user_string(self.rows_from) if self.rows_from is not None else None
        defined = DefinedCollection(spec, inbox, parquet=parquet, checks=self.checks, rows_from=rows_from)
        return dg.Definitions.merge(
            build_assets(defined),
            build_table(defined),
            build_checks(defined),
            build_load(defined),
            dg.Definitions(sensors=[build_inbox_sensor(defined)]),
        )
