"""Applying a compiled spec: a new immutable version, and its consequences, in one transaction."""

from dataclasses import dataclass

from cell_engine.specs.compile import CompiledSpec
from cell_engine.specs.version import Version
from cell_engine.store.collections import Collection, add_version, current_hash, ensure_collection, load_version
from cell_engine.store.database import Connection, run
from cell_engine.store.demands import RangeScope, dispatch_in_transaction
from cell_engine.store.results import end_dispatches
from cell_engine.store.wide_view import replace_view


@dataclass(frozen=True, slots=True)
class Applied:
    """`created` is false when the spec was the current version already. `dispatch_id` is the recomputation it set off:
    of `changed`, the on-change columns whose definition is new or another one. `removed` are columns gone from it."""

    collection: Collection
    version: Version
    created: bool
    changed: tuple[str, ...] = ()
    dispatch_id: int | None = None
    removed: tuple[str, ...] = ()


def apply(connection: Connection, spec: CompiledSpec, *, actor: str) -> Applied:
    """Make `spec` the current version of its collection; the same again changes nothing.

    Raises BadValueError for a change that would give cells another meaning.
    """
    dispatch_id: int | None = None
    with connection.transaction():
        collection = ensure_collection(connection, spec)
        run(connection, "collection_lock", collection_id=collection.id)
        run(connection, "version_lock", collection_id=collection.id)
        collection = ensure_collection(connection, spec)
        if current_hash(connection, collection) == spec.hash:
            return Applied(collection, load_version(connection, collection.id), created=False)
        before = load_version(connection, collection.id) if collection.version else None
        version = add_version(connection, collection, spec, actor)
        # One that has only now become on-change is new to the cascade, whatever its definition.
        known = {column.id: column.hash for column in (before.computed if before else ()) if column.mode == "on_change"}
        changed = [
            column for column in version.computed if column.mode == "on_change" and known.get(column.id) != column.hash
        ]
        if changed and collection.next_row > 1:
            dispatch_id, _ = dispatch_in_transaction(
                connection,
                collection.id,
                RangeScope(((1, collection.next_row - 1),)),
                columns=[column.id for column in changed],
                reason="apply",
                actor=actor,
            )
        collection = ensure_collection(connection, spec)
        replace_view(connection, collection, version)
    if dispatch_id is not None:
        end_dispatches(connection, [dispatch_id])
    removed = tuple(one.name for one in (before.columns if before else ()) if one.id not in version.by_id)
    return Applied(collection, version, True, tuple(column.name for column in changed), dispatch_id, removed)
