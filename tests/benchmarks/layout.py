"""Which table layout holds the cells? Measures two on a real server and prints one JSON line per figure.

A, "row + cell on demand": a `row` tuple holds the loaded inputs; a `cell` tuple exists once edited or computed.
B, "one tuple per cell": every cell, inputs too, is a tuple made at load; a thin `row` tuple is only the lock.

Both layouts stand side by side and take turns phase by phase, so that a slow moment of the machine falls on both;
each ratio is A over B of the same round. Schemas autofill_layout_a and autofill_layout_b are dropped at the end.
The role must be allowed to run CHECKPOINT (a superuser, or a member of pg_checkpoint).
"""

import json
import os
import random
import statistics
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from multiprocessing import get_context
from string import ascii_lowercase
from typing import Any

import psycopg

URL = os.environ.get("AUTOFILL_DATABASE_URL", "")
ROUNDS = 5
ROWS = 100_000
INPUTS, COMPUTED = (1, 2, 3, 4), (5, 6)  # column ids
CHUNK = 10_000  # rows per COPY and commit
BATCH = 500  # rows per claim, values per finalize
WORKERS = 2
EDITS, PAGES = 2_000, 1_000

Connection = psycopg.Connection[tuple[Any, ...]]
Figures = dict[str, float]

# Both layouts have the same tables: in B, `inputs` stays null, which takes no room.
DDL = """
create table row(collection_id int, row_id bigint, batch_id int, change bigint, inputs jsonb, deleted_at timestamptz,
  primary key(collection_id, row_id)) with (fillfactor=90);
create table work(collection_id int, row_id bigint, state smallint not null, priority smallint not null,
  available_at timestamptz not null default now(), worker uuid, token bigint, columns smallint[],
  signal bigint not null, rounds int not null default 0, primary key(collection_id, row_id))
  with (fillfactor=60, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=5000);
create table sweep(id bigint primary key, cursor_row bigint not null);
create sequence signal;
create table cell(collection_id int, row_id bigint, column_id smallint, user_value jsonb,
  user_set bool not null default false, ai_value jsonb, fingerprint bytea, change bigint, read_change bigint,
  called bigint, version int, computed_at timestamptz, error_class text, error text, model text,
  primary key(collection_id, row_id, column_id)) with (fillfactor=90);
"""
COPY_ROWS = "copy row(collection_id, row_id, batch_id, change, inputs) from stdin (null '')"
COPY_CELLS = "copy cell(collection_id, row_id, column_id, ai_value, change) from stdin (null '')"
# The claim of a walker that already holds the sweep. `work` is empty of others here: nothing to merge on conflict.
CLAIM = """with picked as (select row_id from row where collection_id = 1 and row_id > %(cursor)s and deleted_at is null
    order by row_id limit %(batch)s for update skip locked)
insert into work(collection_id, row_id, state, priority, worker, token, columns, signal)
select 1, row_id, 1, 2, %(worker)s, %(token)s, %(columns)s, 1 from picked returning row_id"""
# Reads and pages probe the key row by row by their form, not by the planner's guess: `cell` in layout A is filled after
# it was last analyzed, and plain joins then read a column's every cell (138 ms a page, seen; claims suffered too).
READ_CELLS = """select wanted.row_id, c.* from unnest(%(rows)s::bigint[]) as wanted(row_id) cross join lateral (
  select column_id, case when user_set then user_value else ai_value end, fingerprint, change from cell
  where collection_id = 1 and cell.row_id = wanted.row_id offset 0) c"""
READ_ROWS = """select wanted.row_id, r.* from unnest(%(rows)s::bigint[]) as wanted(row_id) cross join lateral (
  select change, inputs from row where collection_id = 1 and row.row_id = wanted.row_id offset 0) r"""
# Compare-and-swap on the token; the values come back from `work`, so that the input arrays are joined once.
TAKEN = """with taken as (update work w set rounds = w.rounds + 1
    from unnest(%(rows)s::bigint[], %(values)s::jsonb[], %(fingerprints)s::bytea[]) as given(row_id, value, fingerprint)
    where w.collection_id = 1 and w.row_id = given.row_id and w.worker = %(worker)s and w.token = %(token)s
    returning w.row_id, w.signal, given.value, given.fingerprint)
"""
SIZE = "select pg_total_relation_size('row') + pg_total_relation_size('cell')"
RELEASE = "delete from work where collection_id = 1 and row_id = any(%s) and worker = %s and token = %s"
DEMAND = """insert into work(collection_id, row_id, state, priority, signal) values (1, %(row)s, 0, 0, %(signal)s)
on conflict (collection_id, row_id) do update set signal = excluded.signal, priority = 0, available_at = now()"""
LOCK = """update row set change = nextval('signal') where collection_id = 1 and row_id = %(row)s returning change"""


@dataclass(frozen=True)
class Layout:
    name: str
    schema: str
    finalize: str
    edit: str
    page: str

    def connect(self) -> Connection:
        return psycopg.connect(URL, autocommit=True, options=f"-c search_path={self.schema}")


def page_sql(input_value: str) -> str:
    """One left join per column, whatever the layout: an input may have been edited in both."""
    ai = {c: input_value.format(c) if c in INPUTS else f"c{c}.ai_value" for c in INPUTS + COMPUTED}
    shown = [f"case when c{c}.user_set then c{c}.user_value else {value} end" for c, value in ai.items()]
    cell = "select * from cell where collection_id = 1 and row_id = r.row_id and column_id"
    joins = [f"left join lateral ({cell} = {c} limit 1) c{c} on true" for c in ai]
    rows = "select * from row where collection_id = 1 and row_id > %(after)s and deleted_at is null order by row_id"
    return f"select r.row_id, {', '.join(shown)} from ({rows} limit 100) r {' '.join(joins)} order by r.row_id"


LAYOUTS = (
    Layout(
        name="A",
        schema="autofill_layout_a",
        finalize=TAKEN
        + """insert into cell(collection_id, row_id, column_id, ai_value, fingerprint, change, read_change,
            called, version, computed_at, model)
        select 1, row_id, %(column)s, value, fingerprint, signal, signal, signal, 1, now(), 'gpt-5-mini' from taken
        order by row_id
        on conflict (collection_id, row_id, column_id) do update set (ai_value, fingerprint, change, read_change,
            called, version, computed_at, model) = row(excluded.ai_value, excluded.fingerprint, excluded.change,
            excluded.read_change, excluded.called, excluded.version, excluded.computed_at, excluded.model)""",
        edit="""insert into cell(collection_id, row_id, column_id, user_value, user_set, change)
        values (1, %(row)s, %(column)s, %(value)s, true, %(signal)s)
        on conflict (collection_id, row_id, column_id) do update set (user_value, user_set, change) =
            (excluded.user_value, true, excluded.change)""",
        page=page_sql("r.inputs->'{}'"),
    ),
    Layout(
        name="B",
        schema="autofill_layout_b",
        finalize=TAKEN
        + """update cell c set ai_value = t.value, fingerprint = t.fingerprint, change = t.signal,
            read_change = t.signal, called = t.signal, version = 1, computed_at = now(), model = 'gpt-5-mini'
        from taken t where c.collection_id = 1 and c.row_id = t.row_id and c.column_id = %(column)s""",
        edit="""update cell set user_value = %(value)s, user_set = true, change = %(signal)s
        where collection_id = 1 and row_id = %(row)s and column_id = %(column)s""",
        page=page_sql("c{}.ai_value"),
    ),
)


def texts(seed: int, count: int = 1_000) -> list[str]:
    """JSON strings of about 300 bytes, from a vocabulary large enough not to flatter compression."""
    rng = random.Random(seed)
    words = ["".join(rng.choices(ascii_lowercase, k=rng.randint(2, 10))) for _ in range(5_000)]
    return [json.dumps(" ".join(rng.choices(words, k=60))[:300]) for _ in range(count)]


def scalar(db: Connection, sql: str, values: Mapping[str, Any] | None = None) -> Any:
    row = db.execute(sql, values).fetchone()
    assert row is not None
    return row[0]


def percentiles(name: str, times: list[float]) -> Figures:
    cuts = statistics.quantiles(times, n=100)
    return {f"{name} p50, ms": cuts[49], f"{name} p99, ms": cuts[98]}


@contextmanager
def wal(db: Connection, name: str, count: int) -> Iterator[Figures]:
    """Figures that begin with the WAL bytes per item; after a checkpoint, so that both pay for full-page images."""
    figures: Figures = {}
    db.execute("checkpoint")
    position = "select pg_current_wal_insert_lsn() - '0/0'"
    start = scalar(db, position)
    yield figures
    figures[f"{name}, WAL bytes each"] = float(scalar(db, position) - start) / count


def load(layout: Layout) -> Figures:
    sample = texts(1)
    with layout.connect() as db:
        db.execute(f"drop schema if exists {layout.schema} cascade; create schema {layout.schema}")
        db.execute(DDL)
        with wal(db, "load of a row", ROWS) as figures:
            figures["load, s"] = 0.0
            for first in range(0, ROWS, CHUNK):
                rows, cells = [], []
                for row_id in range(first, first + CHUNK):
                    values = {column: sample[(row_id * 7 + column) % len(sample)] for column in INPUTS}
                    inputs = "{" + ",".join(f'"{column}":{value}' for column, value in values.items()) + "}"
                    rows.append(f"1\t{row_id}\t1\t1\t{inputs if layout.name == 'A' else ''}\n")
                    cells += [f"1\t{row_id}\t{column}\t{value}\t1\n" for column, value in values.items()]
                    cells += [f"1\t{row_id}\t{column}\t\t\n" for column in COMPUTED]
                started = time.monotonic()
                with db.transaction():
                    for sql, lines in ((COPY_ROWS, rows), (COPY_CELLS, cells if layout.name == "B" else [])):
                        with db.cursor().copy(sql) as copy:
                            copy.write("".join(lines))
                figures["load, s"] += time.monotonic() - started
        figures["disk after load, MB"] = float(scalar(db, SIZE)) / 1e6
        db.execute("vacuum (analyze) row, cell")
    return figures


def sweep_worker(layout: Layout) -> tuple[float, float, list[float], list[float]]:
    """Visits rows until the sweep is through. Returns (started, ended, claim ms, finalize ms)."""
    claims, finalizes, worker, token = [], [], uuid.uuid4(), 0
    values, fingerprints = texts(2, BATCH), [os.urandom(16)] * BATCH
    with layout.connect() as db:
        begin = time.monotonic()
        while True:
            token += 1
            started = time.monotonic()
            with db.transaction():
                db.execute("set local synchronous_commit = off")  # a lost claim is only claimed again
                cursor = scalar(db, "select cursor_row from sweep where id = 1 for update")
                claim = {"cursor": cursor, "batch": BATCH, "worker": worker, "token": token, "columns": [*COMPUTED]}
                rows = sorted(row[0] for row in db.execute(CLAIM, claim))
                if not rows:
                    break
                db.execute("update sweep set cursor_row = %s where id = 1", (rows[-1],))
            db.execute(READ_ROWS, {"rows": rows}).fetchall()
            db.execute(READ_CELLS, {"rows": rows}).fetchall()
            claims.append((time.monotonic() - started) * 1_000)
            answer = {"rows": rows, "values": values[: len(rows)], "fingerprints": fingerprints[: len(rows)]}
            for column in COMPUTED:
                started = time.monotonic()
                done = db.execute(layout.finalize, answer | {"column": column, "worker": worker, "token": token})
                finalizes.append((time.monotonic() - started) * 1_000)
                assert done.rowcount == len(rows)
            db.execute(RELEASE, (rows, worker, token))
        return begin, time.monotonic(), claims, finalizes


def sweep(layout: Layout, name: str, pool: ProcessPoolExecutor) -> Figures:
    list(pool.map(abs, range(WORKERS)))  # both processes are up before the clock starts
    with layout.connect() as db:
        db.execute("truncate work, sweep; insert into sweep values (1, -1)")
        with wal(db, f"{name}: a cell", ROWS * len(COMPUTED)) as figures:
            results = [f.result() for f in [pool.submit(sweep_worker, layout) for _ in range(WORKERS)]]
        begins, ends, claims, finalizes = zip(*results, strict=True)
        figures[f"{name}: claim of {BATCH} rows with inputs, ms"] = statistics.median(chain(*claims))
        figures[f"{name}: finalize of {BATCH} values, ms"] = statistics.median(chain(*finalizes))
        figures[f"{name}: claim to release, cells/s"] = ROWS * len(COMPUTED) / (max(ends) - min(begins))
        figures[f"disk after {name}, MB"] = float(scalar(db, SIZE)) / 1e6
    return figures


def edit(layout: Layout) -> Figures:
    rng, times, sample = random.Random(3), [], texts(3)
    with layout.connect() as db, wal(db, "edit of an input", EDITS) as figures:
        for i in range(EDITS):
            cell = {"row": rng.randrange(ROWS), "column": rng.choice(INPUTS), "value": sample[i % 1_000]}
            started = time.monotonic()
            with db.transaction():
                cell |= {"signal": scalar(db, LOCK, cell)}
                db.execute(DEMAND, cell)
                db.execute(layout.edit, cell)
            times.append((time.monotonic() - started) * 1_000)
    return figures | percentiles("edit of an input", times)


def page(layout: Layout) -> Figures:
    rng, times = random.Random(4), []
    with layout.connect() as db:
        for _ in range(PAGES):
            started = time.monotonic()
            rows = db.execute(layout.page, {"after": rng.randrange(ROWS - 200)}).fetchall()
            times.append((time.monotonic() - started) * 1_000)
            assert len(rows) == 100 and all(value is not None for value in rows[0])
    return percentiles("page of 100 rows", times)


def add_column(layout: Layout) -> Figures:
    """A new computed column: B owes a tuple to every row, A none."""
    started = time.monotonic()
    if layout.name == "B":
        with layout.connect() as db:
            db.execute("insert into cell(collection_id, row_id, column_id) select 1, row_id, 100 from row")
    return {"new computed column, s": time.monotonic() - started}


def main() -> None:
    if not URL:
        sys.exit("layout benchmark: set AUTOFILL_DATABASE_URL to a PostgreSQL server it may fill and checkpoint")
    runs: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    try:
        with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool:
            first, again = (partial(sweep, name=name, pool=pool) for name in ("first sweep", "reprocess"))
            for number in range(ROUNDS):
                for phase in (load, first, edit, page, again, add_column):
                    for layout in LAYOUTS if number % 2 == 0 else reversed(LAYOUTS):
                        for name, value in phase(layout).items():
                            runs[name][layout.name].append(value)
                print(f"round {number + 1} of {ROUNDS} done", file=sys.stderr)
    finally:
        for layout in LAYOUTS:
            with layout.connect() as db:
                db.execute(f"drop schema if exists {layout.schema} cascade")
    for name, by_layout in runs.items():
        figure, unit = name.rsplit(", ", 1)
        ratios = [a / b for a, b in zip(by_layout["A"], by_layout["B"], strict=True)]
        for label, values in (*by_layout.items(), ("A/B", ratios)):
            line = {"name": figure, "layout": label, "value": round(statistics.median(values), 3)}
            line |= {"unit": "ratio" if label == "A/B" else unit, "runs": [round(v, 3) for v in values]}
            print(json.dumps(line))


if __name__ == "__main__":
    main()
