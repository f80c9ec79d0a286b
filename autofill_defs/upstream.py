"""Rows from another asset: its polars frame is loaded, or, after it, the source that the collection declares.

What loads is an asset of its own before the rows. They are partitioned by the batches that a load makes, and nobody
can materialize a partition that is not there yet; the load has none, and stands in one run with what comes before it.
"""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from autofill_defs.defined import DefinedCollection
from autofill_defs.engine import engine
from autofill_defs.partitions import make_known
from autofill_defs.versions import ACTOR, apply_if_unknown
from cell_engine.errors import AutofillError
from cell_engine.store.batches import all_batches
from cell_engine.store.collections import Collection, load_loading, load_version
from cell_engine.store.database import Connection

if TYPE_CHECKING:  # polars takes 45 MB: only what loads pays for it
    import polars as pl

# A comparison of millions of rows is one statement.
_STATEMENT_TIMEOUT = 600.0
_REJECTED_SHOWN = 20


def build_load(defined: DefinedCollection) -> dg.Definitions:
    """The asset that loads; none for a collection whose rows come from no other asset."""
    upstream = defined.rows_from
    if upstream is None:
        return dg.Definitions()
    declared = defined.spec.loading.source is not None
    what = "the source that the collection declares" if declared else "the frame that this asset gives"
    how = "compared by key: what differs is written, what is gone goes" if defined.spec.loading.key else "as batches"

    @dg.asset(
        key=defined.load_key,
        ins={} if declared else {"frame": dg.AssetIn(upstream, metadata={"allow_missing_partitions": True})},
        deps=[upstream] if declared else [],
        description=f"Loads {what}, {how}. The same content again changes nothing. What the rows make due is computed "
        "at once, and reported by the changes sensor.",
        group_name=defined.group or defined.identifier,
        owners=defined.owners,
        tags=defined.tags,
        kinds={"polars", "postgres"},
        automation_condition=dg.AutomationCondition.eager(),
    )
    def load(context: dg.AssetExecutionContext, **inputs: Any) -> Iterator[dg.MaterializeResult[None]]:
        yield _load(context, defined, upstream, inputs.get("frame"))

    return dg.Definitions(assets=[load])


@dataclass(frozen=True)
class _Done:
    metadata: dict[str, Any]
    rejected: list[tuple[int, str]]


def _load(
    context: dg.AssetExecutionContext, defined: DefinedCollection, upstream: dg.AssetKey, given: object
) -> dg.MaterializeResult[None]:
    """Raises dg.Failure, in the engine's words, for what cannot be loaded."""
    with (
        tempfile.TemporaryDirectory(prefix="autofill-load-") as folder,
        engine("dagster load", _STATEMENT_TIMEOUT) as db,
    ):
        collection, _ = apply_if_unknown(db, defined)
        try:
            if defined.spec.loading.source is not None:
                done = _load_declared(db, collection)
            elif load_loading(db, collection.id).key:
                done = _sync(db, collection, _frames(given, Path(folder)), upstream)
            else:
                done = _add(db, collection, _frames(given, Path(folder)), upstream)
        except AutofillError as error:
            raise dg.Failure(f"{defined.full_name}: {error}", allow_retries=False) from error
        finally:
            # Of a load that has failed half-way, what is in is in.
            made_known = make_known(context, defined, all_batches(db, collection.id))
    metadata = done.metadata | {"new_batches": made_known}
    if done.rejected:
        shown = [f"{line}: {reason}" for line, reason in done.rejected[:_REJECTED_SHOWN]]
        metadata["rejected"] = dg.MetadataValue.json(shown)
    return dg.MaterializeResult(metadata=metadata)


def _load_declared(connection: Connection, collection: Collection) -> _Done:
    from cell_engine.load.declared import refresh

    metadata: dict[str, Any] = {}
    rejected: list[tuple[int, str]] = []
    for one in refresh(connection, collection, actor=ACTOR):
        metadata["source"] = one.source
        if one.synced is not None:
            metadata |= _counts(one.synced)
            rejected += one.synced.rejected
    return _Done(metadata, rejected)


def _sync(connection: Connection, collection: Collection, frames: "list[pl.LazyFrame]", upstream: dg.AssetKey) -> _Done:
    """All frames together are all that there shall be."""
    import polars as pl

    from cell_engine.load import sync_rows
    from cell_engine.load.frame_rows import frame_rows

    source = upstream.to_user_string()
    whole = frames[0] if len(frames) == 1 else pl.concat(frames, how="vertical")
    synced = sync_rows(
        connection,
        collection,
        lambda version: frame_rows(whole, version, source, 0),
        key=_prefix(upstream),
        source=source,
        actor=ACTOR,
    )
    return _Done({"source": source, **_counts(synced)}, synced.rejected)


def _add(connection: Connection, collection: Collection, frames: "list[pl.LazyFrame]", upstream: dg.AssetKey) -> _Done:
    """Each frame by its content: what is in is not added again."""
    from cell_engine.load import load_frame
    from cell_engine.load.frame_rows import frame_digest

    source = upstream.to_user_string()
    rows = new = rejected_rows = 0
    rejected: list[tuple[int, str]] = []
    for frame in frames:
        version = load_version(connection, collection.id)
        key = f"{_prefix(upstream)}-{frame_digest(frame, version, source)}"
        loaded = load_frame(connection, collection, frame, key=key, source=source, actor=ACTOR)
        rows += loaded.rows
        new += loaded.rows if loaded.new else 0
        rejected_rows += loaded.rejected_rows
        rejected += loaded.rejected
    return _Done({"source": source, "rows": rows, "rows_new": new, "rejected_lines": rejected_rows}, rejected)


def _frames(given: object, folder: Path) -> "list[pl.LazyFrame]":
    """The frame, or those of the upstream asset's partitions in order, written down: they are read more than once, and
    a lazy one may give something else each time. Raises dg.Failure for what is no frame."""
    import polars as pl

    held = list(given.values()) if isinstance(given, Mapping) else [given]
    frames: list[pl.LazyFrame] = []
    for number, frame in enumerate(held):
        if not isinstance(frame, pl.DataFrame | pl.LazyFrame):
            raise dg.Failure(
                f"the asset that the rows come from gives a {type(frame).__name__}, not a polars DataFrame or "
                "LazyFrame. Where it gives nothing, and makes a table, declare `source` in the collection's YAML",
                allow_retries=False,
            )
        path = folder / f"{number}.parquet"
        frame.lazy().sink_parquet(path)
        frames.append(pl.scan_parquet(path, glob=False))
    return frames


def _prefix(upstream: dg.AssetKey) -> str:
    """What the keys of this asset's batches begin with."""
    return "asset-" + blake2b(upstream.to_user_string().encode(), digest_size=4).hexdigest()


def _counts(synced: Any) -> dict[str, Any]:
    names = ("inserted", "updated", "restored", "deleted", "unchanged", "withheld", "rejected_lines")
    return {name: getattr(synced, name) for name in names} | {"sync": synced.number}
