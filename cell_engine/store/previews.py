"""Previews: calls that try a definition out and touch no cell. They cost money all the same, and are booked."""

from dataclasses import dataclass
from uuid import UUID

from cell_engine.specs.version import Version
from cell_engine.store.admission import admit
from cell_engine.store.budgets import Left, enforce
from cell_engine.store.database import Connection, run
from cell_engine.store.demands import insert_dispatch

REASON = "preview"


@dataclass(frozen=True, slots=True)
class Booked:
    """One call, as `results.Result` has it; `cost` in billionths of a dollar, None where it is not known."""

    row_id: int
    error_class: str | None
    error: str | None
    model: str | None
    tokens_in: int
    tokens_out: int
    tokens_cached: int
    tokens_reasoning: int
    cost: int | None


def begin(connection: Connection, version: Version, column_id: int, rows: int, *, actor: str) -> int:
    """The dispatch that a preview's calls are booked in: who asked, and what it cost. It demands nothing, and so it has
    ended when somebody looks. Raises AdmissionError when a limit refuses it for now."""
    with connection.transaction():
        admit(connection, version.collection_id)
        dispatch_id, _ = insert_dispatch(
            connection, version, reason=REASON, actor=actor, columns=[column_id], rows=rows
        )
    return dispatch_id


def book(
    connection: Connection, collection_id: int, column_id: int, dispatch_id: int, worker_id: UUID, call: Booked
) -> list[Left] | None:
    """One call that has ended; returns what its budgets still allow, None where it cost nothing."""
    run(
        connection,
        "preview_book",
        collection_id=collection_id,
        column_id=column_id,
        dispatch_id=dispatch_id,
        worker_id=worker_id,
        row_id=call.row_id,
        error_class=call.error_class,
        error=call.error,
        model=call.model,
        tokens_in=call.tokens_in,
        tokens_out=call.tokens_out,
        tokens_cached=call.tokens_cached,
        tokens_reasoning=call.tokens_reasoning,
        cost=call.cost,
    )
    return enforce(connection, [collection_id]) if call.cost else None
