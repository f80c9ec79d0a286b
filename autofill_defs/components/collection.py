"""The `dg` component of a collection."""

from pathlib import Path
from typing import Annotated

import dagster as dg
from pydantic import Field

from autofill_defs.assets import build_assets
from autofill_defs.check_sensor import build_checks_sensor
from autofill_defs.check_settings import ChecksModel
from autofill_defs.checks import build_checks
from autofill_defs.components.scaffolding import CollectionScaffolder
from autofill_defs.defined import LOAD, MAX_ERROR_RATE, RESERVED, DefinedCollection
from autofill_defs.schedules import build_schedules
from autofill_defs.sensors import build_inbox_sensor
from autofill_defs.upstream import build_load
from autofill_defs.wide import build_table
from cell_engine.errors import AutofillError
from cell_engine.settings import get_settings
from cell_engine.specs.compile import compile_file
from cell_engine.specs.yaml_lines import read_file


@dg.scaffold_with(CollectionScaffolder)
class CollectionComponent(dg.Component, dg.Model, dg.Resolvable):
    """A collection: a table whose computed columns an AI fills in.

    Makes an asset of its **rows** and one of **each computed column**, partitioned by batch, in the order in which they
    depend on one another; the **job** that fills any columns of any range of batches, as one dispatch, and the job that
    takes any set of batches; a **sensor** that loads the files dropped into its inbox; the **wide table**, as Parquet
    and as a view; and **checks**. Loads without a database.

    The collection's own YAML (`spec`) declares its columns: types, prompts, what each reads, when it is recomputed. A
    change of it is a new version of the collection, applied when the definitions are reloaded.

        type: autofill_defs.components.collection.CollectionComponent
        attributes:
          spec: collection.yaml
          owners:
            - team:data
          tags: {domain: support}

    `dg scaffold defs autofill_defs.components.collection.CollectionComponent NAME` writes both files; `dg check yaml`
    and `dg check defs` name mistakes by file and line.
    """

    # Where there is a default, the catalogue takes what is said of an attribute from its resolver alone.
    spec: str = Field(
        description="The collection's YAML (namespace, name, columns). Relative paths start at this file's folder.",
        examples=["../../collections/packages.yaml"],
    )
    inbox: Annotated[
        str | None,
        dg.Resolver.default(
            description="The folder watched for CSV, TSV, JSON Lines, Parquet and Excel files. Relative paths start at "
            "AUTOFILL_HOME; the default is inbox/NAMESPACE/NAME there.",
            examples=["inbox/demo/packages", "/data/incoming/packages"],
        ),
    ] = None

    owners: Annotated[
        list[str],
        dg.Resolver.default(
            description="Owners of all of its assets: e-mail addresses, or teams.",
            examples=[["team:data", "somebody@example.com"]],
        ),
    ] = Field(default_factory=list)
    tags: Annotated[
        dict[str, str],
        dg.Resolver.default(
            description="Tags of all of its assets and of its jobs' runs.", examples=[{"domain": "support"}]
        ),
    ] = Field(default_factory=dict)
    group: Annotated[
        str | None,
        dg.Resolver.default(
            description="The asset group; by default one of its own, NAMESPACE__NAME.", examples=["support"]
        ),
    ] = None
    max_error_rate: Annotated[
        float,
        dg.Resolver.default(
            description="A run fails when more than this share of its cells ended in error; the good ones are kept and "
            "reported either way. A run's own config may say otherwise.",
            examples=[0.05],
        ),
    ] = Field(default=MAX_ERROR_RATE, ge=0, le=1)
    parquet: Annotated[
        str | None,
        dg.Resolver.default(
            description="The folder of the wide table's Parquet files, one a batch. Relative paths start at "
            "AUTOFILL_HOME; the default is tables/NAMESPACE/NAME there.",
            examples=["/data/tables/packages"],
        ),
    ] = None

    rows_from: Annotated[
        str | None,
        dg.Resolver.default(
            description="The key of an asset whose output, a polars frame, is the rows: loaded by the asset "
            "NAMESPACE/COLLECTION/load. With a `source` in the collection's YAML, that is loaded, and the asset only "
            "comes before it.",
            examples=["raw/reviews"],
        ),
    ] = None
    checks: Annotated[
        ChecksModel,
        dg.Resolver.default(
            description="When the checks of the computed columns fail, and which of them keep the table from being "
            "made.",
            examples=[{"error_rate": {"max": 0.02, "blocking": True}, "freshness": {"within": "15m"}}],
        ),
    ] = Field(default_factory=ChecksModel)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Raises SpecError, with file and line, for a YAML with mistakes."""
        file = (context.path / self.spec).resolve()
        spec = compile_file(file)
        home = get_settings().home
        reserved = RESERVED | ({LOAD: "what loads the rows"} if self.rows_from is not None else {})
        for column in spec.columns:
            if column.name in reserved:
                taken = reserved[column.name]
                raise AutofillError(
                    f"{self.spec}: no column can be called {column.name!r}: that is the asset of {taken}"
                )
        defined = DefinedCollection(
            spec,
            inbox=home / (self.inbox or Path("inbox", spec.namespace, spec.name)),
            owners=tuple(self.owners),
            tags=self.tags,
            group=self.group,
            max_error_rate=self.max_error_rate,
            file=file,
            lines=_lines(file),
            parquet=home / self.parquet if self.parquet else None,
            checks=self.checks,
            rows_from=dg.AssetKey.from_user_string(self.rows_from) if self.rows_from is not None else None,
        )
        return dg.Definitions.merge(
            build_assets(defined),
            build_table(defined),
            build_checks(defined),
            build_load(defined),
            build_schedules(defined),
            dg.Definitions(sensors=[build_inbox_sensor(defined), *build_checks_sensor(defined)]),
        )


def _lines(file: Path) -> dict[str, int]:
    """Where each column of a collection's YAML without mistakes begins."""
    document = read_file(file)
    return {column["name"]: document.line(("columns", place)) for place, column in enumerate(document.data["columns"])}
