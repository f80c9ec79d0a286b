"""How an endpoint's limits are divided among workers, and what its answers teach about them: pure functions.

Nothing here knows time or a database: the store calls it under the endpoint's lock, about once a second a worker.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

SPARE = 20
"""One part in so many is kept for workers that have nothing to call just now, so that they can start at once."""

LOWERED = 0.7
"""What a 429 leaves of the calls that were in flight."""

CLIMB_TO_KNEE = 0.1
CLIMB = 0.02
"""A round's climb, below 0.9 of where it was last too much, and beyond: back in some three seconds, then with care. At
the one rate of 10 %, a limit of 100 saw a 429 every four seconds instead of every eight or so."""

LEAST_CLIMB = 0.2
"""Calls a round at least: a ceiling of a few takes some seconds for each one more."""

SAMPLE = 20
"""So many calls tell whether lowering has helped."""

ROUND_SECONDS = 1.0


class ProviderKey(NamedTuple):
    """Whose limits they are: the endpoint as its client calls it, without user and password, and the model asked."""

    base_url: str
    model: str


@dataclass(frozen=True, slots=True)
class Learnt:
    """What an endpoint has shown. `ceiling` is calls in flight, None before the first 429.

    `knee` is what was in flight when it was lowered last, `generation` how often it was. `accepted` and `rejected` are
    calls of this generation not judged yet; `rejected_before` is the share rejected when it was lowered, None once
    `SAMPLE` calls in a row were accepted.
    """

    ceiling: float | None = None
    knee: float = 0.0
    generation: int = 0
    accepted: int = 0
    rejected: int = 0
    rejected_before: float | None = None


def shares(limit: int, demands: Sequence[int]) -> list[int]:
    """Whole parts of `limit`, max-min by demand; they add up to it.

    Those without demand share a spare of 5 %. What nobody asks for is given on evenly: demand grows within a round.
    What does not divide evenly goes to the first.
    """
    idle = sum(demand <= 0 for demand in demands)
    spare, more = divmod(limit // SPARE, idle) if idle else (0, 0)
    wants = []
    for demand in demands:
        if demand > 0:
            wants.append(demand)
        else:
            wants.append(spare + (more > 0))
            more -= 1
    given = _fill(limit, wants)
    each, first = divmod(limit - sum(given), len(given)) if given else (0, 0)
    return [part + each + (place < first) for place, part in enumerate(given)]


def _fill(limit: int, wants: Sequence[int]) -> list[int]:
    """Water-filling: everyone gets what he wants up to one level, at which the limit is used up."""
    given = [0] * len(wants)
    left, rest = limit, sorted(range(len(wants)), key=wants.__getitem__)
    for place, one in enumerate(rest):
        if wants[one] * (len(rest) - place) > left:
            level, more = divmod(left, len(rest) - place)
            for at, other in enumerate(sorted(rest[place:])):
                given[other] = level + (at < more)
            return given
        given[one] = wants[one]
        left -= wants[one]
    return given


def grant(limit: int | None, demands: Sequence[int], mine: int, held: Sequence[int | None]) -> int | None:
    """What the one at place `mine` may take: its share, and never more than the others leave of the limit.

    `held` is what each of the others may go by until it is heard of again; one without a limit (None) leaves nothing.
    """
    if limit is None:
        return None
    if any(one is None for one in held):
        return 0
    return max(0, min(shares(limit, demands)[mine], limit - sum(one or 0 for one in held)))


def most(one: int | None, other: int | None) -> int | None:
    """The larger of two limits, None being none."""
    return None if one is None or other is None else max(one, other)


def least(*limits: int | None) -> int | None:
    """The smallest of some limits, None being none."""
    return min((one for one in limits if one is not None), default=None)


def learn(learnt: Learnt, *, accepted: int, rejected: int, in_flight: int, is_round: bool, is_busy: bool) -> Learnt:
    """After calls of the present generation: the ceiling comes down at the first 429, and climbs in rounds without.

    `in_flight` is what all had in flight when the first of `rejected` came, `is_round` whether `ROUND_SECONDS` have
    passed since the last round, `is_busy` whether more calls are waiting than the ceiling lets go.

    Endpoints also turn calls away at random, whatever the load: lowering then goes on to one call at a time and helps
    nobody. So it must help: where the same share is rejected as before it was lowered, it is left. (Above a half this
    cannot be told from a limit far below, and it is lowered.)
    """
    if learnt.ceiling is None and not rejected:
        return learnt
    learnt = replace(learnt, accepted=learnt.accepted + accepted, rejected=learnt.rejected + rejected)
    calls, before = learnt.accepted + learnt.rejected, learnt.rejected_before
    if learnt.rejected:
        share = learnt.rejected / calls
        if before is None or max(share, before) > 0.5:
            return _lowered(learnt, in_flight, share)
        if calls < SAMPLE:
            return learnt
        if share <= LOWERED * before:
            return _lowered(learnt, in_flight, share)
        learnt = replace(learnt, accepted=0, rejected=0, rejected_before=share)
    elif before is not None:
        if calls < SAMPLE:
            return learnt  # whether lowering has helped is judged where it led to, not further up
        learnt = replace(learnt, accepted=0, rejected_before=None)
    elif is_round:
        learnt = replace(learnt, accepted=0)  # the share rejected at the next 429 is that of its own second
    ceiling = learnt.ceiling
    if ceiling is None or not (is_round and is_busy and calls):
        return learnt
    far = ceiling < 0.9 * learnt.knee
    return replace(
        learnt, ceiling=ceiling + (max(1.0, CLIMB_TO_KNEE * ceiling) if far else max(LEAST_CLIMB, CLIMB * ceiling))
    )


def _lowered(learnt: Learnt, in_flight: int, share: float) -> Learnt:
    base = float(in_flight) if learnt.ceiling is None else min(float(in_flight), learnt.ceiling)
    return Learnt(max(1.0, LOWERED * base), base, learnt.generation + 1, 0, 0, share)


def paced(minute: int | None) -> int | None:
    """What is leased of a limit a minute: 2 % less from 20 on, as requests do not arrive as far apart as they leave."""
    return minute if minute is None or minute < 20 else minute - -(-minute // 50)
