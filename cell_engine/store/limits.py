"""Limits, set live: caps and weights (read at every claim), dispatches a second and backlog (at every dispatch)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from cell_engine.errors import BadValueError, NotFoundError
from cell_engine.store.database import Connection, run

HIGHEST = {"cap": 2**31 - 1, "weight": 1000, "dispatches": 10_000, "backlog": 2**62}
MUST_BE = {(True, True): ("cap",), (True, False): ("weight",), (False, False): ()}
"""What has to have a value, by whether it is of a namespace and of a collection; the others may have none."""

_NAMES = {
    (False, False): ("cap",),
    (True, False): ("cap", "weight", "dispatches"),
    (True, True): ("cap", "dispatches", "backlog"),
}


@dataclass(frozen=True, slots=True)
class Limits:
    """Of everything (no namespace), of a namespace, or of a collection; None is no limit, or one that it cannot have.
    `held` are slots in flight under `cap`."""

    namespace: str | None
    collection: str | None
    cap: int | None
    weight: int | None
    dispatches: int | None
    backlog: int | None
    held: int

    @property
    def scope(self) -> str:
        return "/".join(filter(None, (self.namespace, self.collection))) or "everything"

    @property
    def names(self) -> tuple[str, ...]:
        return _NAMES[self.namespace is not None, self.collection is not None]


def show_limits(connection: Connection, scope: str | None = None) -> list[Limits]:
    """All of them; or those of a namespace and its collections, or of one "namespace/name". Raises NotFoundError."""
    every = [Limits(*one) for one in run(connection, "limits_show")]
    if scope is None:
        return every
    namespace, _, collection = scope.partition("/")
    found = [one for one in every if one.namespace == namespace and (not collection or one.collection == collection)]
    if not found:
        known = ", ".join(one.scope for one in every if one.namespace is not None) or "none yet"
        raise NotFoundError(f"no namespace or collection {scope!r} (there are: {known})")
    return found


def set_limits(connection: Connection, scope: str | None, values: Mapping[str, int | None]) -> None:
    """Set limits of a namespace, of "namespace/name", or (None) of everything; a value of None is no limit.

    Raises NotFoundError for a scope that does not exist, BadValueError for a limit or value that it cannot have.
    """
    namespace, _, collection = (scope or "").partition("/")
    kind = (bool(namespace), bool(collection))
    what = scope or "everything"
    for name, value in values.items():
        if name not in _NAMES[kind]:
            raise BadValueError(f"{what} has no limit {name!r}; it has: {', '.join(_NAMES[kind])}")
        if value is None and name in MUST_BE[kind]:
            raise BadValueError(f"{name} of {what} cannot be none: give it a number from 1 to {HIGHEST[name]:,}")
        if value is not None and not 1 <= value <= HIGHEST[name]:
            raise BadValueError(f"{name} is a number from 1 to {HIGHEST[name]:,}, not {value:,}")
    done = run(
        connection,
        "limits_set",
        namespace=namespace or None,
        collection=collection or None,
        values=json.dumps(dict(values)),
    ).fetchall()
    if not done:
        show_limits(connection, scope)  # names those there are
