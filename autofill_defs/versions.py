"""Keeping the database's version of a collection and this code location's in agreement.

Both may move first: somebody edits the YAML and reloads, or applies it by hand while this process still holds the old
one. So a definition is applied when it is new to whoever looks, never because the database differs from it.
"""

from dataclasses import replace

from autofill_defs.defined import DefinedCollection
from cell_engine.errors import NotFoundError
from cell_engine.store.applying import Applied, apply
from cell_engine.store.collections import Collection, current_hash, find_collection
from cell_engine.store.database import Connection

ACTOR = "dagster"


def apply_if_changed(connection: Connection, defined: DefinedCollection, seen: str) -> Applied | None:
    """Apply the definition unless it is the one whose hash (hex) was `seen` before: a code location was reloaded."""
    if defined.spec.hash.hex() == seen:
        return None
    return apply(connection, defined.spec, actor=ACTOR)


def apply_if_unknown(connection: Connection, defined: DefinedCollection) -> tuple[Collection, bool]:
    """The collection, its definition applied if it has never been; and whether the definition is its current version.

    A run has no memory of what it saw. One that was started with an older definition works with the current version.
    """
    try:
        collection = find_collection(connection, defined.full_name)
    except NotFoundError:
        return apply(connection, defined.spec, actor=ACTOR).collection, True
    for number in range(collection.version, 0, -1):
        if current_hash(connection, replace(collection, version=number)) == defined.spec.hash:
            return collection, number == collection.version
    return apply(connection, defined.spec, actor=ACTOR).collection, True
