"""A worker's way to an endpoint: who has a place, who waits, who is told; without a database."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, cast
from uuid import uuid4

import pytest

from cell_engine.kinds.base import Answer, Failure, Traffic
from cell_engine.shares import ProviderKey
from cell_engine.store.providers import Grant
from cell_engine.worker.buckets import RequestBucket, TokenBucket
from cell_engine.worker.holds import Refused
from cell_engine.worker.link import Link
from cell_engine.worker.provider import Provider, Ticket
from cell_engine.worker.providers import Providers
from tests.kinds.helpers import llm_column

KEY = ProviderKey("https://models.example/v1/", "m")
COLUMN = llm_column()


class World:
    """A provider, who was told, and how often a round was asked for."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.hurried = 0
        self.turn = asyncio.Event()
        self.provider = Provider(KEY, self._tell, self._hurry, asyncio.get_running_loop().time())

    def _tell(self, name: str) -> None:
        self.told.append(name)
        self.turn.set()

    async def turn_of(self, ticket: Ticket) -> None:
        async with asyncio.timeout(5):
            while not ticket.may_go:
                self.turn.clear()
                await self.turn.wait()

    def _hurry(self) -> None:
        self.hurried += 1

    def grant(
        self,
        concurrency: int | None = None,
        requests: int | None = None,
        tokens: int | None = None,
        cool: float = 0.0,
        generation: int = 0,
        proven: bool = True,
    ) -> bool:
        report = self.provider.report(asyncio.get_running_loop().time())
        return self.provider.take(Grant(KEY, concurrency, requests, tokens, cool, generation, proven, 1), report, 30)

    def ask(self, name: str, urgent: bool = False) -> Ticket:
        ticket = self.provider.ask(name, urgent=urgent, column=COLUMN, inputs={1: "x"})
        assert isinstance(ticket, Ticket)
        return ticket


def run(test: Callable[[World], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    async def main() -> None:
        await test(World())

    def wrapped() -> None:
        asyncio.run(main())

    wrapped.__name__ = test.__name__
    return wrapped


@run
async def test_calls_wait_until_there_is_a_part_and_edits_go_first(world: World) -> None:
    tickets = [world.ask("one"), world.ask("two"), world.ask("edit", urgent=True)]
    assert not any(one.may_go for one in tickets)
    assert world.hurried == 1
    world.grant(concurrency=1)
    assert world.told == ["edit"]
    tickets[2].end(Answer("x"), Traffic())
    assert world.told == ["edit", "one"]
    world.grant(concurrency=None)
    assert world.told == ["edit", "one", "two"]
    assert world.ask("three").may_go


@run
async def test_a_place_that_is_not_used_and_a_turn_that_is_not_waited_for_are_the_next_ones(world: World) -> None:
    world.grant(concurrency=1)
    first, second, third = world.ask("first"), world.ask("second"), world.ask("third")
    assert (first.may_go, second.may_go, world.provider.waiting) == (True, False, 2)
    second.drop()
    first.drop()
    assert (world.told, third.may_go) == (["third"], True)
    assert (world.provider.in_flight, world.provider.waiting) == (1, 0)


@run
async def test_a_retry_after_stops_it_at_once_and_a_long_one_sends_rows_back(world: World) -> None:
    world.grant()
    first, other = world.ask("first"), world.ask("other")
    first.end(Failure("rate_limited", "slow down", retry_after=0.05), Traffic(1))
    assert world.hurried >= 1
    waiting = world.ask("waiting", urgent=True)
    assert not waiting.may_go
    await asyncio.sleep(0.08)
    assert (world.told, waiting.may_go) == (["waiting"], True)
    report = world.provider.report(asyncio.get_running_loop().time())
    assert (report.rejected, report.at_rejection) == (1, 2)
    late = world.provider.limit
    assert late > 1000
    world.told.clear()
    world.grant(concurrency=2)
    in_line = world.ask("in line")
    other.end(Failure("rate_limited", "slow down", retry_after=60), Traffic(1))
    assert world.told == ["in line"]
    assert in_line.refused is not None and in_line.refused.seconds > 60
    refused = world.provider.ask("later", urgent=True, column=COLUMN, inputs={})
    assert isinstance(refused, Refused) and refused.seconds > 60
    assert world.provider.cools(asyncio.get_running_loop().time())


@run
async def test_a_cool_down_is_told_once_and_ends_when_somebody_puts_it_right(world: World) -> None:
    world.grant()
    ticket = world.ask("first")
    ticket.end(Failure("rate_limited", "slow down", retry_after=60), Traffic(1))
    report = world.provider.report(asyncio.get_running_loop().time())
    assert report.cool is not None and 59 < report.cool <= 60
    world.grant(cool=60)
    assert world.provider.report(asyncio.get_running_loop().time()).cool is None
    assert isinstance(world.provider.ask("x", urgent=True, column=COLUMN, inputs={}), Refused)
    world.grant(cool=0)
    assert world.ask("y").may_go


@run
async def test_what_is_told_is_told_again_until_it_was_heard(world: World) -> None:
    world.grant(generation=1)
    first, second, third = world.ask("a"), world.ask("b"), world.ask("c")
    first.end(Answer("x"), Traffic(1))
    now = asyncio.get_running_loop().time()
    lost = world.provider.report(now)
    second.end(Failure("rate_limited", "no"), Traffic(1))
    told = world.provider.report(now)
    assert (lost.accepted, lost.rejected, told.accepted, told.rejected, told.at_rejection) == (1, 0, 1, 1, 2)
    assert world.grant(generation=2) is False
    after = world.provider.report(now)
    assert (after.accepted, after.rejected) == (0, 0)
    # it had started before it was lowered
    third.end(Failure("rate_limited", "no"), Traffic(1))
    assert world.provider.report(now).rejected == 0


@run
async def test_a_bad_key_stops_it_and_an_answer_proves_it(world: World) -> None:
    world.grant(concurrency=1, proven=False)
    world.ask("probe").end(Answer("x"), Traffic(1))
    assert world.provider.report(0).proof is True
    world.grant()
    for name in "abc":
        world.ask(name)
    probe = world.ask("d")
    probe.end(Failure("auth", "bad key"), Traffic(1))
    assert world.provider.report(0).proof is False
    assert not world.ask("e").may_go
    world.grant(concurrency=1, proven=False)
    assert world.provider.report(0).proof is None


@run
async def test_too_many_that_wait_for_long_go_back_the_latest_first_and_no_edits(world: World) -> None:
    world.grant(concurrency=2)
    tickets = [world.ask(f"row {number}") for number in range(20)] + [world.ask("edit", urgent=True)]
    for ticket in tickets:
        ticket.since -= 10
    world.told.clear()
    world.grant(concurrency=2)
    sent = [one.visit for one in tickets if one.refused is not None]
    assert world.told == sent[::-1]
    assert "edit" not in sent
    assert world.provider.waiting == 4
    assert [one.in_line for one in tickets[2:5]] == [True] * 3


@run
async def test_a_smaller_part_is_acknowledged_at_once_and_one_that_is_not_renewed_is_over(world: World) -> None:
    assert world.grant(concurrency=10) is False
    assert world.grant(concurrency=5) is True
    assert world.grant(concurrency=None) is False
    assert world.grant(concurrency=7) is True
    report = world.provider.report(asyncio.get_running_loop().time())
    world.provider.take(Grant(KEY, 7, None, None, 0.0, 0, True, 1), report, 0.02)
    await asyncio.sleep(0.05)
    assert not world.ask("late").may_go


@run
async def test_requests_are_paced_and_corrections_count(world: World) -> None:
    world.grant(requests=1200)  # 20 a second, five at once
    first = world.ask("first")
    assert first.may_go
    tickets = [world.ask(f"{number}") for number in range(10)]
    started = time.monotonic()
    await world.turn_of(tickets[-1])
    assert 0.45 < time.monotonic() - started < 1.5
    first.end(Answer("x"), Traffic(requests=6))
    late = world.ask("late")
    started = time.monotonic()
    await world.turn_of(late)
    assert 0.2 < time.monotonic() - started < 1.0


@run
async def test_how_much_to_claim_follows_what_can_be_called_soon(world: World) -> None:
    now = asyncio.get_running_loop().time()
    assert world.provider.ahead(now) == 0
    world.grant(concurrency=10)
    assert world.provider.ahead(now) == 20
    for number in range(15):
        world.ask(f"{number}")
    assert world.provider.ahead(now + 100) == 5
    world.grant()
    assert world.provider.ahead(now) is None


@run
async def test_rows_are_claimed_for_what_any_of_a_lanes_endpoints_can_take(world: World) -> None:
    other = ProviderKey(KEY.base_url, "other")
    providers = Providers(cast(Link, None), uuid4, 30, world.told.append)
    assert providers.ahead({KEY, other}) is None
    world.provider = providers.of(KEY)
    assert providers.ahead({KEY, other}) == 0  # its part is still to come
    world.grant(concurrency=4)
    assert providers.ahead({KEY, other}) == 8
    world.grant(concurrency=4, cool=60)
    assert providers.ahead({KEY}) == -1
    world.provider = providers.of(other)
    world.grant(concurrency=3)
    assert providers.ahead({KEY, other}) == 6
    world.grant()
    assert providers.ahead({KEY, other}) is None


@pytest.mark.parametrize("minute", [1, 7, 60, 299, 300, 6000])
def test_no_minute_has_more_requests_than_the_limit(minute: int) -> None:
    bucket, now, sent = RequestBucket(minute, 0.0), 0.0, []
    while now < 200:
        wait = bucket.wait(now)
        if wait == 0:
            bucket.take()
            sent.append(now)
        else:
            now += wait + (0.003 if len(sent) % 7 == 0 else 1e-9)
        if minute >= 60 and len(sent) == minute:
            now += 40  # what was not used is lost, but for the burst
    most = max(sum(start <= one < start + 60 for one in sent) for start in sent[:: max(1, minute // 50)])
    assert most <= minute
    if minute in (299, 300):
        full = sum(120 <= one < 180 for one in sent)
        assert full >= 0.95 * minute


def test_tokens_are_owed_and_settled() -> None:
    bucket = TokenBucket(6000, 0.0)
    assert bucket.wait(50, 0.0) == 0
    bucket.take(50)
    assert bucket.wait(60, 0.0) == pytest.approx(0.1)
    bucket.take(150)  # it took more
    assert bucket.wait(10, 0.0) == pytest.approx(1.1)
    bucket.take(-100)
    assert bucket.wait(10, 0.1) == pytest.approx(0.0, abs=0.01)
    assert bucket.wait(10**6, 0.1) == pytest.approx(0.9, abs=0.1)


@run
async def test_a_call_costs_little_while_there_is_room(world: World) -> None:
    world.grant(concurrency=500)
    traffic, answer, best = Traffic(1), Answer("x"), 1.0
    for _ in range(20):
        started = time.perf_counter()
        for _ in range(500):
            ticket = world.provider.ask("row", urgent=False, column=COLUMN, inputs={})
            assert isinstance(ticket, Ticket)
            ticket.end(answer, traffic)
        best = min(best, (time.perf_counter() - started) / 500)
    assert best < 10e-6
