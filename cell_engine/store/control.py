"""Stopping a dispatch: cancel for good, pause and resume. Calls in flight run to their end: they are paid for."""

from datetime import datetime
from typing import Any

from cell_engine.errors import AutofillError, NotFoundError
from cell_engine.store.database import Connection, run
from cell_engine.store.results import end_dispatches

BATCH = 1000


class DispatchStateError(AutofillError):
    """A dispatch is in a state in which this cannot be done; the message says which."""


def cancel(connection: Connection, dispatch_id: int) -> None:
    """Take back what the dispatch asked for by name and nobody has answered yet; it ends when what is in flight has.

    Cells it made due by changing an input stay due: the input did change. Raises NotFoundError, DispatchStateError.
    """
    _control(connection, "dispatch_cancel", dispatch_id)
    finish_cancel(connection, dispatch_id)


def finish_cancel(connection: Connection, dispatch_id: int) -> None:
    """The second part of a cancel, for the janitor too: the rows that hold demand of a canceled dispatch."""
    others = _each_batch(connection, dispatch_id, cancels=True)
    end_dispatches(connection, [dispatch_id, *others])


def pause(connection: Connection, dispatch_id: int) -> None:
    """Start nothing more of the dispatch until it is resumed; a row that another one wants too goes on.

    Raises NotFoundError, DispatchStateError.
    """
    settle(connection, dispatch_id, _control(connection, "dispatch_pause", dispatch_id, reason=None).unsettled_at)


def resume(connection: Connection, dispatch_id: int) -> None:
    """Go on with a paused dispatch, where it was. Raises NotFoundError, DispatchStateError (also while its cap is
    reached)."""
    settle(connection, dispatch_id, _control(connection, "dispatch_resume", dispatch_id).unsettled_at)


def settle(connection: Connection, dispatch_id: int, unsettled_at: datetime) -> None:
    """The second part of a pause or a resume, for the janitor too: the rows that hold demand of the dispatch.

    `unsettled_at` is when it began.
    """
    _each_batch(connection, dispatch_id)
    run(connection, "dispatch_settled", dispatch_id=dispatch_id, unsettled_at=unsettled_at)


def _control(connection: Connection, statement: str, dispatch_id: int, **more: object) -> Any:
    done = run(connection, statement, dispatch_id=dispatch_id, **more).fetchone()
    if done is not None:
        return done
    found: Any = run(connection, "dispatch_progress", dispatches=[dispatch_id]).fetchone()
    if found is None:
        raise NotFoundError(f"no dispatch {dispatch_id}")
    doing = statement.removeprefix("dispatch_")
    if found.ended_at is not None:
        state = f"has ended: there is nothing to {doing}"
    elif found.canceled_at is not None:
        state = "is canceled already" if doing == "cancel" else f"is canceled: there is nothing to {doing}"
    elif doing == "resume" and found.paused_at is not None:
        state = f"has cost what it may: `autofill budget set {dispatch_id} AMOUNT` raises that, and it goes on"
    else:
        state = "is paused already" if doing == "pause" else f"is not paused: there is nothing to {doing}"
    raise DispatchStateError(f"dispatch {dispatch_id} {state}")


def _each_batch(connection: Connection, dispatch_id: int, *, cancels: bool = False) -> set[int]:
    """Over the rows whose work the dispatch owns: each batch locked row first, then work, in key order.

    Returns dispatches whose end it may have been.
    """
    after, others = 0, set[int]()
    while True:
        owned = run(connection, "work_of_dispatch", dispatch_id=dispatch_id, after=after, limit=BATCH).fetchall()
        if not owned:
            return others
        collection_id = owned[0].collection_id
        rows = [one.row_id for one in owned]
        keys = {"collections": [collection_id] * len(rows), "rows": rows}
        with connection.transaction():
            run(connection, "lock_rows", **keys)
            run(connection, "lock_work", **keys)
            if cancels:
                met = run(connection, "work_cancel", dispatch_id=dispatch_id, collection_id=collection_id, rows=rows)
                others |= {one.dispatch_id for one in met}
            run(connection, "work_park", **keys)
        after = rows[-1]
