"""Collections and their versions: applying a compiled spec, and reading back what is current."""

import json
from dataclasses import dataclass

from cell_engine.errors import BadValueError, NotFoundError
from cell_engine.specs.compile import CompiledSpec
from cell_engine.specs.loading import Loading
from cell_engine.specs.version import Column, Version
from cell_engine.store.database import Connection, run


@dataclass(frozen=True, slots=True)
class Collection:
    """`version` is the current one's number; `next_row` is one more than the highest row id given out."""

    id: int
    namespace: str
    name: str
    version: int
    cap: int
    next_row: int

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


def find_collection(connection: Connection, full_name: str) -> Collection:
    """By "namespace/name". Raises NotFoundError, naming those there are."""
    namespace, _, name = full_name.partition("/")
    found = run(connection, "collection_find", namespace=namespace, name=name).fetchone()
    if found is None or found.version == 0:
        known = ", ".join(one.full_name for one in list_collections(connection)) or "none yet"
        raise NotFoundError(f"no collection {full_name!r} (there are: {known}); `autofill apply FILE` makes one")
    return Collection(*found)


def list_collections(connection: Connection) -> list[Collection]:
    return [Collection(*one) for one in run(connection, "collection_list")]


def load_version(connection: Connection, collection_id: int, number: int | None = None) -> Version:
    """A version of the collection, the current one unless numbered."""
    if number is None:
        current = run(connection, "collection_current", collection_id=collection_id).fetchone()
        if current is None or current.version == 0:
            raise NotFoundError(f"no collection with id {collection_id}")
        number = int(current.version)
    columns = run(connection, "version_columns", collection_id=collection_id, number=number)
    return Version(collection_id, number, tuple(Column.from_json(one.definition) for one in columns))


def load_loading(connection: Connection, collection_id: int) -> Loading:
    """How rows come into the collection, by its current version."""
    found = run(connection, "version_loading", collection_id=collection_id).fetchone()
    return Loading.from_json(None if found is None else found.loading)


def hold_version(connection: Connection, collection_id: int) -> Version:
    """The current version, which no apply replaces before the caller's transaction has ended."""
    run(connection, "version_hold", collection_id=collection_id)
    return load_version(connection, collection_id)


def collection_name(connection: Connection, collection_id: int) -> str:
    """ "namespace/name" of a collection that exists."""
    return next(one.full_name for one in list_collections(connection) if one.id == collection_id)


def ensure_collection(connection: Connection, spec: CompiledSpec) -> Collection:
    """The collection's own tuple, made if need be; it has no version until one is applied."""
    run(connection, "namespace_ensure", namespace=spec.namespace)
    run(connection, "collection_ensure", namespace=spec.namespace, name=spec.name)
    found = run(connection, "collection_find", namespace=spec.namespace, name=spec.name).fetchone()
    assert found is not None
    return Collection(*found)


def current_hash(connection: Connection, collection: Collection) -> bytes | None:
    found = run(connection, "version_hash", collection_id=collection.id, number=collection.version).fetchone()
    return None if found is None else bytes(found.hash)


def add_version(connection: Connection, collection: Collection, spec: CompiledSpec, actor: str) -> Version:
    """The next version, made current, in the caller's transaction and under the collection's lock.

    Column ids are given once; those the spec lacks are deleted softly. Raises BadValueError when a column that has been
    computed becomes an input or the other way round: its cells would change their meaning.
    """
    keys = [column.key for column in spec.columns]
    run(connection, "columns_ensure", collection_id=collection.id, keys=keys)
    run(connection, "columns_mark", collection_id=collection.id, keys=keys)
    ids = {one.key: one.id for one in run(connection, "columns_ids", collection_id=collection.id)}
    columns = spec.bind(ids)
    if collection.version:
        before = {column.key: column for column in load_version(connection, collection.id).columns}
        for column in columns:
            old = before.get(column.key)
            if old is not None and (old.kind is None) != (column.kind is None):
                raise BadValueError(
                    f"{collection.full_name}: column {column.name!r} cannot turn from "
                    f"{'an input into a computed column' if old.kind is None else 'a computed column into an input'}; "
                    "give it another id"
                )
    number = collection.version + 1
    run(
        connection,
        "version_insert",
        collection_id=collection.id,
        number=number,
        hash=spec.hash,
        actor=actor,
        cap=spec.cap,
        loading=None if (declared := spec.loading.bind(ids)) is None else json.dumps(declared),
        columns=[column.id for column in columns],
        names=[column.name for column in columns],
        kinds=[column.kind for column in columns],
        modes=[column.mode for column in columns],
        hashes=[column.hash for column in columns],
        depends_on=[json.dumps([dep.column for dep in column.deps]) for column in columns],
        definitions=[json.dumps(column.to_json(), ensure_ascii=False) for column in columns],
    )
    return Version(collection.id, number, columns)
