"""The wide table of a collection: a row a row, typed columns, as Parquet by batch and as a view in PostgreSQL."""

from collections.abc import Iterator

import dagster as dg

from autofill_defs.checks import has_blocking
from autofill_defs.defined import DefinedCollection
from autofill_defs.engine import engine
from autofill_defs.io_manager import FOLDER, IO_MANAGER, TABLES, table_file
from cell_engine.specs.compiled import SpecColumn
from cell_engine.store.batches import find_batches
from cell_engine.store.collections import find_collection, load_version
from cell_engine.store.models import view_columns
from cell_engine.store.wide_view import SCHEMA, plain_view_name, refresh_views, view_name

# Of one portion of a batch's rows.
_STATEMENT_TIMEOUT = 300.0


def build_table(defined: DefinedCollection) -> dg.Definitions:
    """The table, which other assets take as an input (`TABLES` loads it) and dbt models by its view."""

    @dg.asset(
        key=defined.table_key,
        deps=[defined.rows_key, *(defined.column_key(column.name) for column in defined.computed)],
        description=f"The wide table of {defined.full_name}: a row a row, all columns as people see them. A Parquet "
        f"file for each batch in `{defined.table_folder}`; the view shows what is now.",
        partitions_def=defined.partitions,
        backfill_policy=dg.BackfillPolicy.single_run(),
        group_name=defined.group or defined.identifier,
        owners=defined.owners,
        tags=defined.tags,
        kinds={"parquet", "postgres"},
        code_version=defined.spec.hash.hex(),
        metadata=_definition_metadata(defined),
        io_manager_key=IO_MANAGER,
        automation_condition=_condition(defined),
    )
    def table(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[None]]:
        yield from _materialize(context, defined)

    return dg.Definitions(assets=[table], resources={IO_MANAGER: TABLES})


def _condition(defined: DefinedCollection) -> dg.AutomationCondition[dg.AssetKey]:
    """Evaluated where somebody has turned on the code location's automation sensor. Columns may be missing: one that is
    computed only when asked for is perhaps never materialized."""
    follow = dg.AutomationCondition.eager().without(~dg.AutomationCondition.any_deps_missing())
    return follow & dg.AutomationCondition.all_deps_blocking_checks_passed() if has_blocking(defined) else follow


def _definition_metadata(defined: DefinedCollection) -> dict[str, dg.MetadataValue | dg.TableSchema | str]:
    plain = plain_view_name(defined.spec.namespace, defined.spec.name)
    return {
        FOLDER: dg.MetadataValue.path(str(defined.table_folder)),
        "dagster/column_schema": dg.TableSchema(columns=[_column(column) for column in defined.spec.columns]),
        **({"dagster/table_name": f"{SCHEMA}.{plain}"} if plain else {}),
    }


def _column(column: SpecColumn) -> dg.TableColumn:
    shown = f"list of {column.type.items}" if column.type.name == "list" else column.type.name
    return dg.TableColumn(column.name, shown, description=None if column.kind is None else f"by {column.kind}")


def _materialize(context: dg.AssetExecutionContext, defined: DefinedCollection) -> Iterator[dg.MaterializeResult[None]]:
    # Polars is not for every process that loads the definitions.
    from cell_engine.export import export_file

    keys = list(context.partition_keys)
    folder = defined.table_folder
    folder.mkdir(parents=True, exist_ok=True)
    total = 0
    with engine("dagster table", _STATEMENT_TIMEOUT) as connection:
        collection = find_collection(connection, defined.full_name)
        version = load_version(connection, collection.id)
        batches = find_batches(connection, collection.id, keys)
        lacking = set(keys) - {batch.key for batch in batches}
        if lacking:
            raise dg.Failure(
                f"{defined.full_name} has no batch {', '.join(sorted(lacking)[:5])}: its rows were never loaded. "
                "Delete the partition, or drop its file into the inbox again.",
                allow_retries=False,
            )
        for batch in batches:
            path = table_file(folder, batch.key)
            rows = (batch.first_row, batch.last_row)
            written = export_file(connection, collection, version, path, numbered=True, rows=rows).rows
            total += written
            context.add_asset_metadata(
                {
                    "dagster/partition_row_count": written,
                    "file": dg.MetadataValue.path(str(path)),
                    "bytes": path.stat().st_size,
                    "version": version.number,
                },
                asset_key=defined.table_key,
                partition_key=batch.key,
            )
        refresh_views(connection)
        view = view_name(collection)
        columns = [dg.TableColumn(name, kind) for name, kind in view_columns(connection, view, SCHEMA)]
    context.log.info(f"{total:,} rows of {len(batches):,} batches in {folder}")
    yield dg.MaterializeResult(
        metadata={
            "dagster/table_name": f"{SCHEMA}.{view}",
            "dagster/column_schema": dg.TableSchema(columns=columns),
            "rows_written": total,
        }
    )
