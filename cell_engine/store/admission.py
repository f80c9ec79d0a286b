"""Admission: how often may be asked, and how much may wait. What is refused is refused whole, before anything of it is
written, in its own transaction."""

from cell_engine.errors import AdmissionError, NotFoundError
from cell_engine.store.database import Connection, run

COUNT_SECONDS = 5.0
"""How often the janitor counts the backlog, about."""

LARGE = 1_000
"""Cells. Dispatches of so many are admitted one at a time a collection: each sees what the others have added."""

MANY = 200


def admit(connection: Connection, collection_id: int, cells: int = 1) -> None:
    """Let a dispatch that asks for so many cells row by row (1: a sweep, an edit) into the caller's transaction.

    Raises AdmissionError, naming the limit and when to come back; the caller rolls back. Loads and applies do not ask:
    their rows or version are written by then, and what they dispatch is one sweep each.
    """
    if cells >= LARGE:
        connection.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"autofill.admit {collection_id}"])
    found = run(connection, "admit", collection_id=collection_id).fetchone()
    if found is None:
        raise NotFoundError(f"no collection with id {collection_id}")
    name = f"{found.namespace}/{found.name}"
    for has_pass, what, rate in (
        (found.has_pass, name, found.dispatches),
        (found.has_namespace_pass, found.namespace, found.namespace_dispatches),
    ):
        if not has_pass:
            seconds = max(0.01, found.seconds or 0.0)
            raise AdmissionError(
                f"{what} takes {rate:,} dispatches a second, and has had them: try again in {seconds:.2f} s "
                f"(its limit {'dispatches'!r}: `autofill limits show {what}`)",
                limit="dispatches",
                value=rate,
                seconds=seconds,
            )
    # A sweep or an edit is never too many itself: it adds no more than one.
    if found.backlog is not None and found.waiting + cells > found.backlog:
        raise AdmissionError(
            f"{name} has {found.waiting:,} cells waiting that were asked for row by row, and {cells:,} more are above "
            f"its limit of {found.backlog:,} ('backlog': `autofill limits show {name}`): try again in "
            f"{COUNT_SECONDS:.0f} s or when fewer wait; whole batches or columns count as one",
            limit="backlog",
            value=found.backlog,
            seconds=COUNT_SECONDS,
        )


def count_backlog(connection: Connection) -> None:
    """The janitor's part: of long backlogs, what is done already, so that admission need not add them up."""
    run(connection, "backlog_count", large=LARGE, many=MANY)
