"""What people and programs read: progress of dispatches, pages of rows, counts."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cell_engine.specs.text import Json
from cell_engine.store.database import Connection, run

FAILED = frozenset(
    {"transient", "rate_limited", "quota", "auth", "model_missing", "too_long", "truncated", "refused", "schema",
     "bad_input", "function_error", "crashed", "unsupported"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a dispatch is. `total` is the cells in scope, with `only_if` no more than a bound.

    `outcomes` counts cells that ended, by outcome; `attempts` counts calls, by outcome; `work` counts rows by queue
    state; `rows_ahead` are rows no claimer has come to yet, of the `rows` in scope (0 for an edit: what it makes due is
    not known before). `cost` is in billionths of a dollar, and without the `unpriced` calls, whose cost is not known;
    `max_cost` is its cap. `saved_tokens_in`, `_out` and `saved_cost` are those of calls that the cache spared.
    `pause_reason`: why it was paused by itself. `recent` are cells that ended in the last `recent_seconds`, a minute at
    most.

    Counts are for display; `ended_at` alone says that it is over.
    """

    id: int
    collection_id: int
    reason: str
    actor: str
    columns: tuple[int, ...]
    force: bool
    key: str | None
    total: int
    version: int
    created_at: datetime
    ended_at: datetime | None
    canceled_at: datetime | None
    paused_at: datetime | None
    only_if: tuple[str, ...] | None
    pause_reason: str | None
    max_cost: int | None
    outcomes: dict[str, int]
    attempts: dict[str, int]
    tokens_in: int
    tokens_out: int
    tokens_cached: int
    tokens_reasoning: int
    cost: int
    unpriced: int
    saved_tokens_in: int
    saved_tokens_out: int
    saved_cost: int
    work: dict[str, int]
    rows_ahead: int
    rows: int
    recent: int
    recent_seconds: float

    @property
    def done(self) -> int:
        """Cells that have ended, whatever the outcome."""
        return sum(self.outcomes.values())

    @property
    def aim(self) -> int:
        """The cells that are to end, as far as that is known: what cascades comes on top of those in scope, and what a
        filter left out is known when all rows were looked at."""
        return self.done if self.only_if is not None and self.ended_at is not None else max(self.total, self.done)

    @property
    def is_bound(self) -> bool:
        """Whether `aim` is a bound: it is not known yet how many cells are what was asked for."""
        return self.only_if is not None and self.ended_at is None

    @property
    def failed(self) -> dict[str, int]:
        """Cells that ended in error, by class; blocked is not one."""
        return {outcome: cells for outcome, cells in self.outcomes.items() if outcome in FAILED}

    @property
    def running(self) -> int:
        """Rows that a worker is at."""
        return self.work.get("computing", 0)

    @property
    def queued(self) -> int:
        """Rows that any worker may take, those its sweep has not come to among them."""
        return self.work.get("queued", 0) + self.rows_ahead

    @property
    def waiting(self) -> int:
        """Rows that will be tried again later, or wait for a pause to end."""
        return self.work.get("delayed", 0) + self.work.get("parked", 0)

    @property
    def superseded(self) -> int:
        """Cells that a later dispatch has asked for, too: they are that one's now."""
        return self.outcomes.get("superseded", 0)

    @property
    def saved(self) -> dict[str, int]:
        """Calls that were not made: cells that took an equal call's answer (`cached`), cells found current (`fresh`),
        and cells that answered as before (`unchanged`), so that nothing had to follow."""
        return {outcome: self.outcomes.get(outcome, 0) for outcome in ("cached", "fresh", "unchanged")}

    @property
    def eta(self) -> float | None:
        """Seconds until it is over at the pace of the last minute; None where that cannot be told: it has ended, is
        canceled or paused, or nothing has come of it lately."""
        left = self.running / 2 + self.queued + self.waiting  # rows under way are half way, about
        passed = self.rows - left
        over = self.ended_at or self.canceled_at or self.paused_at
        if over is not None or passed <= 0 or self.recent <= 0:
            return None
        if not self.columns and self.only_if is None:
            cells = max(0.0, self.total - self.done)
        else:
            # Each row brings what those behind us brought: a filter passes rows that bring none, a cascade adds cells.
            cells = left * self.done / passed
        return cells * self.recent_seconds / self.recent


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """What a dispatch did to one column of one batch: a materialization's figures."""

    batch: str
    column_id: int
    outcomes: dict[str, int]
    tokens_in: int
    tokens_out: int
    cost: int
    unpriced: int


@dataclass(frozen=True, slots=True)
class ErrorExample:
    """One of the cells of a column and batch that ended in error by this class."""

    batch: str
    column_id: int
    error_class: str
    row_id: int
    error: str | None


@dataclass(frozen=True, slots=True)
class ShownCell:
    """A computed cell as shown: its value, derived status and, in error or blocked, why. `inputs_moved`: a person's
    value, and what the column reads has changed since it was given. `details` are kept beside the answer that is shown:
    where it came from. `proposed`: the answer that waits for review."""

    row_id: int
    column_id: int
    value: Json
    status: str
    error_class: str | None
    error: str | None
    model: str | None
    inputs_moved: bool
    details: dict[str, Json] | None
    proposed: Json = None


@dataclass(frozen=True, slots=True)
class ShownInput:
    """An input cell as shown: the person's value where there is one."""

    row_id: int
    column_id: int
    value: Json
    edited: bool


def progress(connection: Connection, dispatch_id: int) -> Progress | None:
    found = run(connection, "dispatch_progress", dispatches=[dispatch_id]).fetchone()
    return None if found is None else _progress(found)


def dispatch_of(connection: Connection, key: str) -> int | None:
    """The dispatch that was made with a key."""
    found = run(connection, "dispatch_by_key", key=key).fetchone()
    return None if found is None else int(found.id)


def recent_dispatches(connection: Connection, collection_id: int, limit: int = 10) -> list[Progress]:
    """The latest dispatches of a collection, newest first."""
    ids = [one.id for one in run(connection, "dispatches_recent", collection_id=collection_id, limit=limit)]
    found = run(connection, "dispatch_progress", dispatches=ids)
    return sorted(map(_progress, found), key=lambda one: -one.id)


def partition_outcomes(connection: Connection, dispatch_id: int) -> list[PartitionOutcome]:
    """By batch in arrival order, then column."""
    return [PartitionOutcome(*one) for one in run(connection, "dispatch_partitions", dispatch_id=dispatch_id)]


def error_examples(connection: Connection, dispatch_id: int, limit: int = 200) -> list[ErrorExample]:
    """Of the cells that ended in error and still are, by batch in arrival order, then column and class."""
    found = run(connection, "dispatch_errors", dispatch_id=dispatch_id, outcomes=sorted(FAILED), limit=limit)
    return [ErrorExample(*one) for one in found]


def pace(connection: Connection, dispatch_id: int, parts: int = 12) -> tuple[float, list[int]]:
    """The seconds that a dispatch took, or has taken so far, and the cells that ended in each equal part of them."""
    found = run(connection, "dispatch_pace", dispatch_id=dispatch_id, parts=parts).fetchall()
    return found[0].seconds if found else 0.0, [one.cells for one in found]


def durations(connection: Connection, dispatch_id: int, every: int = 1) -> dict[int, tuple[float, float, float]]:
    """The seconds within which 50, 95 and 99 of 100 calls of models were done, by column id: of each `every`-th attempt
    of the dispatch."""
    found = run(connection, "dispatch_durations", dispatch_id=dispatch_id, every=every)
    return {one.column_id: tuple(one.seconds) for one in found}


def page(
    connection: Connection, collection_id: int, *, after: int = 0, limit: int = 20
) -> tuple[list[ShownInput], list[ShownCell]]:
    """The cells of the `limit` rows behind row id `after`: inputs that have a value, and every computed cell."""
    inputs = [
        ShownInput(*one)
        for one in run(connection, "page_inputs", collection_id=collection_id, after=after, limit=limit)
    ]
    cells = [
        ShownCell(*one) for one in run(connection, "page_cells", collection_id=collection_id, after=after, limit=limit)
    ]
    return inputs, cells


def status_counts(connection: Connection, collection_id: int) -> dict[int, dict[str, int]]:
    """Cells by column id and status. Reads every cell of the collection."""
    counts: dict[int, dict[str, int]] = {}
    for one in run(connection, "status_counts", collection_id=collection_id):
        counts.setdefault(one.column_id, {})[one.status] = one.cells
    return counts


def live_workers(connection: Connection) -> list[Any]:
    """Workers within their lease: (id, host, pid, job_types, beat_age in seconds)."""
    return run(connection, "workers_live").fetchall()


def _progress(one: Any) -> Progress:
    return Progress(
        **{
            **one._asdict(),
            "columns": tuple(one.columns),
            "only_if": None if one.only_if is None else tuple(one.only_if),
        },
    )
