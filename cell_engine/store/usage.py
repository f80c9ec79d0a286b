"""What calls of models took: rolled up by the janitor, read as one sum with what has not been yet."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from cell_engine.store.database import Connection, run
from cell_engine.store.upkeep import is_alone

BY = ("namespace", "collection", "column", "model", "day")
"""What usage can be split by."""

ROLL_BATCH = 5000


@dataclass(frozen=True, slots=True)
class Usage:
    """Calls of models. `cost` is in billionths of a dollar, and without the `unpriced` calls, whose cost is not known.
    `tokens_cached` are among those in, `tokens_reasoning` among those out. None: not split by it."""

    namespace: str | None
    collection: str | None
    column: str | None
    model: str | None
    day: date | None
    calls: int
    failed: int
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    tokens_reasoning: int
    cost: int
    unpriced: int


def usage(
    connection: Connection,
    by: Sequence[str],
    *,
    namespace: str | None = None,
    collection: str | None = None,
    since: date | None = None,
) -> list[Usage]:
    """Split by any of `BY`, since a day (UTC) or ever, of a namespace, of a collection in it, or of all."""
    found = run(connection, "usage_by", by=list(by), namespace=namespace, collection=collection, since=since)
    return [Usage(*one) for one in found]


def roll_up(connection: Connection) -> int:
    """One bounded step; returns how many deltas it took: `ROLL_BATCH` means that there may be more."""
    with connection.transaction():
        if not is_alone(connection, "autofill.usage"):
            return 0
        found = run(connection, "usage_roll", limit=ROLL_BATCH).fetchone()
        return 0 if found is None else int(found.deltas)
