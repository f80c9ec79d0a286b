"""A snapshot against what is there, by key: staged, compared set-wise, and what differs written in chunks.

Every chunk is a transaction with the demand that follows from it (R6). A sync that dies leaves rows that are right and
others that are not yet: the next one compares again, and finishes. Of two at once the later one overtakes: the earlier
one learns it before its next chunk, and stops.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from cell_engine.errors import AutofillError, NotFoundError
from cell_engine.specs.text import Json
from cell_engine.specs.version import Version
from cell_engine.store.batches import Batch, check_inputs, make_batch
from cell_engine.store.collections import hold_version
from cell_engine.store.database import Connection, run, statement
from cell_engine.store.demands import RangeScope, dispatch_in_transaction, insert_dispatch, lock_work, raise_rows
from cell_engine.store.rejected import Rejected, keep_rejected
from cell_engine.store.results import end_dispatches

INSERT_ROWS = 50_000
CHANGE_ROWS = 1_000
RANGE_ROWS = 10_000
NAMED_ROWS = 20_000
"""Up to so many changed rows become work one by one; above it a sweep passes over the range of each chunk, which costs
`work` nothing and walks past the rows in between."""

_KEYS = 4

What = Literal["insert", "update", "restore", "delete"]


class OvertakenError(AutofillError):
    """A later sync of the collection has begun, and what it finds is what counts."""


class Incoming(NamedTuple):
    """A line of a snapshot: values by column id, and the columns that it has and that hold nothing."""

    line: int
    inputs: dict[int, Json]
    missing: tuple[int, ...]


class Drawn(NamedTuple):
    """What a snapshot says of a row, or of a new one: values by column id, and columns that hold nothing now."""

    row_id: int | None
    inputs: dict[int, Json]
    missing: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Counts:
    """What a comparison found. `alive`: rows of the collection before; `incoming`: lines of the snapshot."""

    incoming: int
    alive: int
    inserts: int
    updates: int
    restores: int
    deletes: int


class Sync:
    """One sync of a collection, begun. Its methods raise OvertakenError once another one has begun."""

    def __init__(self, connection: Connection, version: Version, key: Sequence[int], *, source: str, actor: str):
        """`version` is what lines are checked against, `key` are one to four input columns."""
        self._connection = connection
        self._version = version
        self._keys = {f"key_{n}": str(key[n - 1]) if n <= len(key) else None for n in range(1, _KEYS + 1)}
        self._source = source
        self._actor = actor
        with connection.transaction():
            run(connection, "sync_lock", collection_id=version.collection_id)
            begun = run(connection, "sync_begin", collection_id=version.collection_id, source=source, actor=actor)
            self.number: int = begun.fetchone().number  # type: ignore[union-attr]
            run(connection, "sync_clear", collection_id=version.collection_id, through=self.number)

    def stage(self, lines: Sequence[Incoming]) -> None:
        """Lines of the snapshot, as many as fit into memory."""
        with self._turn(), self._connection.cursor() as cursor, cursor.copy(statement("sync_copy")) as copy:
            for line, inputs, missing in lines:
                row = (json.dumps(inputs, ensure_ascii=False), [str(column) for column in missing])
                copy.write_row((self._version.collection_id, self.number, line, *row))

    def repeated(self) -> list[tuple[Incoming, int]]:
        """Take out the lines whose key an earlier one has; returns them with that one's number, in order."""
        with self._turn():
            self._set_wise()
            found = self._run("sync_repeated", **self._keys)
            return sorted(
                (Incoming(one.line, {int(column): value for column, value in one.inputs.items()}, ()), one.first)
                for one in found
            )

    def compare(self, *, partial: bool) -> Counts:
        """Find what differs, once the snapshot is staged. `partial`: rows that it does not have stay, and so do all
        that share a key, each of which it is about."""
        with self._turn():
            self._set_wise()
            self._run("sync_compare", **self._keys, partial=partial)
            found = self._run("sync_counts").fetchone()
            assert found is not None
            return Counts(*found)

    def sample(self, limit: int) -> list[Drawn]:
        """Rows that the comparison found new, changed or back: all of few, by chance of many."""
        with self._turn():
            self._set_wise()
            return [
                Drawn(
                    one.row_id,
                    {int(column): value for column, value in one.inputs.items()},
                    tuple(map(int, one.missing)),
                )
                for one in self._run("sync_sample", limit=limit)
            ]

    def insert(self, key: Callable[[int], str], told: Callable[[int], None], *, demand: bool = True) -> list[Batch]:
        """New rows, in batches of the keys that `key` gives to their numbers; with `demand`, each with its dispatch."""
        batches: list[Batch] = []
        for chunk in self._chunks("insert", INSERT_ROWS):
            lines = [one.line for one in chunk]

            def fill(batch_id: int, first_row: int, lines: list[int] = lines) -> None:
                made = self._run("sync_insert", batch_id=batch_id, first_row=first_row, lines=lines)
                self._check(made.rowcount, len(lines))

            batch, _ = make_batch(
                self._connection,
                self._version,
                key(len(batches) + 1),
                len(lines),
                fill,
                source=self._source,
                actor=self._actor,
                demand=demand,
                before=self._check_turn,
            )
            batches.append(batch)
            told(len(lines))
        return batches

    def update(self, what: Literal["update", "restore"], *, by_range: bool, told: Callable[[int], None]) -> list[int]:
        """Rows that have changed, or are back; returns the dispatches of what they make due."""
        dispatches: list[int] = []
        for chunk in self._chunks(what, RANGE_ROWS if by_range else CHANGE_ROWS):
            lines = {one.number: one.line for one in chunk}

            def write(rows: list[int], lines: dict[int, int] = lines) -> None:
                made = self._run("sync_update", rows=rows, lines=[lines[row_id] for row_id in rows])
                self._check(made.rowcount, len(rows))

            dispatches.append(
                _change(
                    self._connection, self._version, list(lines), write, self._check_turn, self._actor, "load", by_range
                )
            )
            told(len(chunk))
        return dispatches

    def delete(self, told: Callable[[int], None]) -> None:
        """Rows that the snapshot has no more."""
        for chunk in self._chunks("delete", RANGE_ROWS):
            rows = [one.number for one in chunk]
            with self._turn():
                _lock(self._connection, self._version.collection_id, rows)
                self._run("sync_delete", rows=rows)
            told(len(rows))

    def end(self, counts: Counts, rejected: Sequence[Rejected], *, whole: bool) -> None:
        """All is written, `counts` of it, but the `rejected` lines. `whole`: it was a snapshot of all there is."""
        with self._turn():
            keep_rejected(self._connection, self._version.collection_id, rejected, sync=self.number)
            self._run(
                "sync_end",
                source=self._source,
                whole=whole,
                inserted=counts.inserts,
                updated=counts.updates,
                restored=counts.restores,
                deleted=counts.deletes,
            )
            run(self._connection, "sync_clear", collection_id=self._version.collection_id, through=self.number)

    def abandon(self) -> None:
        """Nothing more is written: what is staged goes."""
        run(self._connection, "sync_clear", collection_id=self._version.collection_id, through=self.number)

    def _run(self, name: str, **parameters: Any) -> Any:
        return run(self._connection, name, collection_id=self._version.collection_id, sync=self.number, **parameters)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """A transaction that only the collection's latest sync gets through."""
        with self._connection.transaction():
            self._check_turn()
            yield

    def _check_turn(self) -> None:
        """Keep the turn until the transaction ends."""
        run(self._connection, "sync_lock", collection_id=self._version.collection_id)
        found = self._run("sync_turn").fetchone()
        if found is None or not found.is_mine:
            raise OvertakenError(
                f"{self._source}: another sync of the collection has begun since; this one stops, and that one writes "
                "what is still to be written"
            )

    def _check(self, found: int, wanted: int) -> None:
        if found != wanted:
            raise AutofillError(f"{self._source}: the staged snapshot is gone; sync it again")

    def _set_wise(self) -> None:
        """Each side is read once, whatever the statistics say: a snapshot that has just come looks empty."""
        run(self._connection, "sync_set_wise")

    def _chunks(self, what: What, limit: int) -> Iterator[list[Any]]:
        after = -1
        while chunk := self._run("sync_next", what=what, after=after, limit=limit).fetchall():
            yield chunk
            after = chunk[-1].number


def restore(connection: Connection, version: Version, *, actor: str, sync: int | None = None) -> tuple[int, list[int]]:
    """Bring back the rows that a sync has deleted, the latest that did unless numbered; returns how many, and the
    dispatches of what they make due.

    Raises NotFoundError where there are none.
    """
    collection_id = version.collection_id
    if sync is None:
        latest = run(connection, "sync_latest", collection_id=collection_id).fetchone()
        sync = None if latest is None else latest.number
    restored = 0
    dispatches: list[int] = []
    while sync is not None and (
        rows := [
            one.row_id
            for one in run(connection, "restore_next", collection_id=collection_id, sync=sync, limit=CHANGE_ROWS)
        ]
    ):

        def write(locked: list[int]) -> None:
            run(connection, "restore_rows", collection_id=collection_id, rows=locked)

        def before() -> None:
            run(connection, "sync_lock", collection_id=collection_id)

        by_range = restored >= NAMED_ROWS
        dispatches.append(_change(connection, version, rows, write, before, actor, "restore", by_range))
        restored += len(rows)
    if not restored:
        which = "no sync has deleted rows" if sync is None else f"sync {sync} has deleted no rows"
        raise NotFoundError(f"{which} that could be restored")
    return restored, dispatches


def _change(
    connection: Connection,
    version: Version,
    rows: list[int],
    write: Callable[[list[int]], None],
    before: Callable[[], None],
    actor: str,
    reason: str,
    by_range: bool,
) -> int:
    """One chunk of rows, locked, written, and what depends on them demanded; returns the dispatch."""
    collection_id = version.collection_id
    with connection.transaction():
        before()
        if by_range:
            run(connection, "collection_lock", collection_id=collection_id)
        current = hold_version(connection, collection_id)
        check_inputs(version, current)
        rows = _lock(connection, collection_id, rows)
        displaced: list[int] = []
        if by_range:
            write(rows)
            scope = RangeScope(((rows[0], rows[-1]),))
            dispatch_id, _ = dispatch_in_transaction(connection, collection_id, scope, reason=reason, actor=actor)
        else:
            # Before the rows are written: finalize locks a row's work and then its cells.
            met = lock_work(connection, collection_id, rows)
            write(rows)
            dispatch_id, _ = insert_dispatch(connection, current, reason=reason, actor=actor, rows=len(rows))
            displaced = raise_rows(connection, current, rows, met, dispatch_id, priority="sweep")
    end_dispatches(connection, [dispatch_id, *displaced])
    return dispatch_id


def _lock(connection: Connection, collection_id: int, rows: Sequence[int]) -> list[int]:
    """Lock rows, deleted ones too, in order; returns their ids."""
    found = run(connection, "lock_rows", collections=[collection_id] * len(rows), rows=sorted(rows))
    return [one.row_id for one in found]
