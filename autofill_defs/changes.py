"""What was recomputed outside of any run, as materializations without one: the asset page stays true.

Edits, dispatches by hand, cascades, refreshes by the engine, and what a run's dispatch completed after the run had
died. A dispatch is reported once it has ended, as a run reports its own, with its tokens and cost; those of a tick
together, one event a column and batch. So a reprocess of a week writes what a run would, not an event every few
seconds.

The daemon writes the events of a tick one after the other and its cursor after them. Killed in between, it is given the
same events again, but for those that its own event log shows to be there: each names the dispatches that it counts.
"""

import json
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

import dagster as dg

from autofill_defs import reports
from autofill_defs.attaching import noted
from autofill_defs.engine import engine
from autofill_defs.followup import is_awaited, runs_of, say_of, was_said
from cell_engine.store.batches import Batch, find_batches
from cell_engine.store.collections import load_version
from cell_engine.store.database import Connection
from cell_engine.store.outbox import Ended, begin, oldest_kept, outcomes_of, page_after, settled
from cell_engine.store.reading import PartitionOutcome
from cell_engine.store.records import Cursor

REPORTED_BY = "changes"

_LOOK_EVERY = 10
_STATEMENT_TIMEOUT = 30.0
# The daemon writes an event in 5 to 20 ms.
_EVENTS_A_TICK = 300
_PAGE = 20_000
_READING_TIME = 5.0
_DISPATCHES_A_TICK = 1_000
# Open dispatches that are remembered. With more, the cursor stays where it is: nothing is lost.
_MOST_PENDING = 20_000
# Dagster's clock may be this much behind the database's.
_CLOCKS = 300.0


@dataclass
class Memory:
    """The sensor's cursor: a place in the completions, the dispatches met before it that are not reported yet, which of
    them is in part and how many of its columns × batches are, and when it was written (seconds since 1970)."""

    cursor: Cursor | None = None
    pending: set[int] = field(default_factory=set)
    part: tuple[int, int] = (0, 0)
    at: float = 0.0

    def dump(self) -> str:
        assert self.cursor is not None
        place = {"xid": self.cursor.xid, "id": self.cursor.id}
        held = {**place, "pending": sorted(self.pending), "part": self.part, "at": round(self.at)}
        return json.dumps(held, separators=(",", ":"))

    @classmethod
    def parse(cls, cursor: str | None) -> "Memory":
        """An unreadable cursor, as of another release, is an empty one."""
        try:
            held = json.loads(cursor or "")
            place = Cursor(str(int(held["xid"])), int(held["id"]))
            dispatch, passed = map(int, held["part"])
            return cls(place, {int(one) for one in held["pending"]}, (dispatch, passed), float(held["at"]))
        except (ValueError, KeyError, TypeError):
            return cls()


_Known: TypeAlias = tuple[Ended, dg.AssetKey, PartitionOutcome]


@dataclass
class _Sum:
    """What dispatches have done to one column of one batch."""

    outcomes: Counter[str] = field(default_factory=Counter)
    spent: Counter[str] = field(default_factory=Counter)
    dispatches: list[Ended] = field(default_factory=list)

    def add(self, dispatch: Ended, one: PartitionOutcome) -> None:
        self.outcomes.update(one.outcomes)
        self.spent.update(tokens_in=one.tokens_in, tokens_out=one.tokens_out, cost=one.cost, unpriced=one.unpriced)
        self.dispatches.append(dispatch)

    def metadata(self, batch: Batch, column_id: int) -> dict[str, Any]:
        outcome = PartitionOutcome(batch.key, column_id, dict(self.outcomes), **self.spent)
        asked = Counter(f"{one.reason} by {one.actor}" for one in self.dispatches)
        metadata = reports.partition_metadata(batch, outcome) | {
            "reported_by": REPORTED_BY,
            "dispatches": dg.MetadataValue.json([one.id for one in self.dispatches]),
            "asked_for": ", ".join(f"{what} ({times:,})" for what, times in asked.most_common(5)),
        }
        return metadata | ({"dispatch": self.dispatches[0].id} if len(self.dispatches) == 1 else {})


@dg.sensor(
    minimum_interval_seconds=_LOOK_EVERY,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Reports what was recomputed outside of runs (edits, dispatches by hand, loads, refreshes, and what a "
    "dispatch completed after its run had died) as materializations without a run. It starts none.",
)
def changes(context: dg.SensorEvaluationContext) -> dg.SensorResult:
    memory = Memory.parse(context.cursor)
    with engine("dagster changes", _STATEMENT_TIMEOUT) as connection:
        notes = _read_on(connection, memory)
        assert memory.cursor is not None
        ended = settled(connection, memory.cursor, memory.pending, _DISPATCHES_A_TICK)
        unreported = _unreported(context.instance, ended, memory)
        events = _report(context, connection, unreported, memory)
    memory.at = time.time()
    notes.append(f"reported {len(events):,}, dispatches that have not ended or wait for a run: {len(memory.pending):,}")
    # Also beside events: without a word of its own a tick would say that it was empty.
    return dg.SensorResult(asset_events=events, cursor=memory.dump(), skip_reason=dg.SkipReason("; ".join(notes)))


def _read_on(connection: Connection, memory: Memory) -> list[str]:
    """Take in whose completions have come; returns what is to be said of it."""
    if memory.cursor is None:
        page = begin(connection, _MOST_PENDING)
        memory.cursor, memory.pending = page.cursor, set(page.dispatches)
        return ["begins here, with the dispatches of the last day"]
    notes = []
    oldest = oldest_kept(connection)
    if oldest is not None and datetime.fromtimestamp(memory.at, UTC).date() < oldest:
        notes.append(f"what was completed before {oldest}, after the last look, is dropped and not reported")
    deadline = time.monotonic() + _READING_TIME
    while len(memory.pending) < _MOST_PENDING:
        page = page_after(connection, memory.cursor, _PAGE)
        memory.cursor = page.cursor
        memory.pending |= set(page.dispatches)
        if page.completions < _PAGE or time.monotonic() > deadline:
            break
    return notes


def _unreported(instance: dg.DagsterInstance, ended: Sequence[Ended], memory: Memory) -> list[Ended]:
    """Without those whose run reports them, or has."""
    found = []
    for one in ended:
        runs = runs_of(instance, one.id, one.key) if one.reason == "run" else []
        # A re-execution has its parent's tags: that it succeeded says nothing of a dispatch that it did not wait for,
        # as one that only estimates.
        if any(record.dagster_run.is_success and noted(record.dagster_run) == one.id for record in runs):
            memory.pending.discard(one.id)
        elif not is_awaited(runs):
            found.append(one)
    return found


def _report(
    context: dg.SensorEvaluationContext, connection: Connection, ended: Sequence[Ended], memory: Memory
) -> list[dg.AssetMaterialization]:
    names = _Names(context, connection)
    outcomes = outcomes_of(connection, [one.id for one in ended])
    cells: list[_Known] = []
    done: list[Ended] = []
    for one in ended:
        passed = memory.part[1] if memory.part[0] == one.id else 0
        left = outcomes.get(one.id, [])[passed:]
        if len(left) > _EVENTS_A_TICK and not cells:
            # More than one tick may write: the others wait for it.
            cells = names.known(one, left[:_EVENTS_A_TICK])
            memory.part = (one.id, passed + _EVENTS_A_TICK)
            break
        more = [*cells, *names.known(one, left)]
        if len({(key, outcome.batch) for _, key, outcome in more}) > _EVENTS_A_TICK:
            break
        cells = more
        memory.pending.discard(one.id)
        done.append(one)
    sums: dict[tuple[dg.AssetKey, str, int], _Sum] = {}
    there = _events_there(context.instance, cells)
    for one, key, outcome in cells:
        if (key, outcome.batch, one.id) not in there:
            sums.setdefault((key, outcome.batch, outcome.column_id), _Sum()).add(one, outcome)
    reporting = {one.id for total in sums.values() for one in total.dispatches}
    for one in done:
        if one.reason == "run":
            _say_end(context.instance, one, outcomes.get(one.id, ()), unreported=one.id in reporting)
    return [
        dg.AssetMaterialization(
            key,
            partition=batch,
            description="recomputed outside of a run",
            metadata=total.metadata(names.batch(total.dispatches[0], batch), column_id),
        )
        for (key, batch, column_id), total in sums.items()
    ]


def _events_there(instance: dg.DagsterInstance, cells: Sequence[_Known]) -> set[tuple[dg.AssetKey, str, int]]:
    """Which dispatches Dagster shows on which assets and partitions: by a tick that was killed, or by their run."""
    wanted: dict[dg.AssetKey, set[str]] = {}
    since = time.time()
    for one, key, outcome in cells:
        wanted.setdefault(key, set()).add(outcome.batch)
        since = min(since, one.created_at.timestamp() - _CLOCKS)
    there: set[tuple[dg.AssetKey, str, int]] = set()
    for key, batches in wanted.items():
        filter_ = dg.AssetRecordsFilter(asset_key=key, asset_partitions=sorted(batches), after_timestamp=since)
        cursor, more = None, True
        while more:
            found = instance.fetch_materializations(filter_, limit=1_000, cursor=cursor)
            cursor, more = found.cursor, found.has_more
            for record in found.records:
                event = record.asset_materialization
                assert event is not None
                if reports.SO_FAR in event.metadata:
                    continue
                named = [*_listed(event, "dispatches"), *_listed(event, "dispatch")]
                there |= {(key, str(event.partition), dispatch) for dispatch in named}
    return there


def _listed(event: dg.AssetMaterialization, name: str) -> list[int]:
    value = event.metadata[name].value if name in event.metadata else []
    return [int(one) for one in value] if isinstance(value, list) else [int(str(value))]


def _say_end(
    instance: dg.DagsterInstance, one: Ended, outcomes: Iterable[PartitionOutcome], *, unreported: bool
) -> None:
    """Of a run that failed after it had reported all of its dispatch, as one with too many cells in error, there is
    nothing to say: its own log has it."""
    total: Counter[str] = Counter()
    for outcome in outcomes:
        total.update(outcome.outcomes)
    counts = ", ".join(f"{name} {cells:,}" for name, cells in sorted(total.items()))
    for record in runs_of(instance, one.id, one.key)[:1]:
        if unreported or was_said(record.dagster_run):
            say_of(
                instance,
                record.dagster_run,
                f"dispatch {one.id} has ended after this run: {counts}. What the run did not report is on the assets",
            )


class _Names:
    """Collections, columns and batches, as Dagster knows them; of this code location only."""

    def __init__(self, context: dg.SensorEvaluationContext, connection: Connection) -> None:
        repository = context.repository_def
        self._known = None if repository is None else repository.asset_graph.get_all_asset_keys()
        self._connection = connection
        self._columns: dict[int, dict[int, dg.AssetKey]] = {}
        self._batches: dict[tuple[int, str], Batch] = {}

    def known(self, dispatch: Ended, outcomes: Iterable[PartitionOutcome]) -> list[_Known]:
        """Where something was computed, in columns that are assets."""
        return [
            (dispatch, key, one)
            for one in outcomes
            if one.outcomes.keys() - (reports.UNCHANGED if dispatch.is_tick else reports.UNTOUCHED)
            and (key := self._key(dispatch, one.column_id)) is not None
        ]

    def _key(self, dispatch: Ended, column_id: int) -> dg.AssetKey | None:
        """None for a column that is gone, and for a collection of no asset here."""
        if dispatch.collection_id not in self._columns:
            version = load_version(self._connection, dispatch.collection_id)
            path = dispatch.collection.split("/")
            keys = {column.id: dg.AssetKey([*path, column.name]) for column in version.computed}
            self._columns[dispatch.collection_id] = {
                id: key for id, key in keys.items() if self._known is None or key in self._known
            }
        return self._columns[dispatch.collection_id].get(column_id)

    def batch(self, dispatch: Ended, key: str) -> Batch:
        place = (dispatch.collection_id, key)
        if place not in self._batches:
            [self._batches[place]] = find_batches(self._connection, dispatch.collection_id, [key])
        return self._batches[place]
