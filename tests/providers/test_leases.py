"""Leases over real connections: three workers, one killed, limits set live, a 429 that all learn of."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from cell_engine.errors import BadValueError
from cell_engine.shares import ProviderKey
from cell_engine.store import providers
from cell_engine.store.claims import goodbye, register
from cell_engine.store.database import Connection
from cell_engine.store.providers import Grant, Report, lease, list_providers, set_limits
from cell_engine.store.upkeep import keep_up
from tests.engine import wait_for_lock
from tests.store.conftest import Beside, Opened, beside, opened

__all__ = ["beside", "opened"]

KEY = ProviderKey("https://models.example/v1/", "m")
OTHER = ProviderKey("https://models.example/v1/", "n")


class Worker:
    """One that reports and goes by what it is granted."""

    def __init__(self, connection: Connection, key: ProviderKey = KEY) -> None:
        self.connection = connection
        self.key = key
        self.id: UUID = uuid4()
        self.grant: Grant | None = None
        register(connection, self.id, host="test", pid=1, job_types=["llm"], lease=30)

    def report(self, demand: int = 0, in_flight: int = 0, **more: Any) -> Grant:
        had = self.grant
        report = Report(self.key, demand, in_flight, **more)
        if had is not None:
            report = replace(
                report, concurrency=had.concurrency, requests=had.requests, tokens=had.tokens, generation=had.generation
            )
        (self.grant,) = lease(self.connection, self.id, [report])
        return self.grant


@pytest.fixture(autouse=True)
def _no_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not divide evenly stays where it is."""
    monkeypatch.setattr(providers, "TURN_SECONDS", 1e12)


@pytest.fixture
def workers(opened: Opened) -> list[Worker]:
    return [Worker(opened(f"worker {number}")) for number in range(3)]


def proven(connection: Connection, **limits: int | None) -> None:
    set_limits(connection, KEY, dict(limits))
    connection.execute("update autofill.provider set proven_at = clock_timestamp()")


def settle(workers: list[Worker], demands: list[int]) -> list[int | None]:
    for _ in range(4):
        for worker, demand in zip(workers, demands, strict=True):
            worker.report(demand)
    return [worker.grant.concurrency for worker in workers if worker.grant is not None]


def test_three_workers_share_by_demand_and_together_have_the_limit(
    connection: Connection, workers: list[Worker]
) -> None:
    proven(connection, concurrency=100, requests_minute=600, tokens_minute=60_000)
    assert settle(workers, [500, 500, 10]) == [45, 45, 10]
    spread = settle(workers, [500, 0, 0])
    assert (spread[0], sorted(spread[1:], key=lambda one: one or 0)) == (95, [2, 3])
    for _ in range(4):
        grants = [worker.report(requests_wanted=60_000, tokens_wanted=10**9) for worker in workers]
    assert [one.requests for one in grants] == [196, 196, 196]
    assert [one.tokens for one in grants] == [19_600, 19_600, 19_600]
    assert grants[0].workers == 3


def test_one_that_takes_more_waits_until_the_others_have_said_that_they_go_by_less(
    connection: Connection, workers: list[Worker]
) -> None:
    proven(connection, concurrency=10)
    first, second, _ = workers
    assert first.report(50).concurrency == 10
    assert second.report(50).concurrency == 0
    assert first.report(50, 10).concurrency == 5
    # it goes by 10 until it has that answer, which may be lost
    assert second.report(50).concurrency == 0
    assert first.report(50, 7).concurrency == 5
    # and then has 7 calls in flight, which nobody calls back
    assert second.report(50).concurrency == 3
    first.report(50, 5)
    assert second.report(50).concurrency == 5


def test_an_answer_that_is_lost_lets_nobody_above_the_limit(connection: Connection, workers: list[Worker]) -> None:
    proven(connection, concurrency=10)
    first, second, _ = workers
    first.report(50)
    had = first.grant
    second.report(50)
    for _ in range(3):
        first.report(50, 10)
        first.grant = had
        assert second.report(50).concurrency == 0


def test_a_killed_workers_part_is_free_when_its_lease_is_over_and_one_that_leaves_frees_it_at_once(
    connection: Connection, workers: list[Worker]
) -> None:
    proven(connection, concurrency=90)
    assert settle(workers, [90, 90, 90]) == [30, 30, 30]
    connection.execute(
        "update autofill.worker set beat_at = beat_at - interval '1 minute' where id = %s", [workers[2].id]
    )
    connection.execute(
        "update autofill.provider_lease set expires_at = clock_timestamp() where worker_id = %s", [workers[2].id]
    )
    assert settle(workers[:2], [90, 90]) == [45, 45]
    goodbye(connection, workers[1].id)
    assert settle(workers[:1], [90]) == [90]
    assert lease(connection, workers[1].id, [Report(KEY)]) == []
    keep_up(connection)
    left = connection.execute("select worker_id from autofill.provider_lease").fetchall()
    assert [one.worker_id for one in left] == [workers[0].id]


def test_a_limit_that_is_set_live_holds_for_all_in_their_next_rounds(
    connection: Connection, workers: list[Worker]
) -> None:
    proven(connection)
    assert settle(workers, [50, 50, 50]) == [None, None, None]
    set_limits(connection, KEY, {"concurrency": 30})
    # the others have no limit yet
    assert workers[0].report(50, 50).concurrency == 0
    for _ in range(2):
        for worker in workers:
            worker.report(50, 12)
    assert settle(workers, [50, 50, 50]) == [10, 10, 10]
    set_limits(connection, KEY, {"concurrency": 9})
    assert [worker.report(50, 10).concurrency for worker in workers] == [0, 0, 0]
    assert settle(workers, [50, 50, 50]) == [3, 3, 3]
    set_limits(connection, KEY, {"concurrency": None})
    assert settle(workers, [50, 50, 50]) == [None, None, None]
    with pytest.raises(BadValueError, match="at least 1"):
        set_limits(connection, KEY, {"concurrency": 0})


def test_a_429_lowers_for_all_once_and_everybody_waits_as_long_as_was_asked(
    connection: Connection, workers: list[Worker]
) -> None:
    proven(connection)
    settle(workers, [40, 30, 30])
    for worker, in_flight in zip(workers, [40, 30, 30], strict=True):
        worker.report(in_flight, in_flight, accepted=10)
    first, second, third = workers
    # both were told before either knew that it was lowered
    lowered = first.report(40, 39, accepted=5, rejected=3, at_rejection=40, cool=7.5)
    assert (lowered.generation, 6 < lowered.cool <= 7.5) == (1, True)
    again = second.report(30, 29, rejected=2, at_rejection=30, cool=2.0)
    assert (again.generation, 6 < again.cool <= 7.5) == (1, True)
    assert 6 < third.report(30, 30).cool <= 7.5
    assert connection.execute("select ceiling, knee from autofill.provider").fetchone() == (70.0, 100.0)
    for _ in range(3):
        settle(workers, [50, 50, 50])
    assert sorted(worker.report(50).concurrency or 0 for worker in workers) == [23, 23, 24]
    # and climbs back, when enough calls have told, once a second
    for accepted, ceiling in ((30, 70.0), (30, 77.0)):
        connection.execute("update autofill.provider set round_at = clock_timestamp() - interval '1 second'")
        first.report(50, accepted=accepted)
        assert connection.execute("select ceiling from autofill.provider").fetchone() == (ceiling,)
    first.report(50, accepted=60)
    assert connection.execute("select ceiling from autofill.provider").fetchone() == (77.0,)


def test_until_its_first_success_one_call_goes_out_in_all(connection: Connection, workers: list[Worker]) -> None:
    assert sorted(settle(workers, [50, 50, 50]), key=lambda one: one or 0) == [0, 0, 1]
    prober = next(worker for worker in workers if worker.grant is not None and worker.grant.concurrency == 1)
    prober.report(50, 1, proof=True)
    assert settle(workers, [50, 50, 50]) == [None, None, None]
    # a key that is refused: the next success proves it again
    prober.report(50, 1, proof=False)
    assert sorted(settle(workers, [50, 50, 50]), key=lambda one: one or 0) == [0, 0, 1]


def test_what_the_endpoints_headers_say_is_a_limit_for_as_long_as_it_is_fresh(
    connection: Connection, workers: list[Worker]
) -> None:
    proven(connection, requests_minute=1000)
    first, second, _ = workers
    first.report(1, requests_wanted=5000, found_requests=600, found_tokens=40_000)
    second.report(1, requests_wanted=5000)
    for _ in range(3):
        grants = [first.report(1, requests_wanted=5000), second.report(1, requests_wanted=5000)]
    assert sum(one.requests or 0 for one in grants) == 588
    assert sum(one.tokens or 0 for one in grants) == 39_200
    connection.execute("update autofill.provider set found_at = found_at - interval '2 minutes'")
    for _ in range(3):
        grants = [first.report(1, requests_wanted=5000), second.report(1, requests_wanted=5000)]
    assert sum(one.requests or 0 for one in grants) == 980
    assert [one.tokens for one in grants] == [None, None]


def test_eight_that_report_at_once_never_hold_more_than_the_limit(connection: Connection, opened: Opened) -> None:
    proven(connection, concurrency=20)
    many = [Worker(opened(f"many {number}")) for number in range(8)]

    def rounds(worker: Worker) -> None:
        for number in range(25):
            worker.report(
                (number * 7 + worker.id.int) % 40, min(5, worker.grant.concurrency or 0) if worker.grant else 0
            )

    with ThreadPoolExecutor(8) as pool:
        done = [pool.submit(rounds, worker) for worker in many]
        while not all(one.done() for one in done):
            (held,) = connection.execute("select sum(concurrency) from autofill.provider_lease").fetchone() or (0,)
            assert (held or 0) <= 20
        for one in done:
            one.result()


def test_a_provider_that_is_locked_is_not_waited_for(
    connection: Connection, workers: list[Worker], opened: Opened, beside: Beside
) -> None:
    proven(connection)
    holder = opened("holder")
    with holder.transaction():
        holder.execute("select from autofill.provider for update")
        waiting = beside(workers[0].report, 1)
        wait_for_lock(connection, "autofill worker 0")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            waiting.result(10)


def test_several_providers_go_in_one_transaction_in_any_order(connection: Connection, opened: Opened) -> None:
    workers = [Worker(opened(f"both {number}")) for number in range(4)]

    def rounds(worker: Worker) -> None:
        for number in range(25):
            reports = [Report(KEY, number), Report(OTHER, number)]
            grants = lease(worker.connection, worker.id, reports if number % 2 else reports[::-1])
            assert {one.key for one in grants} == {KEY, OTHER}

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(rounds, workers))
    assert [(one.model, one.workers, one.state) for one in list_providers(connection)] == [
        ("m", 4, "unproven"),
        ("n", 4, "unproven"),
    ]
