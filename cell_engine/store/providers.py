"""Endpoints (base URL and model) and what they take: leased to workers in one transaction about once a second.

A worker reports what it wants, what it goes by and what it has met, and takes its grant: never more than the others'
leases leave of the limit. What it had said it goes by stays its own until it says less, so that an answer that is lost,
or still on its way, lets nobody go above the limit.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID
from zlib import crc32

from cell_engine import shares
from cell_engine.errors import BadValueError
from cell_engine.shares import ProviderKey
from cell_engine.store.arrays import numbers
from cell_engine.store.database import Connection, run

TURN_SECONDS = 10.0
"""Where there is not one call for each, they take turns of so long."""

LONGEST_COOL = 86_400.0


@dataclass(slots=True)
class Report:
    """What a worker has to say of one provider: what it wants, what it goes by, and what it has met since last time.

    `demand` is calls in flight and waiting; the wanted are a minute. `concurrency`, `requests` and `tokens` is what it
    goes by now (None: no limit). `accepted` and `rejected` count calls of `generation`, `at_rejection` what it had in
    flight at the first of the rejected; `cool` is seconds to wait for. `proof` is True after a success, False after a
    failure that everybody would meet. The found are limits a minute by the endpoint's own headers.
    """

    key: ProviderKey
    demand: int = 0
    in_flight: int = 0
    requests_wanted: int = 0
    tokens_wanted: int = 0
    concurrency: int | None = 0
    requests: int | None = 0
    tokens: int | None = 0
    generation: int = 0
    accepted: int = 0
    rejected: int = 0
    at_rejection: int = 0
    cool: float | None = None
    proof: bool | None = None
    found_requests: int | None = None
    found_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """A worker's part of a provider: calls in flight, requests and tokens a minute (None: no limit); `cool` is seconds
    in which nobody calls, `proven` whether it has answered, `workers` how many share it."""

    key: ProviderKey
    concurrency: int | None
    requests: int | None
    tokens: int | None
    cool: float
    generation: int
    proven: bool
    workers: int


class _Other(NamedTuple):
    worker_id: str
    demand: int
    in_flight: int
    requests_wanted: int
    tokens_wanted: int
    concurrency: int | None
    requests: int | None
    tokens: int | None


def lease(connection: Connection, worker_id: UUID, reports: Sequence[Report]) -> list[Grant]:
    """Book the reports, one a provider, and return the grants that follow. A worker that has ended gets none.

    A grant holds for the worker's lease. Raises psycopg.errors.LockNotAvailable when a provider is locked for longer
    than a second; nothing is booked then.
    """
    keys = {"base_urls": [one.key.base_url for one in reports], "models": [one.key.model for one in reports]}
    by_key = {one.key: one for one in reports}
    with connection.transaction():
        run(connection, "provider_transaction")
        locked = run(connection, "provider_lock", **keys).fetchall()
        if len(locked) < len(by_key):
            run(connection, "provider_ensure", **keys)
            locked = run(connection, "provider_lock", **keys).fetchall()
        found = run(connection, "provider_read", worker_id=worker_id, providers=[one.id for one in locked]).fetchall()
        rounds = [_Round(worker_id, one, by_key[ProviderKey(one.base_url, one.model)]) for one in found]
        written = run(connection, "provider_write", worker_id=worker_id, **_columns(rounds)).fetchall()
    return [one.grant for one in rounds] if written else []


class _Round:
    """One provider in one transaction: from what is there and what is reported, what is written and granted."""

    def __init__(self, worker_id: UUID, found: Any, report: Report) -> None:
        self.provider_id: int = found.id
        self.report = report
        others = [_Other(*one) for one in found.leases]
        was = shares.Learnt(
            found.ceiling,
            found.knee,
            found.generation,
            found.accepted,
            found.rejected,
            found.rejected_before,
            found.background,
        )
        current = report.generation == was.generation
        self.is_round = found.round_age >= shares.ROUND_SECONDS
        self.learnt = shares.learn(
            was,
            accepted=report.accepted if current else 0,
            rejected=report.rejected if current else 0,
            in_flight=report.at_rejection + sum(one.in_flight for one in others),
            is_round=self.is_round,
            is_busy=was.ceiling is not None and report.demand + sum(one.demand for one in others) > was.ceiling,
        )
        self.proven: bool = found.proven if report.proof is None else report.proof
        self.cool = None if report.cool is None else min(report.cool, LONGEST_COOL)
        self.changed = (
            self.learnt != was
            or self.proven != found.proven
            or self.cool is not None
            or report.found_requests is not None
            or report.found_tokens is not None
        )
        ceiling = None if self.learnt.ceiling is None else math.floor(self.learnt.ceiling)
        # In an order that turns: what does not divide evenly, or is less than they are, goes to the first.
        turn = int(found.clock // TURN_SECONDS)
        mine = _Other(str(worker_id), report.demand, 0, report.requests_wanted, report.tokens_wanted, None, None, None)
        everyone = sorted([*others, mine], key=lambda one: crc32(f"{turn} {one.worker_id}".encode()))
        place = everyone.index(mine)
        self.grant = Grant(
            report.key,
            shares.grant(
                shares.least(found.concurrency, ceiling, None if self.proven else 1),
                [one.demand for one in everyone],
                place,
                [one.concurrency for one in others],
            ),
            shares.grant(
                shares.paced(shares.least(found.requests_minute, report.found_requests, found.found_requests)),
                [one.requests_wanted for one in everyone],
                place,
                [one.requests for one in others],
            ),
            shares.grant(
                shares.paced(shares.least(found.tokens_minute, report.found_tokens, found.found_tokens)),
                [one.tokens_wanted for one in everyone],
                place,
                [one.tokens for one in others],
            ),
            max(found.cool, self.cool or 0.0),
            self.learnt.generation,
            self.proven,
            len(everyone),
        )


def _columns(rounds: Sequence[_Round]) -> dict[str, str]:
    return {
        "providers": numbers(one.provider_id for one in rounds),
        "changed": numbers(one.changed for one in rounds),
        "proven": numbers(one.proven for one in rounds),
        "cool": numbers(one.cool for one in rounds),
        "ceilings": numbers(one.learnt.ceiling for one in rounds),
        "knees": numbers(one.learnt.knee for one in rounds),
        "generations": numbers(one.learnt.generation for one in rounds),
        "accepted": numbers(one.learnt.accepted for one in rounds),
        "rejected": numbers(one.learnt.rejected for one in rounds),
        "rejected_before": numbers(one.learnt.rejected_before for one in rounds),
        "background": numbers(one.learnt.background for one in rounds),
        "rounds": numbers(one.is_round for one in rounds),
        "found_requests": numbers(one.report.found_requests for one in rounds),
        "found_tokens": numbers(one.report.found_tokens for one in rounds),
        "demands": numbers(one.report.demand for one in rounds),
        "in_flight": numbers(one.report.in_flight for one in rounds),
        "requests_wanted": numbers(one.report.requests_wanted for one in rounds),
        "tokens_wanted": numbers(one.report.tokens_wanted for one in rounds),
        # What others must count: calls in flight go on, and what it goes by it goes by until it has this grant.
        "concurrency": numbers(
            shares.most(shares.most(one.grant.concurrency, one.report.concurrency), one.report.in_flight)
            for one in rounds
        ),
        "requests_minute": numbers(shares.most(one.grant.requests, one.report.requests) for one in rounds),
        "tokens_minute": numbers(shares.most(one.grant.tokens, one.report.tokens) for one in rounds),
    }


def set_limits(connection: Connection, key: ProviderKey, limits: dict[str, int | None], *, reset: bool = False) -> None:
    """Set the limits named (`concurrency`, `requests_minute`, `tokens_minute`; None: none) for good; workers go by them
    within a second or so. `reset` forgets what the endpoint has shown, a cool-down too: it is probed with one call.

    Raises BadValueError for a limit below 1.
    """
    for name, value in limits.items():
        if value is not None and value < 1:
            raise BadValueError(f"{name} is {value}: a limit is at least 1, and `none` is no limit")
    run(
        connection,
        "provider_set",
        **key._asdict(),
        concurrency=limits.get("concurrency"),
        requests_minute=limits.get("requests_minute"),
        tokens_minute=limits.get("tokens_minute"),
        sets_concurrency="concurrency" in limits,
        sets_requests="requests_minute" in limits,
        sets_tokens="tokens_minute" in limits,
        reset=reset,
    )


def list_providers(connection: Connection, base_url: str | None = None, model: str | None = None) -> list[Any]:
    """Endpoints as `autofill.provider_limits` shows them, all or those named."""
    return run(connection, "provider_list", base_url=base_url, model=model).fetchall()
