"""A collection's assets as the inputs of others: polars' lazy frames.

The wide table is read from its Parquet files, one a batch. A column, or the rows, are what PostgreSQL holds at that
moment: they have no file of their own, and the table's may be older than them.
"""

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import dagster as dg

from autofill_defs.defined import ROWS, TABLE, default_folder
from autofill_defs.engine import engine
from cell_engine.store.batches import find_batches
from cell_engine.store.collections import find_collection, load_version

if TYPE_CHECKING:  # polars takes 45 MB: only what reads frames pays for it
    import polars as pl

IO_MANAGER = "autofill_tables"
FOLDER = "parquet"
"""The metadata that says where a table's files are."""

_STATEMENT_TIMEOUT = 300.0
_LONGEST_NAME = 200
_NAMED = 5


def table_file(folder: Path, partition_key: str) -> Path:
    """Of a batch. Its key is opaque: it may hold slashes, and be longer than a name may be."""
    name = quote(partition_key, safe="")
    if len(name) > _LONGEST_NAME:
        name = f"{name[: _LONGEST_NAME - 20]}~{blake2b(partition_key.encode(), digest_size=8).hexdigest()}"
    return folder / f"{name}.parquet"


class TableIOManager(dg.IOManager):
    """Gives what takes a collection's table, rows or column as an input a `polars.LazyFrame` over the partitions it
    depends on; a `polars.DataFrame` where the input is annotated as one."""

    def load_input(self, context: dg.InputContext) -> "pl.LazyFrame | pl.DataFrame":
        """Raises dg.Failure, naming partitions, for a table that is not materialized; with `allow_missing_partitions`
        in the input's metadata those are left out."""
        import polars as pl

        frame = self._table(context) if context.asset_key.path[-1] == TABLE else self._columns(context)
        return frame.collect() if context.dagster_type.typing_type is pl.DataFrame else frame

    def handle_output(self, context: dg.OutputContext, obj: object) -> None:
        """Collections' assets give no object: their steps have stored what they made."""
        if obj is not None:
            raise dg.Failure(f"the IO manager {IO_MANAGER!r} loads inputs, and stores no {type(obj).__name__}")

    def _table(self, context: dg.InputContext) -> "pl.LazyFrame":
        namespace, name, _ = context.asset_key.path
        declared = context.upstream_output.definition_metadata.get(FOLDER) if context.upstream_output else None
        folder = (
            default_folder(namespace, name) if declared is None else Path(str(getattr(declared, "value", declared)))
        )
        if not context.has_asset_partitions:
            # As another code location declares it: an asset without its partitions is the whole table.
            return scan(sorted(folder.glob("*.parquet")))
        files = {key: table_file(folder, key) for key in _keys(context)}
        missing = [key for key, file in files.items() if not file.is_file()]
        gone = set(missing)
        if missing and not context.definition_metadata.get("allow_missing_partitions"):
            more = f" and {len(missing) - _NAMED:,} more" if len(missing) > _NAMED else ""
            raise dg.Failure(
                f"{context.asset_key.to_user_string()} has no file of {', '.join(missing[:_NAMED])}{more} in {folder}: "
                "materialize the table for them, or say allow_missing_partitions in the metadata of this input",
                allow_retries=False,
            )
        return scan([file for key, file in files.items() if key not in gone])

    def _columns(self, context: dg.InputContext) -> "pl.LazyFrame":
        from cell_engine.export import export_file

        namespace, name, column = context.asset_key.path
        paths: list[Path] = []
        with engine("dagster input", _STATEMENT_TIMEOUT) as connection:
            collection = find_collection(connection, f"{namespace}/{name}")
            version = load_version(connection, collection.id)
            columns = version.input_columns if column == ROWS else (version.by_name[column],)
            folder = Path(tempfile.mkdtemp(dir=_scratch()))
            for batch in find_batches(connection, collection.id, _keys(context)):
                paths.append(folder / f"{batch.id}.parquet")
                rows = (batch.first_row, batch.last_row)
                export_file(connection, collection, version, paths[-1], columns=columns, numbered=True, rows=rows)
        return scan(paths)


TABLES = TableIOManager()


def _keys(context: dg.InputContext) -> list[str]:
    """Those that the input depends on, in arrival order: Dagster's own is any."""
    wanted = set(context.asset_partition_keys)
    known = context.asset_partitions_def.get_partition_keys(dynamic_partitions_store=context.instance)
    return [key for key in known if key in wanted]


@cache
def _scratch() -> Path:
    """Lazy frames are read after they are given: their files stay as long as the process does."""
    folder = Path(tempfile.mkdtemp(prefix="autofill-inputs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def scan(paths: Sequence[Path]) -> "pl.LazyFrame":
    """The files as one frame, with the columns of the one written last: the others' may be of an older definition.

    A column that a file lacks is null in its rows, as in the typed view. Raises dg.Failure, naming files, where one has
    another type of a column, for there is no frame of both; and where one may have it by an older name.
    """
    import polars as pl

    if not paths:
        return pl.LazyFrame()
    schemas: dict[Path, dict[str, Any]] = {path: dict(pl.read_parquet_schema(path)) for path in paths}
    newest = schemas[max(paths, key=lambda path: path.stat().st_mtime_ns)]
    other = [
        f"{path} ({name}: {schema[name]}, now {newest[name]})"
        for path, schema in schemas.items()
        for name in newest.keys() & schema.keys()
        if schema[name] != newest[name]
    ]
    for path, schema in schemas.items():
        lacks, extra = newest.keys() - schema.keys(), schema.keys() - newest.keys()
        if renamed := [name for name in sorted(lacks) if newest[name] in {schema[one] for one in extra}]:
            other.append(f"{path} (no {renamed[0]}, and {', '.join(sorted(extra))}: perhaps its name before)")
    if other:
        raise dg.Failure(
            f"written under another definition: {'; '.join(other[:_NAMED])}. Materialize the table for these batches",
            allow_retries=False,
        )
    return pl.scan_parquet(list(paths), schema=newest, glob=False, missing_columns="insert", extra_columns="ignore")
