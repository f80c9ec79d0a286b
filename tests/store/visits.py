"""A worker and its visits, taken apart: every step is the test's to make, late, twice or never.

The same decisions as `cell_engine/worker/visit.py`, without its event loop. A worker has two connections here as there:
one claims, the other stores.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from cell_engine.plan import BLOCKED, Blocked, Current, Due, Plan, Row, Waiting, is_held, plan
from cell_engine.specs.version import Version
from cell_engine.store.cache import Ask, Told, ask
from cell_engine.store.claims import NO_BOUNDS, WAKE_LIMIT, Claimed, Reading, RowKey, Token, register, reread
from cell_engine.store.database import Connection, run
from cell_engine.store.results import Ending, Flushed, Release, Result, flush, owes
from cell_engine.store.slots import give_out
from cell_engine.worker.outcomes import cell_after


@dataclass(repr=False)
class Worker:
    """One worker process. `freed` are slots that its next claim gives back, `granted` those of a claim half made."""

    claiming: Connection
    storing: Connection
    job_types: Sequence[str]
    id: Any = field(default_factory=uuid4)
    claims: int = 0
    freed: Counter[int] = field(default_factory=Counter)
    granted: list[Any] = field(default_factory=list)
    ended: bool = False

    def __post_init__(self) -> None:
        register(self.claiming, self.id, host="test", pid=1, job_types=list(self.job_types), lease=3600)

    def __repr__(self) -> str:
        return f"worker {'/'.join(self.job_types)}"

    def token(self) -> Token:
        self.claims += 1
        return Token(self.id, self.claims)

    def quota(self, slots: int) -> list[Any]:
        """The first part of `claims.claim`: slots by lane, and no rows yet."""
        freed, self.freed = self.freed, Counter()
        run(self.claiming, "wake_delayed", limit=WAKE_LIMIT)
        with self.claiming.transaction():
            return give_out(self.claiming, self.id, self.job_types, slots, slots, freed, NO_BOUNDS, None)

    def visits(self, claimed: Claimed) -> "list[Visit]":
        return [Visit(self, reading) for reading in claimed.visits]


@dataclass(eq=False, repr=False)
class Visit:
    """One visit. `calling` are the calls in flight, each with the reading it started from."""

    worker: Worker
    reading: Reading
    slots: int = 1
    calling: dict[int, tuple[Due, Reading]] = field(default_factory=dict)
    waiting: dict[int, bool] = field(default_factory=dict)
    elsewhere: dict[int, str] = field(default_factory=dict)
    awaiting: dict[int, bytes] = field(default_factory=dict)
    signals: dict[int, int] = field(default_factory=dict)  # of the calls in flight that the cache has given it
    over: bool = False

    def __repr__(self) -> str:
        return f"visit {self.reading.token.claim} of row {self.key.row_id} by {self.worker}"

    @property
    def key(self) -> RowKey:
        return self.reading.key

    @property
    def identity(self) -> tuple[RowKey, int]:
        return self.reading.key, self.reading.token.claim

    def unsettled(self) -> set[int]:
        return {*self.calling, *self.waiting, *self.elsewhere, *self.awaiting}

    def plan(self, version: Version) -> Plan:
        return plan(self.reading.row, version, self.reading.asked, self.unsettled())

    def start(self, steps: Plan, lease: float = 3600.0) -> list[tuple[Due, Result]]:
        """Start the calls that are due as far as the slots go; returns those whose answers were there. Raises
        LockNotAvailable when somebody just takes, or gives back, the right to the same call."""
        hits = []
        for due in steps.due:
            column = due.column
            if column.job_type not in self.worker.job_types:
                self.elsewhere[column.id] = column.job_type
            elif len(self.calling) < self.slots:
                if column.cache is not None:
                    told = self.ask(due, lease)
                    if told.state == "wait":
                        self.awaiting[column.id] = due.fingerprint
                        continue
                    if told.state == "hit":
                        self.calling[column.id] = (due, self.reading)
                        hits.append((due, self.result(column.id, value=told.value, cached=True, demanded=told.signal)))
                        continue
                    self.signals[column.id] = told.signal
                self.calling[column.id] = (due, self.reading)
        return hits

    def ask(self, due: Due, lease: float) -> Told:
        ttl = due.column.cache.ttl if due.column.cache is not None else None
        one = Ask(self.key, self.reading.token.claim, due.column.id, due.fingerprint, due.forced, ttl, lease)
        return ask(self.worker.storing, self.worker.id, [one])[0]

    def found(self, step: Blocked | Current | Waiting) -> Result:
        result = Result(
            **_address(self.reading, step.column.id), read_change=step.read_change, call=False
        )  # fmt: skip
        if isinstance(step, Waiting):
            return replace(result, version=None, state="waiting", demanded=step.demanded)
        if isinstance(step, Current):
            return replace(result, version=None) if step.stale else result
        return replace(
            result, fingerprint=step.fingerprint, error_class=BLOCKED, error=step.reason, demanded=step.demanded
        )

    def result(self, column: int, **outcome: Any) -> Result:
        """The end of the call of `column`: `value`, or `error_class` and `error`, perhaps with `retry`."""
        due, reading = self.calling.pop(column)
        if outcome.get("retry"):
            self.waiting[column] = outcome["error_class"] == "rate_limited"
        held = "error_class" not in outcome and is_held(
            due.column, self.reading.row.cells.get(column), outcome.get("value")
        )
        return Result(
            **(_address(reading, column) | {"signal": max(reading.signal, due.forced)}),
            state="proposed" if held else None,
            read_change=due.read_change,
            fingerprint=due.fingerprint,
            tokens_in=1,
            cache_signal=self.signals.pop(column, None),
            **outcome,
        )

    def nothing_follows(self, version: Version, results: Sequence[Result]) -> bool:
        if self.calling:
            return False
        row = self.reading.row
        answered = {result.column_id: result for result in results}
        asked = {
            id: one
            for id, one in self.reading.asked.items()
            if id not in answered or one.signal > answered[id].signal
        }  # fmt: skip
        cells = dict(row.cells)
        for result in results:
            if not result.retry:
                cells[result.column_id] = cell_after(row.cells.get(result.column_id), result, 0)
        return plan(Row(row.inputs, row.change, cells, row.deleted), version, asked, self.unsettled()) == Plan()

    def release(self, answered: Sequence[int] = (), seconds: float = 0.0) -> Release:
        """How a visit ends when nothing more is due in it."""
        if self.elsewhere:
            ending = self.end("hand_over", seconds if self.waiting else None, answered)
            return replace(ending, job_type=next(iter(self.elsewhere.values())))
        if self.awaiting:
            ending = self.end("delay", seconds, answered)
            return ending if self.waiting else replace(ending, awaits=next(iter(self.awaiting.values())))
        return self.end("delay", seconds, answered) if self.waiting else self.end("done", None, answered)

    def end(self, ending: Ending, seconds: float | None = None, answered: Sequence[int] = ()) -> Release:
        one = self.reading
        return Release(one.key, one.token, one.signal, one.raised, ending, seconds, None, tuple(answered))

    def flush(self, results: Sequence[Result], release: Release | None = None) -> Flushed:
        if release is not None:
            release = replace(release, owes=owes(self.reading.asked, results))
        return flush(self.worker.storing, self.worker.id, results, [release] if release is not None else [])

    def take_in(self, results: Sequence[Result], release: Release | None, flushed: Flushed) -> None:
        """Go on from what was stored."""
        self.worker.freed.update(flushed.freed)
        reading, dropped = self.reading, False
        if results:
            self.awaiting.clear()
        for result, stored in zip(results, flushed.stored, strict=True):
            if not stored.won:
                self.over = True
                return
            if result.retry:
                reading.attempts[result.column_id] = reading.attempts.get(result.column_id, 0) + 1
                continue
            if not stored.change and (result.call or result.error_class is not None):
                dropped = True
                continue
            asked = reading.asked.get(result.column_id)
            if asked is not None and asked.signal <= result.signal:
                del reading.asked[result.column_id]
            cells = reading.row.cells
            cells[result.column_id] = cell_after(cells.get(result.column_id), result, stored.change)
        if release is not None:
            fresh = flushed.released[0].reading
            if fresh is None:
                self.over = True
            else:
                self.take(fresh)
        elif dropped:
            again = self.reread()
            if again is None:
                self.over = True
            else:
                self.take(again)

    def reread(self) -> Reading | None:
        return next(iter(reread(self.worker.storing, self.worker.id, [self.identity])), None)

    def take(self, reading: Reading) -> None:
        self.reading = reading
        self.elsewhere.clear()
        self.awaiting.clear()
        self.waiting = {id: limited for id, limited in self.waiting.items() if limited or id in reading.attempts}


def _address(reading: Reading, column_id: int) -> dict[str, Any]:
    return {
        "key": reading.key,
        "token": reading.token,
        "column_id": column_id,
        "signal": reading.signal,
        "dispatch_id": reading.dispatch_id,
        "batch_id": reading.batch_id,
        "version": reading.version,
    }
