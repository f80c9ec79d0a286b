"""Figures of the whole installation, for whoever watches it: bounded in number and in time."""

from dataclasses import dataclass

from cell_engine.store.database import Connection, run

MOST = 200
"""Lanes, and collections: every one of them is a time series somewhere."""

PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class Lane:
    """Rows by state; `oldest_age` is how many seconds the oldest queued row has waited."""

    collection: str
    job_type: str
    queued: int
    delayed: int
    parked: int
    computing: int
    oldest_age: float


@dataclass(frozen=True, slots=True)
class Spent:
    """What a collection's calls of models took so far; `cost` is in dollars, of those whose cost is known."""

    collection: str
    calls: int
    tokens: int
    cost: float


def lanes_and_spend(connection: Connection) -> tuple[list[Lane], list[Spent]]:
    """The deepest lanes and the dearest collections. Raises psycopg.errors.QueryCanceled where that takes too long."""
    with connection.transaction():
        connection.execute(f"set local statement_timeout = '{PATIENCE}s'".encode())
        lanes = [Lane(*one) for one in run(connection, "lane_depths", limit=MOST)]
        return lanes, [Spent(*one) for one in run(connection, "spend_totals", limit=MOST)]
