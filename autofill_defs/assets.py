"""A collection's assets: its rows, which arrive from outside, and its computed columns, which one step fills."""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from autofill_defs.config import FillConfig
from autofill_defs.defined import DefinedCollection
from autofill_defs.io_manager import IO_MANAGER, TABLES
from autofill_defs.runs import fill
from autofill_defs.sparse import build_batches_job
from cell_engine.specs.compiled import SpecColumn, SpecDependency
from cell_engine.specs.schedule import Schedule


def build_assets(defined: DefinedCollection) -> dg.Definitions:
    """The assets, and the job that fills them: what the file sensor runs, one step in the run's own process."""
    rows = _rows_spec(defined)
    if not defined.computed:
        return dg.Definitions(assets=[rows], resources={IO_MANAGER: TABLES})

    @dg.multi_asset(
        name=f"fill_{defined.identifier}",
        description=f"Brings columns of {defined.full_name} up to date: one dispatch for any columns × any batches.",
        specs=[_column_spec(defined, column) for column in defined.computed],
        partitions_def=defined.partitions,
        backfill_policy=dg.BackfillPolicy.single_run(),
        can_subset=True,
    )
    def columns(context: dg.AssetExecutionContext, config: FillConfig) -> Iterator[dg.MaterializeResult[None]]:
        yield from fill(context, config, defined)

    job = dg.define_asset_job(
        name=defined.identifier,
        description=f"Fill the computed columns of {defined.full_name} for some of its batches.",
        # Without their checks, which have a job of their own: this one is a single step.
        selection=dg.AssetSelection.assets(
            *(defined.column_key(column.name) for column in defined.computed)
        ).without_checks(),
        executor_def=dg.in_process_executor,
        tags=dict(defined.tags),
    )
    return dg.Definitions(
        assets=[rows, columns], jobs=[job, build_batches_job(defined)], resources={IO_MANAGER: TABLES}
    )


def _rows_spec(defined: DefinedCollection) -> dg.AssetSpec:
    sources = [
        f"Drop a CSV, TSV, JSON Lines, Parquet or Excel (.xlsx) file into `{defined.inbox}` to add one.",
        f"Entries of the feed {defined.spec.loading.feed}." if defined.spec.loading.feed else "",
        f"All that the source {defined.spec.loading.source.title} gives." if defined.spec.loading.source else "",
        f"Looked at again{_when(defined.spec.loading.refresh)}." if defined.spec.loading.refresh else "",
        *(
            f"Files `{column.files.pattern}` below `{column.files.root}`, a row each."
            for column in defined.inputs
            if column.files is not None and column.files.pattern is not None
        ),
    ]
    return dg.AssetSpec(
        defined.rows_key,
        deps=[defined.load_key] if defined.rows_from is not None else [],
        description=f"The rows of {defined.full_name}, a partition for each batch that arrived. "
        + " ".join(filter(None, sources)),
        partitions_def=defined.partitions,
        group_name=defined.group or defined.identifier,
        owners=defined.owners,
        tags=defined.tags,
        kinds={"table", "postgres"},
        metadata={
            "dagster/column_schema": dg.TableSchema(columns=[_schema(column) for column in defined.inputs]),
            "inbox": dg.MetadataValue.path(str(defined.inbox)),
            **_code(defined, None),
        },
    ).with_io_manager_key(IO_MANAGER)


def _column_spec(defined: DefinedCollection, column: SpecColumn) -> dg.AssetSpec:
    by_key = {one.key: one for one in defined.spec.columns}
    deps = [dep for dep in column.deps if not dep.silent]
    upstream = {
        defined.column_key(one.name) if one.kind is not None else defined.rows_key
        for one in (by_key[dep.column] for dep in deps)
    }
    reads = ", ".join(_read(by_key[dep.column], dep) for dep in deps)
    mode = {
        "on_change": "Recomputed as soon as what it reads changes.",
        "cron": f"Refreshed by its schedule{_when(column.schedule)}.",
        "never": "Recomputed only when asked for.",
    }[column.mode]
    return dg.AssetSpec(
        defined.column_key(column.name),
        deps=sorted(upstream),
        description="\n\n".join(
            [f"A {_type(column)} by `{column.kind}`, from {reads}. {mode}{_review(column)}", *_settings(column)]
        ),
        skippable=True,  # a dry run materializes nothing
        group_name=defined.group or defined.identifier,
        owners=defined.owners,
        tags=defined.tags,
        kinds={str(column.kind), "postgres"},
        code_version=column.hash.hex(),
        metadata={
            "dagster/column_schema": dg.TableSchema(columns=[_schema(column)]),
            "mode": column.mode,
            "type": _type(column),
            "max_error_rate": defined.max_error_rate,
            "definition": dg.MetadataValue.json(column.normalized),
            **_code(defined, column),
        },
    ).with_io_manager_key(IO_MANAGER)


def _when(schedule: Schedule | None) -> str:
    return "" if schedule is None else f" `{schedule.cron}` ({schedule.timezone})"


def _read(column: SpecColumn, dep: SpecDependency) -> str:
    said = [
        *(["optional"] if dep.optional else []),
        *([f"not found: {dep.not_found}"] if dep.not_found is not None else []),
    ]
    return f"`{column.name}`" + (f" ({', '.join(said)})" if said else "")


def _schema(column: SpecColumn) -> dg.TableColumn:
    return dg.TableColumn(
        column.name,
        type=_type(column),
        constraints=dg.TableColumnConstraints(
            nullable=True,
            other=[f"one of: {', '.join(column.type.choices)}"] if column.type.choices else [],
        ),
    )


def _code(defined: DefinedCollection, column: SpecColumn | None) -> dict[str, Any]:
    """Where the column, or the collection, stands in its YAML."""
    if defined.file is None:
        return {}
    line = defined.lines.get(column.name, 1) if column is not None else 1
    reference = dg.LocalFileCodeReference(file_path=str(defined.file), line_number=line, label=defined.file.name)
    return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[reference])}


def _type(column: SpecColumn) -> str:
    if column.type.name == "list":
        return f"list of {column.type.items}"
    return column.type.name


def _review(column: SpecColumn) -> str:
    if column.review is None:
        return ""
    which = "Answers" if column.review.when is None else "Some answers"
    return f" {which} are shown once a person has accepted them (`autofill review`)."


def _settings(column: SpecColumn) -> Iterator[str]:
    """A kind's settings for people; the prompt as it stands in the YAML."""
    for name, value in column.settings.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key}: {one}" for key, one in value.items())
        if isinstance(value, list):
            value = "".join(f"{{{{{part['column']}}}}}" if isinstance(part, dict) else str(part) for part in value)
        yield f"**{name}**\n```\n{value}\n```" if "\n" in str(value) else f"**{name}**: {value}"
