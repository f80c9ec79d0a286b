"""How people say what may be spent: credit, caps, and what a dispatch may cost."""

from dataclasses import dataclass
from datetime import datetime

from cell_engine.errors import NotFoundError
from cell_engine.store.budgets import Left, collections_of, enforce, left
from cell_engine.store.control import resume
from cell_engine.store.database import Connection, run


@dataclass(frozen=True, slots=True)
class Scope:
    """What a cap is on: a namespace, a collection of it, or a column of that."""

    namespace_id: int
    collection_id: int | None = None
    column_id: int | None = None


@dataclass(frozen=True, slots=True)
class Credit:
    """Credit as it was given; `amount` in billionths of a dollar."""

    namespace: str
    amount: int
    actor: str
    added_at: datetime


def add_credit(connection: Connection, namespace: str, amount: int, actor: str) -> None:
    """Credit for a namespace, and what it held goes on. Raises NotFoundError."""
    namespace_id = find_namespace(connection, namespace)
    run(connection, "credit_add", namespace_id=namespace_id, amount=amount, actor=actor)
    review(connection, namespace_id, actor)


def credits(connection: Connection, namespace: str | None = None, limit: int = 100) -> list[Credit]:
    """As it was given, latest first. Raises NotFoundError."""
    namespace_id = None if namespace is None else find_namespace(connection, namespace)
    return [Credit(*one) for one in run(connection, "credits", namespace_id=namespace_id, limit=limit)]


def set_budget(connection: Connection, scope: Scope, period: str, amount: int, actor: str) -> None:
    """A cap, "ever" or each "day" (UTC), in place of the one that was there."""
    run(connection, "budget_set", **_of(scope), period=period, amount=amount, actor=actor)
    review(connection, scope.namespace_id, actor)


def remove_budget(connection: Connection, scope: Scope, period: str, actor: str) -> None:
    """Raises NotFoundError where there is none."""
    if run(connection, "budget_remove", **_of(scope), period=period).fetchone() is None:
        raise NotFoundError(f"there is no such budget {'each day' if period == 'day' else 'for ever'}")
    review(connection, scope.namespace_id, actor)


def cap_dispatch(connection: Connection, dispatch_id: int, max_cost: int | None) -> None:
    """What a dispatch may cost, None for any amount; one that its cap had paused goes on if this is more.

    Raises NotFoundError, DispatchStateError.
    """
    capped = run(connection, "dispatch_cap", dispatch_id=dispatch_id, max_cost=max_cost).fetchone()
    if capped is None:
        raise NotFoundError(f"no dispatch {dispatch_id} that has not ended")
    reached = [one for one in enforce(connection, [capped.collection_id]) if one.dispatch_id == dispatch_id]
    if capped.is_capped and not any(one.left <= 0 for one in reached):
        resume(connection, dispatch_id)


def budgets(connection: Connection, namespace_id: int | None = None) -> list[Left]:
    """All budgets there are, of a namespace or of all, and the caps of open dispatches."""
    return left(connection, collections_of(connection, namespace_id))


def review(connection: Connection, namespace_id: int, actor: str) -> None:
    """After a budget of the namespace was changed."""
    enforce(connection, collections_of(connection, namespace_id), namespaces=[namespace_id], actor=actor)


def find_namespace(connection: Connection, namespace: str) -> int:
    """Raises NotFoundError."""
    found = run(connection, "namespace_find", namespace=namespace).fetchone()
    if found is None:
        raise NotFoundError(f"no namespace {namespace!r}; the first collection in it makes it")
    return int(found.id)


def _of(scope: Scope) -> dict[str, int | None]:
    return {
        "namespace_id": scope.namespace_id, "collection_id": scope.collection_id, "column_id": scope.column_id,
    }  # fmt: skip
