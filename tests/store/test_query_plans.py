"""The hot statements read what their batch needs, however large the collection and whatever the statistics say.

Each is run under EXPLAIN ANALYZE and rolled back, with the plan for its first parameters and with the one that the
server settles on for a prepared statement, over tables that were never analyzed and over analyzed ones. The latest
dispatch has a million cells behind it. That each index would be missed is tried too.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql

from cell_engine.embedded.server import Server
from cell_engine.specs.compile import compile_text
from cell_engine.store.applying import apply
from cell_engine.store.arrays import numbers
from cell_engine.store.claims import register
from cell_engine.store.database import Connection, connect, numbered
from tests.conftest import TEMPLATE
from tests.engine import sheet

ROWS = 100_000
QUEUED = 20_000
BATCH = 500
DISPATCHES = 1000
MOST_TUPLES = 10 * BATCH
"""What one node of a plan may read. A batch read once for each of its own rows is 500 × 500."""
MOST_PAGES = 60 * BATCH
"""What a statement may touch, its writes included: some twenty index probes a row, of three pages each."""
SETTLED = 6
"""From then on the server uses the generic plan, if that is not the dearer one."""

GUARDED = re.compile(r"(row|cell|work|completion|attempt|cache|cache_owner)(_default|_\d{4}w\d{2})?")

_numbers = count()


@dataclass(frozen=True)
class Big:
    """A database with one large collection. Rows 1–20,000 are queued, 500 more in flight at `worker` (claim 1) and
    500 at `dead`, and the rows to 40,000 are delayed, 500 of them due; the sweep has come to row 30,000."""

    connection: Connection
    collection: int
    worker: UUID
    dead: UUID
    sweep: int

    def batch(self) -> list[int]:
        return [*range(QUEUED + 1, QUEUED + BATCH + 1)]

    def parameters(self, name: str) -> dict[str, Any]:
        """A full batch for the statement."""
        rows = self.batch()
        keys = {"collections": [self.collection] * BATCH, "rows": rows}
        visits = {**keys, "claims": [1] * BATCH, "worker_id": self.worker}
        # as many found as owned as missing, each third by a key of its own
        fingerprints = [f"{row:016}".encode() for row in range(ROWS - BATCH // 2, ROWS + BATCH // 2)]
        asked = {
            **keys,
            "claims": [1] * BATCH,
            "columns": [2] * BATCH,
            "fingerprints": fingerprints,
            "forced": [0] * BATCH,
            "ttls": [3600.0, None] * (BATCH // 2),
        }
        free = [*range(2 * QUEUED + 1, 2 * QUEUED + BATCH + 1)]
        return {
            "claim_lanes": {
                "worker_id": self.worker, "job_types": ["function", "llm"], "slots": BATCH, "backlog": 2000,
                "walks": 64,
            },
            "claim_rooms": {"collections": [self.collection] * BATCH},
            "claim_queued": {
                "worker_id": self.worker, "claim": 9, "collections": [self.collection], "job_types": ["function"],
                "urgent": [BATCH], "handed": [BATCH],
            },
            "sweep_windows": {
                "collections": [self.collection], "job_types": ["function"], "slots": [BATCH], "afters": [0],
                "window": BATCH,
            },
            "sweep_windows: windowed": {
                "collections": [self.collection], "job_types": ["llm"], "slots": [BATCH], "afters": [0],
                "window": BATCH,
            },
            "sweep_take": {
                "worker_id": self.worker, "claim": 9, "sweeps": [self.sweep], "cursors": [ROWS],
                "fresh": [numbers(free)], "raised": [numbers(())], "missed": [numbers(rows)],
                "queued_collections": [self.collection] * BATCH, "queued_rows": [*range(1, BATCH + 1)],
            },
            "lock_rows": keys,
            "lock_work": keys,
            "lock_work_skip": keys,
            "flush_begin": {**keys, "worker_id": self.worker, "number": 1},
            "flush_found": {**visits, "columns": [2] * BATCH},
            "visits_lock": visits,
            "read_visits": visits,
            "read_cells": keys,
            "finalize_cells": {
                **visits, "columns": [2] * BATCH, "signals": [10**9] * BATCH, "calls": [True] * BATCH,
                "cached": [False] * BATCH, "retries": [False] * BATCH, "leavings": [False] * BATCH,
                "strings": ["new"] * BATCH, "jsons": [None] * BATCH,
                "error_classes": [None] * BATCH, "errors": [None] * BATCH, "fingerprints": [b"12"] * BATCH,
                "read_changes": [0] * BATCH, "demanded": [0] * BATCH, "versions": [1] * BATCH,
                "models": ["m"] * BATCH, "tokens_in": [1] * BATCH, "tokens_out": [1] * BATCH,
                "tokens_cached": [0] * BATCH, "tokens_reasoning": [0] * BATCH, "costs": [1] * BATCH,
                "dispatches": [1] * BATCH, "batches": [1] * BATCH, "back": [None] * BATCH,
                "backs": [None] * BATCH,
                "details": [None] * BATCH, "states": ["proposed"] * BATCH, "seconds": [0.5] * BATCH,
                "leaves": [0, None] * (BATCH // 2),
            },
            "review_page": {
                "collection_id": self.collection, "columns": [2, 3], "first_rows": None, "last_rows": None,
                "value": None, "after_row": 0, "after_column": 0, "limit": BATCH,
            },
            "review_decide": {
                "collection_id": self.collection, "rows": rows, "columns": [2] * BATCH,
                "seen": [datetime.now(UTC)] * BATCH, "accepted": True, "error": "no", "why": None,
                "dispatch_id": 1, "signal": 10**9,
            },
            "review_overdue": {"limit": BATCH},
            "release": {
                **visits, "signals": [10**9] * BATCH, "raised": [0] * BATCH, "ends": ["done", "delay"] * (BATCH // 2),
                "seconds": [None, 1.0] * (BATCH // 2), "job_types": [None] * BATCH, "answered": ['{"2": [9]}'] * BATCH,
                "awaits": [None, b"12"] * (BATCH // 2),
                "owing": [True, False] * (BATCH // 2),
            },
            "cache_ask": {**asked, "worker_id": self.worker, "leases": [60.0] * BATCH},
            "cache_recheck": asked,
            "cache_store": {
                **{name: asked[name] for name in ("collections", "rows", "claims", "columns", "fingerprints")},
                "worker_id": self.worker, "answered": [True] * BATCH, "values": ['"new"'] * BATCH,
                "signals": [10**9] * BATCH, "models": ["m"] * BATCH, "tokens_in": [1] * BATCH,
                "tokens_out": [1] * BATCH, "costs": [1] * BATCH, "details": [None] * BATCH,
            },
            "cache_wake": {"fingerprints": asked["fingerprints"], "most": [1000] * BATCH},
            "cache_trim": {"days": 90, "limit": BATCH},
            "demand_raise": {"dispatch_id": DISPATCHES, "rows": rows, "job_type": "llm", "priority": "edit"},
            "demand_queue": {"dispatch_id": DISPATCHES, "rows": free, "job_type": "function", "priority": "edit"},
            "dispatch_progress": {"dispatches": [*range(DISPATCHES - 9, DISPATCHES + 1)]},
            "end_dispatches": {"dispatches": [*range(DISPATCHES - 99, DISPATCHES + 1)]},
            "reclaim_work": {"limit": BATCH},
            "page_cells": {"collection_id": self.collection, "after": 50_000, "limit": 100},
            "page_inputs": {"collection_id": self.collection, "after": 50_000, "limit": 100},
            "wake_delayed": {"limit": BATCH},
            "work_cancel": {"collection_id": self.collection, "dispatch_id": 1, "rows": rows},
            "work_park": keys,
            "work_of_dispatch": {"dispatch_id": 7, "after": 0, "limit": BATCH},
            "visits_dirty": {"worker_id": self.worker},
        }[name]  # fmt: skip


# What searches work by its worker goes first: the others leave dead entries in that index, being rolled back.
STATEMENTS = [
    "reclaim_work", "claim_lanes", "claim_rooms", "claim_queued", "sweep_windows", "sweep_windows: windowed",
    "sweep_take", "lock_rows", "lock_work", "lock_work_skip", "visits_lock", "read_visits",
    "finalize_cells", "release", "demand_raise",
    "demand_queue", "dispatch_progress", "end_dispatches", "page_cells", "page_inputs", "wake_delayed", "work_cancel",
    "work_park", "work_of_dispatch", "visits_dirty", "flush_begin", "flush_found", "read_cells",
    "cache_ask", "cache_recheck", "cache_store", "cache_wake", "cache_trim",
    "review_page", "review_decide", "review_overdue",
]  # fmt: skip

NEEDS = {
    "work_queued": "claim_queued", "work_pkey": "read_visits", "cell_pkey": "page_cells", "row_pkey": "sweep_windows",
    "work_worker": "reclaim_work", "work_dispatch": "end_dispatches", "work_owners": "dispatch_progress",
    "completion_dispatch": "dispatch_progress", "attempt_dispatch": "dispatch_progress",
    "work_delayed": "wake_delayed", "work_dirty": "visits_dirty",
    "cache_pkey": "cache_ask", "cache_owner_pkey": "cache_store", "cache_age": "cache_trim",
    "work_awaits": "cache_wake",
}  # fmt: skip


@pytest.fixture(scope="module")
def fresh(server: Server) -> Iterator[Big]:
    """Never analyzed."""
    with _made(server) as big:
        yield big


@pytest.fixture(scope="module")
def analyzed(server: Server) -> Iterator[Big]:
    with _made(server) as big:
        big.connection.execute("vacuum analyze")
        yield big


@pytest.fixture(scope="module")
def small(server: Server) -> Iterator[Big]:
    """Analyzed, with `work` as the janitor's vacuum leaves it in a sweep: taken for the few hundred it was then."""
    with _made(server) as big:
        big.connection.execute("vacuum analyze")
        big.connection.execute("create temp table kept as table autofill.work")
        big.connection.execute("alter table kept drop column owners")
        big.connection.execute("delete from autofill.work where state <> 'computing'")
        big.connection.execute("vacuum (truncate false) autofill.work")
        columns = big.connection.execute(
            "select string_agg(attname, ', ') as names from pg_attribute where attrelid = 'kept'::regclass "
            "and attnum > 0 and not attisdropped"
        ).fetchone()
        assert columns is not None
        insert = f"insert into autofill.work ({columns.names}) select {columns.names} from kept"
        big.connection.execute(f"{insert} where state <> 'computing'".encode())
        yield big


@contextmanager
def _made(server: Server) -> Iterator[Big]:
    name = f"plans_{uuid4().hex[:12]}"
    with psycopg.connect(server.dsn("postgres"), autocommit=True) as admin:
        admin.execute(sql.SQL("create database {} template {}").format(sql.Identifier(name), sql.Identifier(TEMPLATE)))
        try:
            with connect(server.dsn(name), application="plans") as connection:
                yield _filled(connection)
        finally:
            admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def _filled(connection: Connection) -> Big:
    tables = connection.execute(
        "select oid::regclass::text as name from pg_class "
        "where relnamespace = 'autofill'::regnamespace and relkind = 'r'"
    ).fetchall()
    for table in tables:
        connection.execute(f"alter table {table.name} set (autovacuum_enabled = off)".encode())
    made = apply(connection, compile_text(sheet("a", "b: a", "c: b", "d: a", cap=4 * BATCH)), actor="test")
    worker, dead = uuid4(), uuid4()
    for one in (worker, dead):
        register(connection, one, host="test", pid=1, job_types=["function"], lease=30)
    connection.execute("update autofill.worker set ended_at = now() where id = %s", [dead])
    fill = f"""
        insert into autofill.batch (collection_id, id, key, source, first_row, last_row, actor)
        select {{c}}, 1, 'batch', 'test', 1, {ROWS}, 'test';
        update autofill.collection set next_row = {ROWS + 1}, next_batch = 2 where id = {{c}};
        insert into autofill.row (collection_id, row_id, batch_id, inputs)
        select {{c}}, id, 1, jsonb_build_object('1', repeat('x', 100)) from generate_series(1, {ROWS}) as id;
        insert into autofill.cell
            (collection_id, row_id, column_id, ai_value, fingerprint, version, computed_at, called)
        select {{c}}, id, column_id, to_jsonb(repeat('y', 50)), '12', 1, now(), 1
        from generate_series(1, {ROWS}) as id, generate_series(2, 3) as column_id;
        insert into autofill.dispatch
            (collection_id, signal, reason, actor, columns, force, total, version, ended_at)
        select {{c}}, nextval('autofill.signal'), 'reprocess', 'test', '{{{{2}}}}', true, 100, 1,
            case when id <= {DISPATCHES} - 200 and id > 50 then now() end
        from generate_series(1, {DISPATCHES}) as id;
        insert into autofill.sweep (dispatch_id, collection_id, job_type, cursor, last_row, closed_at)
        select id, {{c}}, 'function', {ROWS}, {ROWS}, now() from generate_series(1, {DISPATCHES} - 1) as id;
        insert into autofill.sweep (dispatch_id, collection_id, job_type, cursor, last_row)
        select {DISPATCHES}, {{c}}, 'function', 30000, {ROWS};
        -- one that examines windows of rows
        update autofill.dispatch set only_if = '{{{{empty,outdated}}}}' where id = {DISPATCHES} - 1;
        insert into autofill.sweep (dispatch_id, collection_id, job_type, cursor, last_row)
        select {DISPATCHES} - 1, {{c}}, 'llm', 50000, {ROWS};
        insert into autofill.work (collection_id, row_id, state, job_type, priority, queued_at, available_at, worker_id,
            claim, signal, dispatch_id, demand)
        select {{c}}, id, (case when id <= {QUEUED} then 'queued' when id <= {QUEUED + 2 * BATCH} then 'computing'
                else 'delayed' end)::autofill.work_state, 'function', 'sweep', clock_timestamp(),
            case when id > {QUEUED + 2 * BATCH} then now() + (id - {QUEUED + 3 * BATCH}) * interval '1 minute' end,
            case when id > {QUEUED + 2 * BATCH} or id <= {QUEUED} then null
                 when id > {QUEUED + BATCH} then {{dead}}::uuid else {{worker}}::uuid end,
            case when id between {QUEUED + 1} and {QUEUED + 2 * BATCH} then 1 end,
            1, 1 + id % 50, jsonb_build_object('2', jsonb_build_array(1, 0, 1 + (id + 1) % 50))
        from generate_series(1, {2 * QUEUED}) as id;
        insert into autofill.cache
            (namespace_id, fingerprint, value, signal, model, tokens_in, tokens_out, computed_at)
        select 1, lpad(id::text, 16, '0')::bytea, to_jsonb(repeat('y', 50)), 1, 'm', 10, 10,
            now() - case when id <= 1000 then interval '91 days' else interval '0' end
        from generate_series(1, {ROWS}) as id;
        insert into autofill.cache_owner (namespace_id, fingerprint, worker_id, claim, collection_id, row_id, column_id,
            signal, forced, taken_at, lease)
        select 1, lpad(id::text, 16, '0')::bytea, {{worker}}, 1, {{c}}, id - {ROWS} + {QUEUED} + {BATCH // 2}, 2, 1, 0,
            now(), '60 s'
        from generate_series({ROWS} + 1, {ROWS} + 5000) as id;
        update autofill.work set awaits = lpad((row_id + {ROWS} - 2 * {QUEUED})::text, 16, '0')::bytea
        where state = 'delayed';
        insert into autofill.slot values ({{worker}}, {{c}}, {BATCH}), ({{dead}}, {{c}}, {BATCH});
        insert into autofill.completion (dispatch_id, collection_id, batch_id, column_id, outcome, row_ids)
        select 1 + id % {DISPATCHES}, {{c}}, 1, 2, 'ready', array[id] from generate_series(1, 50000) as id;
        insert into autofill.completion (dispatch_id, collection_id, batch_id, column_id, outcome, row_ids)
        select {DISPATCHES}, {{c}}, 1, 2, 'ready', array(select id * 500 + n from generate_series(1, 500) as n)
        from generate_series(1, 2000) as id;
        insert into autofill.attempt (dispatch_id, collection_id, batch_id, column_id, row_ids, outcome, worker_id)
        select {DISPATCHES}, {{c}}, 1, 2, array(select id * 500 + n from generate_series(1, 500) as n), 'succeeded',
            {{worker}}
        from generate_series(1, 2000) as id;
        insert into autofill.attempt (dispatch_id, collection_id, batch_id, column_id, row_ids, outcome, worker_id)
        select 1 + id % {DISPATCHES}, {{c}}, 1, 2, array[id], 'succeeded', {{worker}}
        from generate_series(1, 50000) as id;
    """
    connection.execute(
        sql.SQL(fill).format(c=made.collection.id, worker=sql.Literal(str(worker)), dead=sql.Literal(str(dead)))
    )
    sweep = connection.execute("select min(id) from autofill.sweep where closed_at is null").fetchone()
    assert sweep is not None
    return Big(connection, made.collection.id, worker, dead, sweep[0])


def _explained(connection: Connection, name: str, parameters: Mapping[str, Any], mode: str) -> dict[str, Any]:
    """The plan of the statement as it ran; what it wrote is rolled back."""
    text, names = numbered(name.partition(":")[0])
    prepared = sql.Identifier(f"guarded_{next(_numbers)}")
    values = sql.SQL(", ").join(map(sql.Literal, [parameters[one] for one in names]))
    execute = sql.SQL("execute {} ({})").format(prepared, values)
    with connection.transaction(force_rollback=True):
        connection.execute("set local jit = off")
        connection.execute(sql.SQL("prepare {} as ").format(prepared).as_bytes() + text)
        if mode == "settled":
            for _ in range(SETTLED):
                connection.execute(sql.SQL("explain {}").format(execute))
        found = connection.execute(
            sql.SQL("explain (analyze, buffers, timing off, format json) {}").format(execute)
        ).fetchone()
    assert found is not None
    plan: dict[str, Any] = found[0][0]["Plan"]
    return plan


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _faults(plan: dict[str, Any]) -> list[str]:
    found = []
    for node in _nodes(plan):
        what = (
            f"{node['Node Type']} {node.get('Relation Name') or node.get('CTE Name') or node.get('Index Name') or ''}"
        )
        dropped = sum(value for key, value in node.items() if key.startswith("Rows Removed by"))
        tuples = (node["Actual Rows"] + dropped) * node["Actual Loops"]
        if node["Node Type"] == "Seq Scan" and GUARDED.fullmatch(node["Relation Name"]) and tuples:
            found.append(f"{what}: reads the whole table")
        if tuples > MOST_TUPLES:
            found.append(f"{what}: {tuples:,.0f} tuples in {node['Actual Loops']} loops")
    pages = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
    if pages > MOST_PAGES:
        found.append(f"{pages:,} pages")
    return found


def _guard(big: Big, name: str, mode: str) -> None:
    plan = _explained(big.connection, name, big.parameters(name), mode)
    faults = _faults(plan)
    assert not faults, f"{name}, {mode} plan: {'; '.join(faults)}\n{json.dumps(plan, indent=1)}"


@pytest.mark.parametrize("mode", ["first", "settled"])
@pytest.mark.parametrize("name", STATEMENTS)
def test_never_analyzed(fresh: Big, name: str, mode: str) -> None:
    _guard(fresh, name, mode)


@pytest.mark.parametrize("mode", ["first", "settled"])
@pytest.mark.parametrize("name", STATEMENTS)
def test_analyzed(analyzed: Big, name: str, mode: str) -> None:
    _guard(analyzed, name, mode)


@pytest.mark.parametrize("mode", ["first", "settled"])
@pytest.mark.parametrize("name", STATEMENTS)
def test_vacuumed_while_small(small: Big, name: str, mode: str) -> None:
    _guard(small, name, mode)


@pytest.mark.parametrize(("index", "name"), NEEDS.items())
def test_a_missing_index_is_noticed(analyzed: Big, index: str, name: str) -> None:
    with analyzed.connection.transaction(force_rollback=True):
        table = "cache_owner" if index.startswith("cache_owner") else index.split("_")[0]
        drop = (
            f"alter table autofill.{table} drop constraint {index}"
            if "pkey" in index
            else f"drop index autofill.{index}"
        )
        analyzed.connection.execute(drop.encode())
        analyzed.connection.execute("set local statement_timeout = '1s'")  # some never end
        with pytest.raises((AssertionError, psycopg.errors.QueryCanceled), match=r"whole table|tuples|pages|timeout"):
            _guard(analyzed, name, "first")
