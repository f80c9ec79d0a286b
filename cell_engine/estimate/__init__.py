"""Dry run: what a dispatch would compute and cost, before it is made.

Some hundred random rows of its scope are planned by the very `plan` that a worker plans with, under the demand that the
dispatch would make, again and again with assumed answers until nothing is due. So filters, force, pins, blocked cells
and the cascade count as they will. Tokens in come from the rendered prompts. A tokenizer would have to be the model's
own, and behind a base URL may be any model: what the column's own past calls billed for each character of their prompts
is nearer, and counts schemas and corrections too. Where there is no past, four characters are a token.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

from cell_engine.estimate.calls import read_past, simulate
from cell_engine.estimate.drawing import SAMPLE_ROWS, draw
from cell_engine.estimate.summing import ColumnEstimate, Estimate, sum_up
from cell_engine.plan import PROPOSED, Asked, Due, Row
from cell_engine.specs.version import Version
from cell_engine.store.collections import Collection
from cell_engine.store.database import Connection
from cell_engine.store.demands import RangeScope, RowScope
from cell_engine.store.reviews import CHUNK, Filter, proposals
from cell_engine.store.sampling import cached, namespace_of, read_sample
from cell_engine.store.syncing import Drawn

__all__ = ["ColumnEstimate", "Estimate", "estimate", "estimate_accept", "estimate_changes", "estimate_new"]

_NEW = 2**62  # a signal above all that were given out


def estimate(
    connection: Connection,
    collection: Collection,
    version: Version,
    scope: RowScope | RangeScope,
    *,
    columns: Sequence[int] = (),
    force: bool = False,
    only_if: Sequence[str] | None = None,
) -> Estimate:
    """What `dispatch` with these arguments would take. Reads some hundred rows, whatever the scope; locks nothing."""
    rows, ids = draw(connection, collection, scope, columns, only_if)
    sample = read_sample(connection, collection.id, ids)
    past = read_past(connection, collection, version, sample)
    asked = {id: Asked(_NEW, _NEW if force else 0, 0, None if only_if is None else tuple(only_if)) for id in columns}
    moving = [simulate(one.row, version, asked, past, changes=True) for one in sample]
    still = [simulate(one.row, version, asked, past, changes=False) for one in sample]
    hits: set[bytes] = set()
    if not force:  # which passes over what the cache had before
        hits = cached(connection, namespace_of(connection, collection.id), _keys(moving))
    return sum_up(version, rows, len(ids), moving, still, past, hits)


def estimate_new(connection: Connection, collection: Collection, version: Version, rows: Iterable[Row]) -> Estimate:
    """What rows that are not loaded yet would take once they are. Passes all of them, plans some hundred."""
    kept: list[Row] = []
    count = 0
    for row in rows:  # a reservoir: each has the same chance, however many come
        count += 1
        if len(kept) < SAMPLE_ROWS:
            kept.append(row)
        elif (place := random.randrange(count)) < SAMPLE_ROWS:  # noqa: S311
            kept[place] = row
    past = read_past(connection, collection, version, ())
    moving = [simulate(row, version, {}, past, changes=True) for row in kept]
    hits = cached(connection, namespace_of(connection, collection.id), _keys(moving))
    return sum_up(version, count, len(kept), moving, moving, past, hits)


def estimate_changes(
    connection: Connection, collection: Collection, version: Version, drawn: Sequence[Drawn], rows: int
) -> Estimate:
    """What `rows` rows would take once a snapshot is synced that says of them what it says of those `drawn`."""
    known = [one.row_id for one in drawn if one.row_id is not None]
    sample = {one.row_id: one.row for one in read_sample(connection, collection.id, known, deleted=True)}
    changed: list[Row] = []
    for row_id, inputs, missing in drawn:
        before = sample.get(row_id, Row({})) if row_id is not None else Row({})
        kept = {column: value for column, value in before.inputs.items() if column not in missing}
        changed.append(Row({**kept, **inputs}, _NEW, before.cells))
    past = read_past(connection, collection, version, ())
    moving = [simulate(row, version, {}, past, changes=True) for row in changed]
    still = [simulate(row, version, {}, past, changes=False) for row in changed]
    hits = cached(connection, namespace_of(connection, collection.id), _keys(moving))
    return sum_up(version, rows, len(changed), moving, still, past, hits)


def estimate_accept(connection: Connection, collection: Collection, version: Version, which: Filter) -> Estimate:
    """What the answers that wait for review and are meant make due once they are accepted. Passes all of them."""
    drawn: list[tuple[int, list[int]]] = []
    rows = place = after_row = after_column = 0
    while page := proposals(connection, collection.id, which, after=(after_row, after_column), limit=CHUNK):
        for one in page:
            if one.row_id != after_row:
                place = rows if rows < SAMPLE_ROWS else random.randrange(rows + 1)  # noqa: S311
                rows += 1
                drawn[place : place + 1] = [(one.row_id, [])] if place < SAMPLE_ROWS else []
            if place < SAMPLE_ROWS:
                drawn[place][1].append(one.column_id)
            after_row, after_column = one.row_id, one.column_id
    sample = read_sample(connection, collection.id, [row_id for row_id, _ in drawn])
    accepted = dict(drawn)
    for sampled in sample:
        for column_id in accepted[sampled.row_id]:
            cell = sampled.row.cells.get(column_id)
            if cell is not None and cell.error_class == PROPOSED:
                sampled.row.cells[column_id] = replace(cell, error_class=None, change=_NEW)
    past = read_past(connection, collection, version, ())
    moving = [simulate(one.row, version, {}, past, changes=True) for one in sample]
    still = [simulate(one.row, version, {}, past, changes=False) for one in sample]
    hits = cached(connection, namespace_of(connection, collection.id), _keys(moving))
    return sum_up(version, rows, len(drawn), moving, still, past, hits)


def _keys(moving: Sequence[list[Due]]) -> dict[bytes, float | None]:
    """What is asked of the cache, with the age that its column takes."""
    return {due.fingerprint: due.column.cache.ttl for calls in moving for due in calls if due.column.cache is not None}
