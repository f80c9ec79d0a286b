"""One endpoint as this worker may use it: its part of the limits, and who waits for a place.

A ticket is a call's way there. While there is room it has a place at once, which is an addition; else it waits in line,
and its visit is told when its turn has come, edits first.
"""

import asyncio
import math
import random
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from cell_engine.kinds.base import PAUSING, Failure, Outcome, Traffic
from cell_engine.shares import ProviderKey
from cell_engine.specs.text import Json
from cell_engine.specs.version import Column
from cell_engine.store.providers import Grant, Report
from cell_engine.worker.buckets import RequestBucket, TokenBucket
from cell_engine.worker.holds import Refused

HOLD_SECONDS = 3.0
"""A visit waits for its turn so long; where an endpoint cools down for longer, or too many wait, rows go back."""

RETURN_SECONDS = (2.0, 4.0)
"""A row for which there was no room comes again after so long."""

PAUSING_SECONDS = 2.0
"""So long nobody calls after a failure that every call would meet: by then all workers know that the lane is held."""

AHEAD_SECONDS = 0.5
"""So much work is claimed ahead of an endpoint: a claim comes every 0.1 s at least."""

MEASURED_SECONDS = 0.2
"""A rate is measured over so long at least."""

TOKENS_A_CALL = 600
"""Until there is one to go by."""

PROOFS = frozenset({"refused", "truncated"})
"""Failures that show, as an answer does, that endpoint, key and model work."""

NO_LIMIT = 1 << 30

Waiter: TypeAlias = Any
"""Who asks for a ticket: given back to the function that tells of turns."""


class Ticket:
    """A call's way to its endpoint. `may_go` once it has a place there; `refused` once it is sent away."""

    __slots__ = ("generation", "in_line", "may_go", "provider", "refused", "since", "tokens", "visit")

    def __init__(self, provider: "Provider", visit: Waiter) -> None:
        self.provider = provider
        self.visit = visit
        self.may_go = False
        self.in_line = False
        self.refused: Refused | None = None
        self.since = 0.0
        self.generation = 0
        self.tokens = 0

    def drop(self) -> None:
        """It is not needed any more, and no call was made."""
        if self.in_line:
            self.in_line = False
            self.provider.waiting -= 1
        elif self.may_go:
            self.may_go = False
            self.provider.leave(self)

    def end(self, outcome: Outcome | None, traffic: Traffic) -> None:
        """Its call has ended; None: broken off."""
        self.may_go = False
        self.provider.end(self, outcome, traffic)


class Provider:
    """One endpoint. Places are taken by `ask` or given to who is in line; `report` and `take` are the ends of a round.

    Times are the event loop's.
    """

    def __init__(self, key: ProviderKey, tell: Callable[[Waiter], None], hurry: Callable[[], None], now: float) -> None:
        self.key = key
        self.limit = 0
        self.in_flight = 0
        self.waiting = 0
        self.used_at = now
        self._tell = tell
        self._hurry = hurry
        self._edits: deque[Ticket] = deque()
        self._others: deque[Ticket] = deque()
        self._requests: RequestBucket | None = None
        self._tokens: TokenBucket | None = None
        self._granted: Grant | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._closed = False
        self._closed_until = 0.0  # while `_closed`; then `_timer` runs
        self._timer: asyncio.TimerHandle | None = None
        self._tokens_out = 100.0  # a running mean
        self._is_proven = False
        # what is to be told in the next round
        self._told_at = now
        self._starts = 0
        self._tokens_started = 0
        self._accepted = 0
        self._rejected = 0
        self._at_rejection = 0
        self._was_short = False
        self._cool_until = 0.0
        self._cool_telling = 0.0
        self._cool_told = 0.0
        self._proof: bool | None = None
        self._found: tuple[int | None, int | None] = (None, None)

    # ---- what visits do

    def ask(self, visit: Waiter, *, urgent: bool, column: Column, inputs: Mapping[int, Json]) -> Ticket | Refused:
        """A ticket for one call, with a place or in line for one. Refused: not before the endpoint has cooled down."""
        ticket = Ticket(self, visit)
        if self._tokens is not None:
            ticket.tokens = self._estimate(column, inputs)
        if not self.waiting and self._admits(ticket):
            return ticket
        now = asyncio.get_running_loop().time()
        if self._closed_until - now > HOLD_SECONDS:
            return self._refusal(now)
        if not self._was_short:
            self._was_short = True  # once a round
            self._hurry()
        ticket.in_line = True
        ticket.since = now
        self.waiting += 1
        (self._edits if urgent else self._others).append(ticket)
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """A place that was not used is the next one's; nothing was sent."""
        self.in_flight -= 1
        self._starts -= 1
        self._tokens_started -= ticket.tokens
        if self._requests is not None:
            self._requests.take(-1)
        if self._tokens is not None:
            self._tokens.take(-ticket.tokens)
        self._invite()

    def end(self, ticket: Ticket, outcome: Outcome | None, traffic: Traffic) -> None:
        """A call has ended; without an outcome if it was broken off."""
        self.in_flight -= 1
        if self._requests is not None and traffic.requests > 1:
            self._requests.take(traffic.requests - 1)
        if traffic.requests_minute is not None or traffic.tokens_minute is not None:
            self._found = (traffic.requests_minute, traffic.tokens_minute)
        if outcome is not None:
            self._learn(ticket, outcome)
        if self.waiting:
            self._invite()

    def _learn(self, ticket: Ticket, outcome: Outcome) -> None:
        error = outcome.error_class if isinstance(outcome, Failure) else None
        took = outcome.tokens_in + outcome.tokens_out
        if self._tokens is not None and (took or error == "rate_limited"):
            self._tokens.take(took - ticket.tokens)
        if error == "rate_limited":
            self._reject(ticket, outcome.retry_after if isinstance(outcome, Failure) else None)
            return
        if ticket.generation == self._generation:
            self._accepted += 1
        if error is None or error in PROOFS:
            self._tokens_out += (outcome.tokens_out - self._tokens_out) / 64
            if not self._is_proven:
                self._is_proven = self._proof = True
                self._hurry()
        elif error in PAUSING:
            self._is_proven = self._proof = False
            self._cool(PAUSING_SECONDS)

    def _reject(self, ticket: Ticket, retry_after: float | None) -> None:
        if retry_after:
            self._cool(retry_after)
        if ticket.generation == self._generation:
            self._rejected += 1
            if self._rejected == 1:
                self._at_rejection = self.in_flight + 1
                self._hurry()

    def _cool(self, seconds: float) -> None:
        """Here at once, everywhere with the next round."""
        self._cool_until = max(self._cool_until, asyncio.get_running_loop().time() + seconds)
        self._close(seconds)
        self._hurry()

    # ---- places

    @property
    def _generation(self) -> int:
        return self._granted.generation if self._granted is not None else 0

    def _admits(self, ticket: Ticket) -> bool:
        if self.in_flight >= self.limit or self._closed:
            return False
        if (self._requests is not None or self._tokens is not None) and not self._is_paced(ticket):
            return False
        self.in_flight += 1
        self._starts += 1
        self._tokens_started += ticket.tokens
        ticket.generation = self._generation
        ticket.may_go = True
        return True

    def _is_paced(self, ticket: Ticket) -> bool:
        now = asyncio.get_running_loop().time()
        wait = 0.0 if self._requests is None else self._requests.wait(now)
        if self._tokens is not None:
            wait = max(wait, self._tokens.wait(ticket.tokens, now))
        if wait > 0:
            self._wake_in(wait)
            return False
        if self._requests is not None:
            self._requests.take()
        if self._tokens is not None:
            self._tokens.take(ticket.tokens)
        return True

    def _invite(self) -> None:
        """Give places to those in line, as far as there are any, and tell them."""
        while self.waiting:
            line = self._edits if _first(self._edits) else self._others
            ticket = _first(line)
            if ticket is None or not self._admits(ticket):
                return
            line.popleft()
            ticket.in_line = False
            self.waiting -= 1
            self._tell(ticket.visit)

    def _close(self, seconds: float) -> None:
        now = asyncio.get_running_loop().time()
        self._closed_until = max(self._closed_until, now + seconds)
        self._closed = True
        self._wake_in(self._closed_until - now)
        if seconds > HOLD_SECONDS:
            self._send_away(0, now)

    def _wake_in(self, seconds: float) -> None:
        if seconds == math.inf:
            return  # there is no part of the limit: the next grant has some
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._wake)

    def _wake(self) -> None:
        self._timer = None
        left = self._closed_until - asyncio.get_running_loop().time()
        if left > 0:
            self._wake_in(left)
            return
        self._closed = False
        self._invite()

    def _send_away(self, keep: int, now: float) -> None:
        """Who waits beyond `keep` goes back to the queue, the latest first; edits only where all have to."""
        for line in (self._others,) if keep else (self._others, self._edits):
            for ticket in reversed(line):
                if self.waiting <= keep:
                    return
                if ticket.in_line and (not keep or now - ticket.since > HOLD_SECONDS):
                    ticket.in_line = False
                    self.waiting -= 1
                    ticket.refused = self._refusal(now)
                    self._tell(ticket.visit)

    def _refusal(self, now: float) -> Refused:
        return Refused(max(0.0, self._closed_until - now) + random.uniform(*RETURN_SECONDS))  # noqa: S311

    # ---- how much to claim

    def cools(self, now: float) -> bool:
        """Whether it will be longer than a visit waits."""
        return self._closed_until - now > HOLD_SECONDS

    def ahead(self, now: float) -> int | None:
        """How many more calls it may be asked for now, so that none of its limits runs dry before the next claim; None:
        as many as you like."""
        soon = self._soon(now)
        return None if soon is None else max(0, soon - self.in_flight - self.waiting)

    def _soon(self, now: float) -> int | None:
        if self._requests is None and self._tokens is None and self.limit >= NO_LIMIT:
            return None
        rate = self._starts / max(now - self._told_at, MEASURED_SECONDS)
        soon = max(2 * self.limit, self.limit + math.ceil(rate * AHEAD_SECONDS))
        calls_minute = []
        if self._requests is not None:
            calls_minute.append(float(self._requests.minute))
        if self._tokens is not None:
            calls_minute.append(self._tokens.minute / self._tokens_a_call())
        for minute in calls_minute:
            soon = min(soon, self.in_flight + 1 + math.ceil(minute / 60 * 2 * AHEAD_SECONDS))
        return soon

    def _tokens_a_call(self) -> float:
        return self._tokens_started / self._starts if self._starts > 0 < self._tokens_started else TOKENS_A_CALL

    def _estimate(self, column: Column, inputs: Mapping[int, Json]) -> int:
        """A call's tokens: four characters each, and what answers have taken of late."""
        characters = len(str(column.settings)) + sum(len(str(value)) for value in inputs.values())
        return characters // 4 + round(self._tokens_out)

    # ---- rounds

    def report(self, now: float) -> Report:
        """What is to be told now. It is told when `take` brings the answer, else it is told again."""
        starts_minute = math.ceil(self._starts * 60 / max(now - self._told_at, MEASURED_SECONDS))
        wanted = min(NO_LIMIT, starts_minute + 60 * self.waiting)
        granted = self._granted
        self._was_short = self.waiting > 0
        self._cool_telling = self._cool_until
        return Report(
            self.key,
            demand=self.in_flight + self.waiting,
            in_flight=self.in_flight,
            requests_wanted=wanted,
            tokens_wanted=math.ceil(wanted * self._tokens_a_call()),
            concurrency=granted.concurrency if granted is not None else 0,
            requests=granted.requests if granted is not None else 0,
            tokens=granted.tokens if granted is not None else 0,
            generation=self._generation,
            accepted=self._accepted,
            rejected=self._rejected,
            at_rejection=self._at_rejection,
            cool=self._cool_until - now if self._cool_until > max(now, self._cool_told) else None,
            proof=self._proof,
            found_requests=self._found[0],
            found_tokens=self._found[1],
        )

    def take(self, grant: Grant, report: Report, seconds: float) -> bool:
        """Go by `grant`, the answer to `report`, for at most `seconds`; returns whether it is less than before."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        before, self._granted = self._granted, grant
        self._clear(before, grant, report, now)
        self.limit = NO_LIMIT if grant.concurrency is None else grant.concurrency
        self._requests = self._requests_bucket(grant.requests, now)
        self._tokens = self._tokens_bucket(grant.tokens, now)
        if self._expiry is not None:
            self._expiry.cancel()
        if grant.concurrency is not None or grant.requests is not None or grant.tokens is not None:
            self._expiry = loop.call_later(seconds, self._expire)
        if grant.cool > 0:
            self._close(grant.cool)
        elif self._closed_until > now and self._cool_until <= self._cool_told:
            self._closed_until = now  # somebody has put it right
            self._wake()
        soon = self._soon(now)
        if soon is not None and self.waiting > 2 * soon:
            self._send_away(max(1, soon), now)
        self._invite()
        return before is not None and (
            _is_less(grant.concurrency, before.concurrency)
            or _is_less(grant.requests, before.requests)
            or _is_less(grant.tokens, before.tokens)
        )

    def _clear(self, before: Grant | None, grant: Grant, report: Report, now: float) -> None:
        """Told is what the report said; what has come since is for the next."""
        if before is None or before.generation == grant.generation:
            self._accepted -= report.accepted
            self._rejected -= report.rejected
        else:
            self._accepted = self._rejected = 0  # calls of before say nothing about what is lowered
        if self._proof is report.proof:
            self._proof = None
            self._is_proven = grant.proven
        self._cool_told = self._cool_telling
        if self._found == (report.found_requests, report.found_tokens):
            self._found = (None, None)
        if self.in_flight or self.waiting:
            self.used_at = now
        self._starts = self._tokens_started = 0
        self._told_at = now

    def _requests_bucket(self, minute: int | None, now: float) -> RequestBucket | None:
        if minute is None:
            return None
        if self._requests is None:
            return RequestBucket(minute, now)
        self._requests.set(minute, now)
        return self._requests

    def _tokens_bucket(self, minute: int | None, now: float) -> TokenBucket | None:
        if minute is None:
            return None
        if self._tokens is None:
            return TokenBucket(minute, now)
        self._tokens.set(minute, now)
        return self._tokens

    def _expire(self) -> None:
        """Nothing was heard for as long as a lease: its part is others' by now."""
        self.limit = 0


def _first(line: deque[Ticket]) -> Ticket | None:
    while line and not line[0].in_line:
        line.popleft()
    return line[0] if line else None


def _is_less(new: int | None, old: int | None) -> bool:
    return new is not None and (old is None or new < old)
