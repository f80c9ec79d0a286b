"""Dividing a limit, and learning one: what must hold for any demand, any order and any answer that is lost."""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cell_engine.shares import SPARE, Learnt, grant, learn, most, paced, shares

LIMITS = st.integers(1, 2000)
DEMANDS = st.lists(st.integers(0, 3000), min_size=1, max_size=12)


@given(LIMITS, DEMANDS)
def test_shares_use_the_whole_limit_max_min_by_demand(limit: int, demands: list[int]) -> None:
    parts = shares(limit, demands)
    assert sum(parts) == limit
    assert min(parts) >= 0
    busy = [(demand, part) for demand, part in zip(demands, parts, strict=True) if demand > 0]
    short = [part for demand, part in busy if part < demand]
    if short:
        # Nobody has more than one beyond a worker that would take more, except of what it asked for… which it has, too.
        assert max(part for _, part in busy) - min(short) <= 1
        # and those without demand have the spare alone
        idle = [part for demand, part in zip(demands, parts, strict=True) if demand <= 0]
        assert sum(idle) <= limit // SPARE


@given(LIMITS, st.integers(1, 12), st.integers(1, 12))
def test_a_spare_is_kept_for_those_without_demand(limit: int, busy: int, idle: int) -> None:
    parts = shares(limit, [3000] * busy + [0] * idle)
    assert sum(parts[busy:]) >= min(limit // SPARE, idle * (limit // (busy + idle)))


def test_what_nobody_asks_for_is_given_on() -> None:
    assert shares(100, [10, 0]) == [53, 47]
    assert shares(100, [300, 300, 10]) == [45, 45, 10]
    assert shares(100, [300, 0]) == [95, 5]
    assert shares(1, [5, 5, 0]) == [1, 0, 0]


@dataclass
class _Worker:
    limit: int | None = 0
    in_flight: int = 0
    held: int | None = 0  # as the others read it
    demand: int = 0


STEPS = st.lists(
    st.tuples(st.sampled_from(["report", "lost", "start", "end", "limit"]), st.integers(0, 3), st.integers(0, 40)),
    max_size=120,
)


@given(STEPS)
@settings(max_examples=500)
def test_together_they_never_go_above_the_limit_whatever_is_lost_or_late(steps: list[tuple[str, int, int]]) -> None:
    """A lowered limit counts from when those above it have ended: calls in flight are not called back."""
    limit: int | None = 10
    workers = [_Worker() for _ in range(4)]
    entitled = 0  # calls that were in flight, or could still be started, when the limit was lowered
    for step, who, number in steps:
        worker = workers[who]
        if step in ("report", "lost"):
            worker.demand = max(number, worker.in_flight)
            others = [one.held for one in workers if one is not worker]
            got = grant(limit, [one.demand for one in workers], who, others)
            worker.held = most(most(got, worker.limit), worker.in_flight)
            if step == "report":
                worker.limit = got
        elif step == "start" and (worker.limit is None or worker.in_flight < worker.limit):
            worker.in_flight += 1
        elif step == "end":
            worker.in_flight = max(0, worker.in_flight - number)
        elif step == "limit":
            before = [max(one.in_flight, 40 if one.limit is None else one.limit) for one in workers]
            limit = None if number == 0 else number
            entitled = max(0, sum(before) - number)
        allowed = [max(one.in_flight, 1000 if one.limit is None else one.limit) for one in workers]
        entitled = min(entitled, max(0, sum(allowed) - (limit or 0)))
        if limit is not None and not any(one.limit is None for one in workers):
            assert sum(one.in_flight for one in workers) <= limit + entitled


def test_a_limit_that_comes_up_waits_for_those_that_have_none() -> None:
    assert grant(10, [5, 5], 0, [None]) == 0
    assert grant(10, [5, 5], 0, [5]) == 5
    assert grant(None, [5, 5], 0, [5]) is None


def _endpoint(learnt: Learnt, rounds: int, rejects: object, *, latencies: int = 2) -> tuple[list[int], int, int]:
    """Offered to an endpoint as often as calls take; returns what was in flight a round, accepted, rejected."""
    offered, total_accepted, total_rejected = [], 0, 0
    for _ in range(rounds):
        in_flight = 400 if learnt.ceiling is None else int(learnt.ceiling)
        offered.append(in_flight)
        accepted = rejected = 0
        for _ in range(latencies):
            turned_away = rejects(in_flight)  # type: ignore[operator]
            accepted += in_flight - turned_away
            rejected += turned_away
            if turned_away:
                break  # it says when to come again
        total_accepted, total_rejected = total_accepted + accepted, total_rejected + rejected
        learnt = learn(learnt, accepted=accepted, rejected=rejected, in_flight=in_flight, is_round=True, is_busy=True)
    return offered, total_accepted, total_rejected


@pytest.mark.parametrize("limit", [3, 20, 100, 333])
def test_the_ceiling_finds_a_limit_and_stays_below_it_most_of_the_time(limit: int) -> None:
    offered, _, _ = _endpoint(Learnt(), 400, lambda calls: max(0, calls - limit))
    settled = offered[30:]
    above = sum(one > limit for one in settled)
    assert above / len(settled) < 0.15
    assert sum(min(one, limit) for one in settled) / len(settled) >= 0.85 * limit - 0.5


def test_the_ceiling_climbs_back_when_a_limit_is_raised() -> None:
    learnt = Learnt(ceiling=10.0, knee=14.0, generation=3)
    offered, _, rejected = _endpoint(learnt, 120, lambda calls: max(0, calls - 100))
    assert offered[0] == 10
    assert max(offered) > 60
    assert rejected < 60


def test_a_limit_that_is_lowered_at_the_endpoint_is_found_also_after_a_million_calls_that_were_accepted() -> None:
    learnt = Learnt(ceiling=500.0, knee=500.0, generation=1)
    for _ in range(1000):
        learnt = learn(learnt, accepted=1000, rejected=0, in_flight=500, is_round=True, is_busy=False)
    offered, _, _ = _endpoint(learnt, 60, lambda calls: max(0, calls - 300))
    assert sum(one <= 300 for one in offered[10:]) >= 42


@pytest.mark.parametrize("seed", range(5))
def test_calls_turned_away_at_random_do_not_take_the_ceiling_down_to_one(seed: int) -> None:
    rng = random.Random(seed)
    offered, accepted, _ = _endpoint(
        Learnt(), 200, lambda calls: sum(rng.random() < 0.2 for _ in range(calls)), latencies=1
    )
    assert min(offered[20:]) >= 100
    assert accepted > 20_000


@pytest.mark.parametrize("share", [0.02, 0.1, 0.2, 0.35])
@pytest.mark.parametrize("calls", [10, 50])
def test_nor_do_they_where_few_calls_are_in_flight(share: float, calls: int) -> None:
    sunk = 0
    for seed in range(20):
        rng = random.Random(seed)
        offered, _, _ = _endpoint(
            Learnt(ceiling=float(calls), knee=calls),
            300,
            lambda calls, rng=rng: sum(rng.random() < share for _ in range(calls)),
            latencies=1,
        )
        sunk += statistics.mean(offered[50:]) < 0.3 * calls
    assert sunk <= 2


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50), st.booleans(), st.booleans()), max_size=60))
def test_a_ceiling_is_at_least_one_call_and_comes_down_at_most_once_a_report(
    reports: list[tuple[int, int, bool, bool]],
) -> None:
    learnt = Learnt()
    for accepted, rejected, is_round, is_busy in reports:
        after = learn(
            learnt, accepted=accepted, rejected=rejected, in_flight=accepted + rejected, is_round=is_round,
            is_busy=is_busy,
        )  # fmt: skip
        assert after.ceiling is None or after.ceiling >= 1
        assert 0 <= after.background <= 1
        if after.generation == learnt.generation:
            assert (after.ceiling or 0) >= (learnt.ceiling or 0)
        else:
            assert rejected or learnt.rejected
            assert learnt.ceiling is None or (after.ceiling or 0) < learnt.ceiling or after.ceiling == 1
        learnt = after


def test_two_per_cent_of_a_rate_are_kept_for_requests_that_arrive_closer_than_they_left() -> None:
    assert [paced(one) for one in (None, 1, 19, 20, 100, 6000)] == [None, 1, 19, 19, 98, 5880]
