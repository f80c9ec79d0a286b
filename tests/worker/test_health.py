"""What a worker and a janitor tell of themselves over HTTP, and how a worker drains."""

import asyncio
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

import psycopg
import pytest

from cell_engine.health import HealthPortError, Watched, serve_health
from cell_engine.janitor import run_janitor
from cell_engine.janitor_watch import JanitorWatch
from cell_engine.store.changes import edit
from cell_engine.store.database import Connection
from cell_engine.store.reading import progress, recent_dispatches
from cell_engine.worker import watch as watching
from cell_engine.worker.watch import Watch
from tests import functions
from tests.engine import eventually, make, running_worker

HELD = """
namespace: test
name: held
columns:
  - {name: a, type: text}
  - {name: slow, type: text, kind: function, deps: [a], timeout: 600, function: {name: "tests.functions:held"}}
"""


class Endpoint:
    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def __call__(self, path: str) -> tuple[int, str]:
        try:
            with build_opener(ProxyHandler({})).open(self._url + path, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    def until(self, path: str, status: int, seconds: float = 20) -> str:
        deadline = time.monotonic() + seconds
        while (found := self(path))[0] != status:
            assert time.monotonic() < deadline, found
            time.sleep(0.02)
        return found[1]

    def numbers(self) -> dict[str, float]:
        status, text = self("/metrics")
        assert status == 200
        return {name: float(value) for name, value in re.findall(r"^([^#\s]\S*(?:\{.*\})?) (\S+)$", text, re.M)}


@contextmanager
def asked(watch: Watched) -> Iterator[Endpoint]:
    with serve_health(watch, "127.0.0.1", 0) as port:
        yield Endpoint(port)


def test_a_worker_that_is_asked_to_stop_is_unready_alive_and_finishes_its_call(
    connection: Connection, database: str
) -> None:
    made = make(connection, HELD, rows=[{"a": f"x{number}"} for number in range(5)])
    load = recent_dispatches(connection, made.collection.id)[0].id
    functions.HOLD.clear()
    seen: list[tuple[int, str]] = []
    with asked(watch := Watch()) as ask:
        assert ask("/ready") == (503, "it has not registered yet\n")

        def drains() -> None:
            seen.append((503, ask.until("/ready", 503)))
            seen.append(ask("/live"))
            make(connection, HELD, rows=[{"a": "late"}], key="late")
            functions.HOLD.set()

        with running_worker(database, watch=watch, grace=60.0):
            ask.until("/ready", 200)
            eventually(connection, "select count(*) = 5 from autofill.work where computing is not null")
            numbers = ask.numbers()
            assert numbers["autofill_worker_visits"] == numbers["autofill_worker_calls_in_flight"] == 5
            assert (numbers["autofill_worker_slots"], numbers["autofill_worker_ready"]) == (500, 1)
            drained = threading.Thread(target=drains)
            drained.start()
        drained.join(30)
        numbers = ask.numbers()
    assert seen == [(503, "it is stopping, and claims no more\n"), (200, "ok\n")]
    done = progress(connection, load)
    assert done is not None
    assert (done.outcomes, done.attempts) == ({"ready": 5}, {"succeeded": 5})  # the late row is nobody's
    assert numbers['autofill_worker_calls_total{job_type="function",outcome="succeeded"}'] == 5
    assert numbers["autofill_worker_claimed_rows_total"] == numbers["autofill_worker_results_total"] == 5
    assert numbers['autofill_worker_store_seconds_count{function="claim"}'] >= 1
    assert numbers['autofill_worker_store_seconds_bucket{function="flush",le="+Inf"}'] >= 1
    assert numbers['autofill_worker_store_seconds_sum{function="flush"}'] > 0
    assert numbers["autofill_worker_visits"] == 0


def test_a_worker_is_sick_when_its_loop_stands_still_or_its_heartbeat_hangs_and_not_while_the_database_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(watching, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def watch_at(seconds: float, *, turns: bool, tries: bool, fails: bool = False) -> Watch:
        now[0] = 0.0
        watch = Watch(lease=30.0)
        watch.called("register", 0.1, None)
        now[0] = seconds
        if turns:
            with suppress(TimeoutError):
                asyncio.run(asyncio.wait_for(watch.run(), 0.01))
        if tries:
            watch.called("beat", 0.1, psycopg.OperationalError("away") if fails else None)
        return watch

    assert watch_at(200, turns=True, tries=True).sick() is None
    assert watch_at(200, turns=True, tries=True).unready() is None
    assert watch_at(200, turns=False, tries=True).sick() == "the event loop has not turned for 200 s"
    assert watch_at(200, turns=True, tries=False).sick() == "the heartbeat has hung for 200 s"
    away = watch_at(200, turns=True, tries=True, fails=True)
    assert (away.sick(), away.unready()) == (None, "no heartbeat for 200 s")
    failing = watch_at(20, turns=True, tries=True)
    failing.called("_claim", 0.1, psycopg.OperationalError("away"))
    assert failing.unready() == "cannot claim: OperationalError"
    failing.called("_claim", 0.1, None)
    assert failing.unready() is None


def test_a_janitor_tells_of_its_rounds_the_queue_and_what_was_spent(connection: Connection, database: str) -> None:
    made = make(connection, rows=[{"a": "x"}, {"a": "y"}])
    connection.execute(
        "insert into autofill.usage_delta (namespace_id, collection_id, column_id, model, dispatch_id, calls, failed, "
        "tokens_in, tokens_cached, tokens_out, tokens_reasoning, cost, unpriced) "
        "select namespace_id, id, 2, 'm', 1, 3, 0, 100, 0, 20, 0, 1500000000, 0 from autofill.collection"
    )
    edit(connection, made.collection.id, 1, {made.id("a"): "z"}, actor="me")
    stop = threading.Event()
    with asked(watch := JanitorWatch()) as ask:
        assert ask("/ready") == (503, "no round has been made yet\n")
        thread = threading.Thread(target=lambda: run_janitor(database, period=0.1, watch=watch, stop=stop))
        thread.start()
        ask.until("/ready", 200)
        numbers = ask.numbers()
        stop.set()
        thread.join(30)
        assert ask("/live") == (200, "ok\n")
        assert ask("/other")[0] == 404
    assert numbers["autofill_janitor_rounds_total"] >= 1
    assert 0 <= numbers["autofill_janitor_last_round_age_seconds"] < 20
    assert numbers['autofill_spent_cost_dollars{collection="test/chain"}'] == 1.5
    assert numbers['autofill_spent_tokens{collection="test/chain"}'] == 120
    lane = 'collection="test/chain",job_type="function"'
    assert numbers[f'autofill_queue_rows{{{lane},state="queued"}}'] == 1
    assert 0 <= numbers[f"autofill_queue_oldest_seconds{{{lane}}}"] < 60


def test_a_port_that_is_taken_is_told_with_what_to_do() -> None:
    with (
        serve_health(Watch(), "127.0.0.1", 0) as port,
        pytest.raises(HealthPortError, match=rf"127\.0\.0\.1:{port} .*--health-port"),
        serve_health(Watch(), "127.0.0.1", port),
    ):
        pass
