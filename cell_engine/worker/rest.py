"""What of a row is not due for now though it is wanted, and how the visit ends because of it."""

import random
from collections.abc import Set
from dataclasses import dataclass

from cell_engine.log import get_logger
from cell_engine.specs.version import Column
from cell_engine.store.claims import Reading
from cell_engine.store.results import Ending, Release
from cell_engine.worker.holds import Refused

STORM_SECONDS = 30.0

AWAIT_SECONDS = (1.0, 5.0)
"""A row that waits for another's call asks again after so long: a second longer each time. It is woken sooner."""

_NONE: Set[int] = frozenset()

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Wait:
    """How many seconds a failed column rests, and whether a provider asked for it: an edit does not cut that short."""

    seconds: float
    limited: bool


class Rest:
    """By column id: `waiting`, those that have failed and will be tried again, or are held; `elsewhere`, those of other
    pools, with their job type; `awaiting`, those that another row computes for all that ask, with the fingerprint;
    `spent`, those that have been called as often as one visit may."""

    __slots__ = ("awaiting", "elsewhere", "spent", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[int, Wait] = {}
        self.elsewhere: dict[int, str] = {}
        self.awaiting: dict[int, bytes] = {}
        self.spent: set[int] = set()

    def columns(self) -> Set[int]:
        """None of these is due."""
        if self.waiting or self.elsewhere or self.awaiting or self.spent:
            return {*self.waiting, *self.elsewhere, *self.awaiting, *self.spent}
        return _NONE

    def hold(self, column: Column, refused: Refused) -> None:
        """The column waits in its own lane, which nobody claims from while it is held."""
        self.waiting[column.id] = Wait(refused.seconds, True)
        self.elsewhere[column.id] = column.job_type

    def take(self, reading: Reading) -> None:
        """Plan afresh with a new reading. An edit resets what had failed: it is tried at once."""
        self.elsewhere.clear()
        self.awaiting.clear()
        self.waiting = {id: wait for id, wait in self.waiting.items() if wait.limited or id in reading.attempts}

    def release(self, reading: Reading, answered: tuple[int, ...]) -> Release:
        """How the visit ends, now that nothing more is due in it."""
        seconds = max([wait.seconds for wait in self.waiting.values()]) if self.waiting else None
        if self.spent:
            log.warning("too many rounds, the row waits", row=reading.key.row_id, seconds=STORM_SECONDS)
            return ended(reading, "defer", STORM_SECONDS, answered)
        if self.elsewhere:
            # To a pool that can go on, rather than to a lane that is held. With what failed here still resting, the
            # other pool waits as long: it would hand the row straight back.
            open_ = [id for id in self.elsewhere if id not in self.waiting]
            if open_:
                resting = [wait.seconds for id, wait in self.waiting.items() if id not in self.elsewhere]
                seconds = max(resting, default=None)
            return ended(reading, "hand_over", seconds, answered, self.elsewhere[(open_ or list(self.elsewhere))[0]])
        if self.awaiting:
            shortest, longest = AWAIT_SECONDS
            poll = min(longest, shortest + reading.waits) * random.uniform(0.75, 1.25)  # noqa: S311
            release = ended(reading, "delay", max(poll, seconds or 0.0), answered)
            if seconds is None:  # or else it would be woken while what failed rests
                release.awaits = next(iter(self.awaiting.values()))
            return release
        if seconds is not None:
            return ended(reading, "delay", seconds, answered)
        return ended(reading, "done", None, answered)


def ended(
    reading: Reading,
    ending: Ending,
    seconds: float | None = None,
    answered: tuple[int, ...] = (),
    job_type: str | None = None,
) -> Release:
    return Release(reading.key, reading.token, reading.signal, reading.raised, ending, seconds, job_type, answered)
