"""Calls that are not made for now: a lane without quota or with a bad key, a column whose model is not there, a budget.

A hold keeps claims out of its lane, and visits from starting its calls; what waits stays queued. Nothing fails.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from cell_engine.store.database import Connection, run


class Held(NamedTuple):
    """What a worker may not call. `collection_id` None: any of the namespace; `column_id` None: any of the job type.
    `is_probe`: one call of it is this worker's to make, to see whether the reason is gone."""

    id: int
    namespace: str
    collection_id: int | None
    job_type: str
    column_id: int | None
    is_probe: bool


@dataclass(frozen=True, slots=True)
class Trip:
    """A call met what every other would meet. `retry_after`: seconds after which the provider says it may be tried;
    `probed`: the hold that the call was the probe of."""

    collection_id: int
    job_type: str
    column_id: int | None
    reason: str
    message: str
    retry_after: float | None = None
    probed: int | None = None


@dataclass(frozen=True, slots=True)
class Hold:
    """A hold as people see it; names are None where it covers all of them."""

    id: int
    namespace: str
    collection: str | None
    job_type: str
    column: str | None
    reason: str
    message: str
    placed_at: datetime
    expires_at: datetime | None
    probe_at: datetime | None
    collection_id: int | None

    @property
    def what(self) -> str:
        """What is held, in words."""
        of_namespace = f"{self.job_type} of {self.namespace}"
        if self.collection is None:
            return of_namespace
        return f"{of_namespace}/{self.collection}" + ("" if self.column is None else f", column {self.column!r}")


def place(connection: Connection, trip: Trip) -> bool:
    """Hold the lane, or the column; returns whether this is news, and people should be told."""
    placed = run(
        connection,
        "hold_place",
        collection_id=trip.collection_id,
        job_type=trip.job_type,
        column_id=trip.column_id,
        reason=trip.reason,
        message=trip.message,
        retry_after=trip.retry_after,
        probed=trip.probed,
    ).fetchone()
    return placed is not None and bool(placed.is_new)


def look(connection: Connection, worker_id: UUID, job_types: Sequence[str]) -> list[Held]:
    """What is held; where one call may be tried, the right to it is taken."""
    return [Held(*one) for one in run(connection, "holds_look", worker_id=worker_id, job_types=list(job_types))]


def lift(connection: Connection, holds: Sequence[int], actor: str) -> list[int]:
    """End holds; returns those that were still there."""
    return [one.id for one in run(connection, "holds_lift", holds=list(holds), actor=actor)] if holds else []


def active(connection: Connection) -> list[Hold]:
    """What is held now, the oldest first."""
    return [Hold(*one) for one in run(connection, "holds_active")]


def lift_collection(connection: Connection, collection_id: int, namespace: str, actor: str) -> list[Hold]:
    """End what keeps a collection's calls from being made, but a budget; returns it. What the reason for it meets again
    is held again."""
    found = [
        one
        for one in active(connection)
        if one.reason != "budget" and one.namespace == namespace and one.collection_id in (None, collection_id)
    ]
    lifted = set(lift(connection, [one.id for one in found], actor))
    return [one for one in found if one.id in lifted]


def expire(connection: Connection) -> None:
    """End the holds whose time is over."""
    run(connection, "holds_expire")
