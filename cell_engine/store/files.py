"""Rows that are files: which wait for one, and which have the same content."""

from cell_engine.store.database import Connection, run

SAME_SHOWN = 1000


def wake_waiting(connection: Connection, collection_id: int, path_id: int, digest_id: int) -> int:
    """Rows that wait for a file which a load has brought (its digest is known) look again now; returns how many."""
    found = run(
        connection, "wake_waiting", collection_id=collection_id, path=str(path_id), digest=str(digest_id)
    )  # fmt: skip
    return int(found.rowcount)


def same_content(connection: Connection, collection_id: int, path_id: int, digest_id: int) -> list[tuple[str, ...]]:
    """The names of files that are the same by their digest, largest groups first, SAME_SHOWN at most."""
    found = run(
        connection,
        "files_same",
        collection_id=collection_id,
        path=str(path_id),
        digest=str(digest_id),
        limit=SAME_SHOWN,
    )
    return [tuple(dict.fromkeys(one.paths)) for one in found]
