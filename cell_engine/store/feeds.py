"""What is remembered of a feed, so that one that has not changed costs no body."""

from dataclasses import dataclass

from cell_engine.store.database import Connection, run


@dataclass(frozen=True, slots=True)
class Known:
    """Of the last body that was synced: its validators, as the server sent them, and its SHA-256."""

    etag: str | None
    last_modified: str | None
    digest: bytes


def read_feed(connection: Connection, collection_id: int, url: str, version: int) -> Known | None:
    """What is known of a feed that was synced under this version; None of another."""
    found = run(connection, "feed_read", collection_id=collection_id, url=url, version=version).fetchone()
    return None if found is None else Known(found.etag, found.last_modified, bytes(found.digest))


def write_feed(connection: Connection, collection_id: int, url: str, version: int, known: Known) -> None:
    """Once all of it is synced."""
    run(
        connection,
        "feed_write",
        collection_id=collection_id,
        url=url,
        version=version,
        etag=known.etag,
        last_modified=known.last_modified,
        digest=known.digest,
    )
