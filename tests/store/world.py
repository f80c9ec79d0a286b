"""What the state machine of `machine.py` believes of the database, and how it is compared with what is there."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cell_engine.plan import Cell, Due, Plan, Row, plan
from cell_engine.specs.text import Json
from cell_engine.specs.version import Version
from cell_engine.store.batches import add_batch
from cell_engine.store.collections import load_version
from cell_engine.store.database import Connection
from cell_engine.store.models import broken_rules
from cell_engine.store.results import Result
from tests.engine import sheet
from tests.store.visits import Visit, Worker

CAP = 5
VERSIONS = [
    sheet(*columns, name="machine", cap=CAP)
    for columns in (
        ("a", "k", "b: a", "c!llm: a k?", "d: b c?", "n/never: b", "e!llm: d"),
        ("a", "k", "b*@2: a", "c!llm: a k?", "d: b c?", "n/never: b", "e!llm: d"),
        ("a", "k", "b*: a", "c*!llm: a k?", "d: b c?", "n: b", "e!llm: d"),
        ("a", "k", "b: a", "c@2!llm: a k?", "d: b c?", "n/never: b"),
        ("a", "k", "b: a", "c!llm: a k?", "d: b? c", "n/never!llm: b", "e: d k"),
    )
]
TABLES = (
    "cache_owner cache attempt completion decision history sweep_hole sweep work dispatch slot worker cell row batch "
    "definition version collection_column collection namespace pass backlog"
)
EMPTY = "; ".join(f"delete from autofill.{table}" for table in TABLES.split())


@dataclass
class Connections:
    control: Connection
    editors: Sequence[Connection]
    claiming: Sequence[Connection]
    storing: Sequence[Connection]


@dataclass
class Asked:
    """A dispatch that has committed."""

    id: int
    signal: int
    reason: str
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    force: bool
    canceled: bool = False


@dataclass
class Open:
    """A transaction left open; `then` goes on after its commit (True) or rollback (False)."""

    connection: Connection
    then: Callable[[bool], None]


@dataclass
class CellModel:
    user: tuple[bool, Json] = (False, None)
    value: Json = None
    error_class: str | None = None
    fingerprint: bytes | None = None
    called: int = 0


@dataclass
class Pool:
    job_types: Sequence[str]
    worker: Worker


class World:
    """`connections` have a lock_timeout, so that waiting where nothing may wait fails."""

    connections: Connections

    def __init__(self) -> None:
        super().__init__()
        self.control = self.connections.control
        self.control.execute(EMPTY)
        self.collection = 0
        self.cells: dict[tuple[int, int], CellModel] = {}
        self.rows: set[int] = set()
        self.deleted: set[int] = set()
        self.once_deleted: set[int] = set()  # sweeps have passed it by, and a force does not outlive it
        self.asked: list[Asked] = []
        self.ended: dict[int, Any] = {}
        self.completions: dict[int, int] = {}
        self.opened: list[Open] = []
        self.pools: list[Pool] = []
        self.visits: list[Visit] = []
        self.past: list[tuple[Visit, Result]] = []
        # that calls of cached columns have brought, by fingerprint and value: the highest signal at which one began
        self.answers: dict[tuple[bytes | None, Json], int] = {}
        # somebody died between a commit and looking whether a dispatch had ended: that is the janitor's then
        self.missed_end = False
        self.left_slots = False  # a worker said goodbye with a visit in flight: its slots are the janitor's
        self.batches = 0
        self.versions: dict[int, Version] = {}
        self.version: Version

    # ---- what there is

    def known(self, number: int) -> Version:
        if number not in self.versions:
            self.versions[number] = load_version(self.control, self.collection, number)
        return self.versions[number]

    def column_ids(self) -> set[int]:
        return {id for version in self.versions.values() for id in version.by_id}

    def token_of(self, row_id: int) -> Any:
        return self.control.execute("select worker_id, claim from autofill.work where row_id = %s", [row_id]).fetchone()

    def load_rows(self, rows: Sequence[tuple[Json, Json]]) -> None:
        a, k = self.version.by_name["a"].id, self.version.by_name["k"].id
        self.batches += 1
        loaded = [{a: x, k: y} for x, y in rows]
        batch, _ = add_batch(self.control, self.version, f"b{self.batches}", loaded, source="s", actor="me")
        self.rows |= set(range(batch.first_row, batch.last_row + 1))

    def book(self, made: int, rows: Sequence[int], columns: Sequence[int] = (), force: bool = False) -> None:
        query = "select signal, reason from autofill.dispatch where id = %s"
        found = self.control.execute(query, [made]).fetchone()
        assert found is not None
        self.asked.append(Asked(made, found.signal, found.reason, tuple(rows), tuple(columns), force))

    def store_in_model(self, result: Result) -> None:
        """A result that won: only the AI's side of its cell."""
        if result.retry or (not result.call and result.error_class is None):
            return
        cell = self.cells.setdefault((result.key.row_id, result.column_id), CellModel())
        shown = cell.value if cell.error_class is None and cell.fingerprint is not None else None
        # what was accepted while the call was in flight needs no other review
        held = result.state == "proposed" and result.value != shown
        if result.error_class is None:
            cell.value = result.value
        cell.error_class = "proposed" if held else result.error_class
        cell.fingerprint = result.fingerprint
        if result.call:
            cell.called = max(cell.called, min(result.signal, result.demanded) if result.cached else result.signal)

    # ---- transactions left open

    @contextmanager
    def left_open(self, connection: Connection, then: Callable[[bool], None]) -> Iterator[None]:
        """What is done inside stays uncommitted until `close`."""
        connection.execute("begin")
        try:
            yield
        except BaseException:
            connection.execute("rollback")
            raise
        # A claimer that freezes in a transaction is thrown out; this one only takes its time.
        connection.execute("set local idle_in_transaction_session_timeout = 0")
        self.opened.append(Open(connection, then))

    def close(self, one: Open, commit: bool) -> None:
        self.opened.remove(one)
        one.connection.execute("commit" if commit else "rollback")
        one.then(commit)

    def busy(self, connection: Connection) -> bool:
        return any(one.connection is connection for one in self.opened)

    def held(self) -> tuple[set[int], bool]:
        """Rows that an open transaction has locked (or their work), and whether one has the collection."""
        if not self.opened:
            return set(), False
        with self.control.transaction(force_rollback=True):
            rows = self.control.execute("select row_id from autofill.row for no key update skip locked").fetchall()
            free = self.control.execute("select row_id from autofill.work for update skip locked").fetchall()
            work = self.control.execute("select row_id from autofill.work").fetchall()
            mine = self.control.execute("select from autofill.collection for no key update skip locked").fetchall()
        locked = self.rows - {one.row_id for one in rows}
        return locked | ({one.row_id for one in work} - {one.row_id for one in free}), not mine

    def version_is_held(self) -> bool:
        """Whether an open transaction stores what it has checked against the current version."""
        query = (
            "select exists (select from pg_locks join pg_database on pg_database.oid = pg_locks.database "
            "where locktype = 'advisory' and mode = 'ShareLock' and datname = current_database())"
        )
        found = self.control.execute(query.encode()).fetchone()
        return found is not None and bool(found.exists)

    def free_rows(self) -> list[int]:
        return sorted(self.rows - self.deleted - self.held()[0])

    def idle_visits(self) -> list[Visit]:
        held, _ = self.held()
        return [
            one
            for one in self.visits
            if not one.over and one.key.row_id not in held and not self.busy(one.worker.storing)
        ]

    # ---- what must hold after every step

    def check(self) -> None:
        assert broken_rules(self.control) == {}
        self._check_cells()
        self._check_dispatches()
        assert self.control.execute(FORGOTTEN).fetchall() == [], "R6: a row waits that a dispatch wants that goes on"
        held = {one.worker_id: one for one in self.control.execute(SLOTS)}
        assert sum(one.held for one in held.values()) <= CAP, "R4"
        for pool in self.pools:
            worker = pool.worker
            if worker.ended or self.busy(worker.claiming) or self.busy(worker.storing):
                continue
            mine = held.get(worker.id)
            spare = sum(worker.freed.values()) + sum(lane.slots for lane in worker.granted)
            assert (mine.held if mine else 0) == (mine.used if mine else 0) + spare, (
                f"slots leak: {mine}, {worker.__dict__}"
            )

    def _check_cells(self) -> None:
        """R5, R2: a person's side is what people last made it, the AI's what the last winner stored."""
        stored = {
            (one.row_id, one.column_id): CellModel(
                (one.user_set, one.user_value), one.ai_value, one.error_class, one.fingerprint, one.called
            )
            for one in self.control.execute(CELLS)
        }
        assert _known(stored) == _known(self.cells)

    def _check_dispatches(self) -> None:
        done = {one.dispatch_id: one.rows for one in self.control.execute(COMPLETED)}
        for one in self.control.execute("select id, ended_at from autofill.dispatch where ended_at is not null"):
            assert self.ended.setdefault(one.id, one.ended_at) == one.ended_at, "R7: ended twice"
            before = self.completions.setdefault(one.id, done.get(one.id, 0))
            assert before == done.get(one.id, 0), f"R7: dispatch {one.id} was credited after its end"
        if not self.opened and not self.missed_end:
            overdue = self.control.execute(OVERDUE).fetchall()
            assert overdue == [], "a dispatch is over, and nobody said so"

    # ---- what must hold at rest

    def check_rest(self) -> None:
        open_ = self.control.execute("select id, reason from autofill.dispatch where ended_at is null").fetchall()
        assert open_ == [], "R7: dispatches without an end"
        self.check()
        rows = self._read_rows()
        for row_id in self.rows - self.deleted:
            left = plan(rows[row_id], self.version, {})
            assert left == Plan(), f"R8: row {row_id}: {left}, {rows[row_id]}: {self.story(row_id)}"
        for one in self.control.execute(STATUSES, [self.collection]):
            column = self.version.by_id[one.column_id]
            wrong = {"queued", "computing", "paused"} | ({"outdated", "empty"} if column.mode == "on_change" else set())
            assert one.status not in wrong, f"R8: row {one.row_id} {column.name} shows {one.status}"
        credited = {(one.dispatch_id, one.row_id, one.column_id) for one in self.control.execute(CREDITED)}
        for asked in self.asked:
            if asked.canceled:
                continue
            for row_id in set(asked.rows) - self.once_deleted:
                for column_id in asked.columns:
                    where = f"dispatch {asked.id}, row {row_id}, column {column_id}"
                    cell = rows[row_id].cells.get(column_id)
                    if asked.force and column_id in self.version.by_id:
                        assert cell is not None, f"R6: {where}: never computed"
                        assert max(cell.called, cell.demanded) >= asked.signal, f"R6: {where}: force lost"
                    assert (asked.id, row_id, column_id) in credited, (
                        f"R7: {where}: has no outcome: {self.story(row_id)}"
                    )

    def story(self, row_id: int) -> str:
        """What happened to a row, for a failure's message."""
        dispatches = self.control.execute(
            "select id, signal, reason, columns, force from autofill.dispatch order by id"
        )
        completions = self.control.execute(
            "select dispatch_id, column_id, outcome from autofill.completion where %s = any(row_ids) order by id",
            [row_id],
        )
        lines = [*map(tuple, dispatches), *map(tuple, completions)]
        return "\n".join(map(str, lines))

    def _read_rows(self) -> dict[int, Row]:
        rows = {}
        for one in self.control.execute(ROWS):
            cells = {column: _cell(*cell) for column, *cell in one.cells or ()}
            rows[one.row_id] = Row({int(id): value for id, value in one.inputs.items()}, one.change, cells)
        return rows


def text(due: Due) -> str:
    """What a call answers unless it is to answer something else: another definition or input, another answer."""
    return f"{due.column.hash.hex()[:6]}({','.join(str(value) for value in due.inputs.values())})"


def _cell(
    user_set: bool, user_value: Json, ai_value: Json, mark: str | None, called: int, demanded: int, *rest: Any
) -> Cell:
    return Cell(user_set, user_value, ai_value, bytes.fromhex(mark) if mark else None, called, demanded, *rest)


def _known(cells: dict[tuple[int, int], CellModel]) -> dict[tuple[int, int], CellModel]:
    return {key: cell for key, cell in cells.items() if cell != CellModel()}


CELLS = """
select row_id, column_id, user_set, user_value, ai_value, error_class, fingerprint, called from autofill.cell
"""
SLOTS = """
select slot.worker_id, slot.held::int as held, coalesce((
    select sum(slots)::int from autofill.work where work.worker_id = slot.worker_id), 0) as used
from autofill.slot
"""
COMPLETED = "select dispatch_id, sum(cardinality(row_ids))::int as rows from autofill.completion group by 1"
CREDITED = "select dispatch_id, column_id, unnest(row_ids) as row_id from autofill.completion"
OVERDUE = """
select id, reason from autofill.dispatch where ended_at is null
    and not exists (select from autofill.sweep where dispatch_id = dispatch.id and closed_at is null)
    and not exists (select from autofill.work where dispatch_id = dispatch.id or owners @> array[dispatch.id])
"""
FORGOTTEN = """
select work::text as work
from autofill.work join autofill.dispatch on dispatch.id = any(work.dispatch_id || work.owners)
where work.state = 'parked' and dispatch.paused_at is null
"""
STATUSES = "select row_id, column_id, status from autofill.cell_status where collection_id = %s"
ROWS = """
select row_id, change, inputs, (
    select jsonb_agg(jsonb_build_array(column_id, user_set, user_value, ai_value, encode(fingerprint, 'hex'), called,
        demanded, change, read_change, error_class))
    from autofill.cell where cell.row_id = row.row_id
) as cells
from autofill.row
"""
