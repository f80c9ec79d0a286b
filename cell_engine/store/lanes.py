"""The queue by lane (collection × job type), for people."""

from typing import Any

from cell_engine.store.database import Connection, run


def list_lanes(connection: Connection) -> list[Any]:
    """Lanes that have work: (namespace, collection, job_type, queued, delayed, computing, oldest). Reads all of it."""
    return run(connection, "lanes").fetchall()
