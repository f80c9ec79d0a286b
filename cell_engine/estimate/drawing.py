"""Which rows of a scope are looked at: all of a few, some hundred of many."""

import random
from collections.abc import Sequence

from cell_engine.store.collections import Collection
from cell_engine.store.database import Connection
from cell_engine.store.demands import RangeScope, RowScope
from cell_engine.store.sampling import rows_in_error

SAMPLE_ROWS = 400

ERROR_ROWS = 20_000
"""A retry of no more rows than these is sampled from just them, as the index has them."""


def draw(
    connection: Connection,
    collection: Collection,
    scope: RowScope | RangeScope,
    columns: Sequence[int],
    only_if: Sequence[str] | None,
) -> tuple[int, Sequence[int]]:
    """How many rows there are, and which of them are looked at."""
    if isinstance(scope, RowScope):
        rows: Sequence[int] = sorted(set(scope.rows))
        return len(rows), _choose(rows)
    classes = [one.removeprefix("error:") for one in only_if or () if one.startswith("error:")]
    if only_if and len(classes) == len(only_if):
        found = rows_in_error(connection, collection.id, classes, columns, ERROR_ROWS)
        if len(found) < ERROR_ROWS:
            rows = [row for row in found if any(first <= row <= last for first, last in scope.ranges)]
            return len(rows), _choose(rows)
    return sum(last - first + 1 for first, last in scope.ranges), choose_of(scope.ranges)


def _choose(rows: Sequence[int]) -> Sequence[int]:
    return rows if len(rows) <= SAMPLE_ROWS else random.sample(rows, SAMPLE_ROWS)


def choose_of(ranges: Sequence[tuple[int, int]], most: int = SAMPLE_ROWS) -> list[int]:
    """Row ids of the ranges, all of a few, `most` of many, ascending."""
    total = sum(last - first + 1 for first, last in ranges)
    chosen = sorted(random.sample(range(total), min(total, most)))
    ids: list[int] = []
    passed = 0
    remaining = iter(chosen)
    place = next(remaining, None)
    for first, last in ranges:
        size = last - first + 1
        while place is not None and place < passed + size:
            ids.append(first + place - passed)
            place = next(remaining, None)
        passed += size
    return ids
