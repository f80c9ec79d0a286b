"""A run on a real worker: one dispatch for columns × batches, waited for, reported by partition."""

import threading

import dagster as dg
import pytest

from autofill_defs import runs, waiting
from autofill_defs.attaching import DISPATCH_TAG
from autofill_defs.engine import PatientEngine
from autofill_defs.request import Request, merged_ranges
from cell_engine.store.batches import Batch
from cell_engine.store.changes import edit
from cell_engine.store.collections import find_collection
from cell_engine.store.database import Connection, connect
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import Progress, page
from tests.dagster.conftest import SPEC, Locate, Location, beside
from tests.engine import eventually, running_worker

OPEN = "select exists (select from autofill.dispatch where reason = 'run' and ended_at is null)"


def _batch(first: int, last: int) -> Batch:
    return Batch(1, f"{first}", "", first, last, (), 0, None, "")  # type: ignore[arg-type]


def test_neighbouring_batches_are_one_sweep() -> None:
    ranges = merged_ranges([_batch(7, 9), _batch(1, 3), _batch(4, 5), _batch(6, 5), _batch(20, 21)])
    assert ranges == ((1, 5), (7, 9), (20, 21))


def test_a_run_fills_its_columns_and_reports_each_partition(location: Location, database: str) -> None:
    location.load("one", "two", "three", rows=4)
    with running_worker(database):
        run, success = location.run("one", "two")
    assert success
    assert location.materialized.keys() == {(name, key) for name in "bcn" for key in ("one", "two")}
    reported = location.materialized["b", "two"]
    dispatch = int(run.tags[DISPATCH_TAG])
    assert {
        "dispatch": dispatch, "cells": 4, "ready": 4, "failed": 0, "tokens_in": 0, "run_calls": 24,
        "run_interrupted_calls": 0, "dagster/partition_row_count": 4,
    }.items() <= reported.items()  # fmt: skip
    assert "TWO 0" in str(reported["preview"])
    assert location.dispatches() == [(dispatch, run.run_id)]
    collection = find_collection(location.connection, "test/table")
    _, cells = page(location.connection, collection.id)
    assert {cell.row_id for cell in cells if cell.status == "ready"} == set(range(1, 9))
    assert broken_rules(location.connection) == {}


def test_fresh_cells_are_left_alone_unless_forced(location: Location, database: str) -> None:
    location.load("one")
    with running_worker(database):
        location.run("one", "one")
        location.run("one", "one", columns=["b"])
        assert location.materialized["b", "one"].items() >= {"run_calls": 0, "fresh": 3}.items()
        location.run("one", "one", columns=["b"], force=True)
        assert location.materialized["b", "one"]["run_calls"] == 3


def test_what_cascades_is_reported_as_well(location: Location, database: str) -> None:
    location.load("one", "two")
    with running_worker(database):
        location.run("one", "one", columns=["b", "n"])
    assert location.materialized.keys() == {("b", "one"), ("n", "one"), ("c", "one")}


def test_a_run_over_thousands_of_cells_writes_no_more_than_one_over_few(locate: Locate, database: str) -> None:
    counts = []
    for name, rows in (("few", 2), ("many", 2000)):
        location = locate(SPEC.replace("name: table", f"name: {name}"))
        location.load("one", rows=rows)
        with running_worker(database):
            run, success = location.run("one", "one")
        assert success
        events = location.instance.all_logs(run.run_id)
        counts.append(sum(entry.dagster_event is not None for entry in events))
        # Of progress: ten lines in 37 s, on a busy machine, and fifteen in a minute and a half.
        assert len(location.messages(run)) - counts[-1] < 20
    assert counts[0] == counts[1]


def test_good_cells_are_reported_and_the_run_fails_above_its_error_rate(locate: Locate, database: str) -> None:
    location = locate(SPEC.replace("tests.functions:length", "tests.functions:boom"))
    location.load("one")
    with running_worker(database):
        run, success = location.run("one", "one")
        assert not success
        assert run.status is dg.DagsterRunStatus.FAILURE
        assert location.materialized["b", "one"]["ready"] == 3
        assert location.materialized["n", "one"].items() >= {"failed": 3, "cells": 3}.items()
        assert location.materialized["n", "one"]["failed_by_class"] == {"function_error": 3}
        failure = [entry for entry in location.instance.all_logs(run.run_id) if "max_error_rate" in str(entry)]
        assert failure
        _, success = location.run("one", "one", max_error_rate=1.0)
        assert success


def test_a_lost_connection_is_waited_out(locate: Locate, database: str) -> None:
    location = locate(SPEC.replace("tests.functions:length", "tests.functions:held"))
    location.load("one")
    from tests import functions

    functions.HOLD.clear()
    ended: list[int] = []

    def lose() -> None:
        with connect(database, application="other") as connection:
            eventually(connection, OPEN)
            while len(ended) < 3:  # three connections, not one of them thrice while it is going
                found = connection.execute(
                    "select pid from pg_stat_activity where application_name = 'autofill dagster run' "
                    "and datname = current_database() and state = 'idle' and not pid = any(%s)",
                    [ended],
                ).fetchone()
                if found is not None:
                    connection.execute("select pg_terminate_backend(%s)", [found.pid])
                    ended.append(found.pid)
            functions.HOLD.set()

    try:
        with running_worker(database), beside(lose):
            _, success = location.run("one", "one", columns=["b", "c"])
    finally:
        functions.HOLD.set()
    assert success
    assert len(ended) == 3


def test_a_run_says_when_nobody_serves_its_columns(
    location: Location, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    location.load("one")
    monkeypatch.setattr(waiting, "_WORKERS_EVERY", 0.0)
    said, done = threading.Event(), threading.Event()

    def hearing(say: waiting.Say, request: Request, dispatch_id: int, engine: PatientEngine) -> Progress:
        def hear(message: str, *, warning: bool = False) -> None:
            say(message, warning=warning)
            if "no live worker serves function" in message:
                said.set()

        return waiting.wait(hear, request, dispatch_id, engine)

    monkeypatch.setattr(runs, "wait", hearing)

    def serve() -> None:
        assert said.wait(30)
        with running_worker(database):
            assert done.wait(30)

    with beside(serve):
        _, success = location.run("one", "one")
        done.set()
    assert success


def test_a_run_applies_a_definition_that_is_new(locate: Locate, database: str) -> None:
    locate(SPEC).load("one")
    newer = locate(
        SPEC + '  - {name: d, type: integer, kind: function, deps: [a], function: {name: "tests.functions:length"}}\n'
    )
    with running_worker(database):
        _, success = newer.run("one", "one", columns=["d"])
    assert success
    assert newer.materialized["d", "one"]["cells"] == 3
    assert find_collection(newer.connection, "test/table").version == 2


def test_a_run_of_an_older_definition_leaves_the_newer_version(locate: Locate, database: str) -> None:
    older, newer = locate(SPEC), locate(SPEC.replace("tests.functions:length", "tests.functions:boom"))
    older.load("one")
    newer.load("two")
    with running_worker(database):
        run, success = older.run("one", "one", columns=["b"])
    assert success
    assert find_collection(older.connection, "test/table").version == 2
    assert any("is at version 2" in message for message in older.messages(run))


def test_a_partition_without_rows_is_named(location: Location) -> None:
    location.load("one")
    location.instance.add_dynamic_partitions("test/table", ["ghost"])
    run, success = location.run("one", "ghost")
    assert not success
    assert any("no batch ghost" in str(entry) for entry in location.instance.all_logs(run.run_id))


def test_an_edit_meanwhile_is_not_held_up(locate: Locate, database: str, connection: Connection) -> None:
    location = locate(SPEC.replace("tests.functions:length", "tests.functions:held").replace("integer", "text"))
    location.load("one", rows=50)
    from tests import functions

    functions.HOLD.clear()

    def change() -> None:
        with connect(database, application="other") as other:
            eventually(other, OPEN)
            collection = find_collection(other, "test/table")
            a = other.execute("select column_id from autofill.definition where name = 'a'").fetchone()
            assert a is not None
            edit(other, collection.id, 1, {a.column_id: "edited"}, actor="me")
            eventually(
                other,
                "select exists (select from autofill.cell where row_id = 1 and ai_value = '\"EDITED\"')",
            )
            functions.HOLD.set()

    try:
        with running_worker(database), beside(change):
            _, success = location.run("one", "one")
    finally:
        functions.HOLD.set()
    assert success
