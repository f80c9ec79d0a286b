"""What an estimate reads: some rows with their cells, at a cost that does not depend on how many there are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cell_engine.plan import Cell, Row
from cell_engine.store.arrays import binaries, numbers
from cell_engine.store.database import Connection, run


@dataclass(frozen=True, slots=True)
class Called:
    """What the call took that gave a cell its answer, and under which version."""

    version: int
    model: str
    tokens_in: int
    tokens_out: int


@dataclass(slots=True)
class Sampled:
    """A row as a plan reads it, and by column id what its cells' calls took."""

    row_id: int
    row: Row
    called: dict[int, Called] = field(default_factory=dict)


def read_sample(
    connection: Connection, collection_id: int, rows: Sequence[int], *, deleted: bool = False
) -> list[Sampled]:
    """These rows, in one snapshot; without `deleted`, but for those that do not exist any more."""
    with connection.transaction():
        connection.execute("set transaction isolation level repeatable read, read only")
        found = {
            one.row_id: Sampled(one.row_id, Row({int(id): value for id, value in one.inputs.items()}, one.change))
            for one in run(connection, "sample_rows", collection_id=collection_id, rows=list(rows), deleted=deleted)
        }
        for row_id, column_id, *rest in run(connection, "sample_cells", collection_id=collection_id, rows=list(rows)):
            sampled = found.get(row_id)
            if sampled is None:
                continue
            *cell, version, model, tokens_in, tokens_out = rest
            sampled.row.cells[column_id] = Cell(*cell)
            if tokens_in is not None and version is not None and model is not None:
                sampled.called[column_id] = Called(version, model, tokens_in, tokens_out or 0)
    return list(found.values())


def rows_in_error(
    connection: Connection, collection_id: int, classes: Sequence[str], columns: Sequence[int], limit: int
) -> list[int]:
    """Rows with a cell in error of these classes and columns; `limit` of them or more: there may be others."""
    found = run(
        connection,
        "sample_errors",
        collection_id=collection_id,
        classes=list(classes),
        columns=list(columns),
        limit=limit,
    )
    return sorted(one.row_id for one in found)


def namespace_of(connection: Connection, collection_id: int) -> int:
    """The id of the namespace of a collection that exists."""
    found = run(connection, "collection_namespace", collection_id=collection_id).fetchone()
    assert found is not None
    return int(found.namespace_id)


def cached(connection: Connection, namespace_id: int, fingerprints: Mapping[bytes, float | None]) -> set[bytes]:
    """Those that the cache has an answer for, of at most so many seconds (None: any age): no call, and no cost."""
    if not fingerprints:
        return set()
    found = run(
        connection,
        "cache_known",
        namespace_id=namespace_id,
        fingerprints=binaries(fingerprints),
        ttls=numbers(fingerprints.values()),
    )
    return {one.fingerprint for one in found}
