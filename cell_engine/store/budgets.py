"""What may be spent: credit of a namespace, caps on namespaces, collections, columns and dispatches.

A budget that is reached pauses: a dispatch's own cap the dispatch, every other holds the calls that it would be charged
for. Nothing fails. It is looked at after each flush that cost something has committed, before its visits go on: of two
flushes at once the later to look sees both, so that none is missed between them. (In the flush's own transaction
neither would see the other's.)
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from cell_engine.log import get_logger
from cell_engine.prices import shown
from cell_engine.store.arrays import numbers, texts
from cell_engine.store.database import Connection, run

JOB_TYPES = ("llm", "transcribe")
"""The calls that cost: what a budget holds."""

log = get_logger(__name__)


class Left(NamedTuple):
    """What one budget still allows, in billionths of a dollar; of everything in its scope, or of a dispatch (`period`
    "dispatch"). Collection or column None: all of them."""

    budget_id: int | None
    dispatch_id: int | None
    namespace_id: int
    namespace: str
    collection_id: int | None
    column_id: int | None
    period: str
    amount: int
    spent: int
    is_paused: bool

    @property
    def left(self) -> int:
        return self.amount - self.spent

    @property
    def scope(self) -> tuple[int, int | None, int | None]:
        return self.namespace_id, self.collection_id, self.column_id


def left(connection: Connection, collections: Sequence[int]) -> list[Left]:
    """What may still be spent on these collections; empty where nothing limits it."""
    return [Left(*one) for one in run(connection, "budgets_left", collections=numbers(collections))]


def enforce(
    connection: Connection,
    collections: Sequence[int],
    *,
    namespaces: Collection[int] = (),
    actor: str = "a budget that is not reached",
) -> list[Left]:
    """Hold or pause what is reached, let go on what is not any more, also in these namespaces, which may have no
    budgets left; returns what is `left` of each budget.

    Safe beside others, and when it is repeated. Waits for nobody's rows: those of a dispatch that it pauses are the
    workers' and the janitor's to park.
    """
    found = left(connection, collections)
    reached: dict[tuple[int, int | None, int | None], list[Left]] = {}
    for one in found:
        if one.left > 0:
            continue
        if one.dispatch_id is None:
            reached.setdefault(one.scope, []).append(one)
        elif not one.is_paused:
            _pause(connection, one)
    for budgets in reached.values():
        _hold(connection, budgets)
    looked_at = {one.namespace_id for one in found if one.dispatch_id is None} | set(namespaces)
    if looked_at:
        run(
            connection,
            "budget_lift",
            namespaces=numbers(looked_at),
            reached_namespaces=numbers([scope[0] for scope in reached]),
            reached_collections=numbers([scope[1] for scope in reached]),
            reached_columns=numbers([scope[2] for scope in reached]),
            actor=actor,
        )
    return found


def enforce_all(connection: Connection) -> None:
    """For the janitor: what somebody who died after a flush has not seen, and holds whose day is over."""
    held = run(connection, "budget_held").fetchall()
    enforce(connection, collections_of(connection, None), namespaces={one.namespace_id for one in held})


def collections_of(connection: Connection, namespace_id: int | None) -> list[int]:
    """Of a namespace, or all that money is limited for."""
    return [one.id for one in run(connection, "namespace_collections", namespace_id=namespace_id)]


def _pause(connection: Connection, one: Left) -> None:
    reason = (
        f"its cap of {shown(one.amount)} is reached; `autofill budget set {one.dispatch_id} AMOUNT` raises it, "
        "and it goes on"
    )
    if run(connection, "dispatch_pause", dispatch_id=one.dispatch_id, reason=reason).fetchone() is not None:
        log.warning("a dispatch is paused", dispatch=one.dispatch_id, reason=reason)


def _hold(connection: Connection, reached: Sequence[Left]) -> None:
    """One hold for all budgets of one scope; over by itself at midnight if only days' are reached."""
    lasting = [one for one in reached if one.period != "day"]
    one = (lasting or reached)[0]
    placed = run(
        connection,
        "budget_hold",
        namespace_id=one.namespace_id,
        collection_id=one.collection_id,
        column_id=one.column_id,
        job_types=texts(JOB_TYPES),
        message=_message(one),
        is_daily=not lasting,
    ).fetchall()
    if any(hold.is_new for hold in placed):
        log.error("calls are held for a budget", namespace=one.namespace, message=_message(one))


def _message(one: Left) -> str:
    if one.period == "credit":
        return f"the credit of {shown(one.amount)} is spent; `autofill credit add {one.namespace} AMOUNT` goes on"
    days = " a day" if one.period == "day" else ""
    return f"the budget of {shown(one.amount)}{days} is spent; `autofill budget set` raises it"
