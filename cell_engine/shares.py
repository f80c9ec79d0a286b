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

SAMPLE = 40
"""So many calls tell which share is rejected. With 20, one sample in five of an endpoint that turns away a fifth at
random looked as if lowering had helped, and the ceiling sank to one call; with 40, one in thirteen."""

HELPED = 0.6
"""What is left of the share rejected, at most, where lowering has helped: under a limit it is 0.57 or less."""

HOPELESS = 0.5
"""Where more is rejected than this, the limit may be so far below that lowering once does not show."""

ROUND_SECONDS = 1.0


class ProviderKey(NamedTuple):
    """Whose limits they are: the endpoint as its client calls it, without user and password, and the model asked."""

    base_url: str
    model: str


@dataclass(frozen=True, slots=True)
class Learnt:
    """What an endpoint has shown. `ceiling` is calls in flight, None before the first 429.

    `knee` is what was in flight when it was lowered last, `generation` how often it was. `accepted` and `rejected` are
    calls of this generation not judged yet. `rejected_before` is the share rejected when it was lowered (1 where too
    few calls told), None once that has been judged. `background` is the share rejected whatever the load.
    """

    ceiling: float | None = None
    knee: float = 0.0
    generation: int = 0
    accepted: int = 0
    rejected: int = 0
    rejected_before: float | None = None
    background: float = 0.0


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
    nobody. So it must help: if the share rejected is about what it was, lowering is taken back, and that share is the
    background; only twice as much lowers again.
    """
    if learnt.ceiling is None and not rejected:
        return learnt
    learnt = replace(learnt, accepted=learnt.accepted + accepted, rejected=learnt.rejected + rejected)
    calls = learnt.accepted + learnt.rejected
    if calls == 0:
        return learnt
    share = learnt.rejected / calls
    if learnt.rejected_before is not None:
        after = _judge_lowering(learnt, share, calls)
    else:
        after = _judge_calm(learnt, share, calls, in_flight)
    if after is None:
        return learnt  # too few calls to tell; what is to be found out here is not found out further up
    if after.generation > learnt.generation or after.ceiling is None or not (is_round and is_busy):
        return after
    return replace(after, ceiling=_climbed(after.ceiling, after.knee))


def _judge_calm(learnt: Learnt, share: float, calls: int, in_flight: int) -> Learnt | None:
    if learnt.background:
        usual = share <= 2 * learnt.background
        if calls < _enough(learnt.background):
            return learnt if usual else None
        if usual:
            return replace(learnt, accepted=0, rejected=0, background=(learnt.background + share) / 2 if share else 0.0)
    if not share:
        return replace(learnt, accepted=0)  # the share at the next 429 is that of its own second
    if learnt.ceiling is None:
        return _lowered(learnt, in_flight, share if calls >= SAMPLE else 1.0)
    # With a background it takes many calls to tell: what was in flight at the last of them says nothing.
    base = learnt.ceiling if learnt.background else min(in_flight, learnt.ceiling)
    return _lowered(learnt, base, share if calls >= SAMPLE else 1.0)


def _judge_lowering(learnt: Learnt, share: float, calls: int) -> Learnt | None:
    before = learnt.rejected_before or 0.0
    if calls < (SAMPLE if share else _enough(before)):
        return None
    if not share:
        return replace(learnt, accepted=0, rejected_before=None)
    if max(share, before) > HOPELESS or share <= HELPED * before:
        # by what was accepted, if that is less: from far above, 0.7 a time meant as many 429s as calls
        return _lowered(learnt, learnt.ceiling or 1.0, share, min(LOWERED, 1 - share))
    return replace(learnt, ceiling=learnt.knee, accepted=0, rejected=0, rejected_before=None, background=share)


def _enough(share: float) -> int:
    """So many calls without a rejection that `share`, had it been that, would have shown (in 19 of 20 cases)."""
    return max(SAMPLE, round(3 / share)) if share else SAMPLE


def _lowered(learnt: Learnt, base: float, share: float, to: float = LOWERED) -> Learnt:
    base = max(1.0, base)
    return Learnt(max(1.0, to * base), base, learnt.generation + 1, 0, 0, share, learnt.background)


def _climbed(ceiling: float, knee: float) -> float:
    if ceiling < 0.9 * knee:
        return ceiling + max(1.0, CLIMB_TO_KNEE * ceiling)
    return ceiling + max(LEAST_CLIMB, CLIMB * ceiling)


def paced(minute: int | None) -> int | None:
    """What is leased of a limit a minute: 2 % less from 20 on, as requests do not arrive as far apart as they leave."""
    return minute if minute is None or minute < 20 else minute - -(-minute // 50)
