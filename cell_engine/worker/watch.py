"""What a worker notes of its own work, for `/live`, `/ready` and `/metrics`: plain numbers, read by another thread.

It hangs on what the worker does anyway: calls of the store (`Link`), what is stored, who waits for a place.
"""

import asyncio
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from cell_engine.plan import NOT_FOUND
from cell_engine.shares import ProviderKey
from cell_engine.specs.version import Version
from cell_engine.store.results import Result

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

TURN_SECONDS = 1.0
STUCK_SECONDS = 60.0
"""Beyond its lease: a heartbeat that neither succeeds nor fails for so long hangs, as does an event loop that does not
turn. One that fails does not: the server may be away, and a restart would lose answers that wait for it."""


class Timing:
    """Durations: their number, sum and distribution over BOUNDS."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


class Endpoint(NamedTuple):
    """An endpoint's calls in flight here, those that wait for a place, and this worker's part of its limit."""

    key: ProviderKey
    in_flight: int
    waiting: int
    limit: int


class Load(NamedTuple):
    """What a worker has now."""

    slots: int
    visits: int
    calls: int
    endpoints: tuple[Endpoint, ...]


def _outcome(result: Result) -> str:
    if result.error_class is not None:
        return result.error_class
    return "cached" if result.cached else "not_found" if NOT_FOUND in (result.details or ()) else "succeeded"


class Watch:
    """One worker's numbers. `load` is set by the worker."""

    def __init__(self, lease: float = 30.0) -> None:
        self._lease = lease
        self.claimed = 0
        self.stored_results = 0
        self.calls: Counter[tuple[str, str]] = Counter()
        """By job type and outcome: succeeded, not_found, cached, or the class of the error."""
        self.statements: defaultdict[str, Timing] = defaultdict(Timing)
        self.failures: Counter[str] = Counter()
        self.waits: defaultdict[ProviderKey, Timing] = defaultdict(Timing)
        self.load: Callable[[], Load] = lambda: Load(0, 0, 0, ())
        self._turned = self._tried = time.monotonic()
        self._beaten: float | None = None
        self._trouble: str | None = None
        self._draining = False

    async def run(self) -> None:
        """Shows that the event loop turns."""
        while True:
            self._turned = time.monotonic()
            await asyncio.sleep(TURN_SECONDS)

    def called(self, function: str, seconds: float, error: BaseException | None) -> None:
        """The store was called, or in vain."""
        name = function.strip("_")
        self.statements[name].add(seconds)
        if error is not None:
            self.failures[name] += 1
        if name in ("beat", "register"):
            self._tried = time.monotonic()
            if error is None:
                self._beaten = self._tried
        elif name == "claim":
            self._trouble = None if error is None else f"cannot claim: {type(error).__name__}"

    def stored(self, results: Sequence[Result], version: Callable[[int, int], Version]) -> None:
        """Results are in the database."""
        self.stored_results += len(results)
        # Counted first, and then looked up: a batch is of few columns, and this is the event loop's time.
        counted = Counter(
            [
                (one.key.collection_id, one.version, one.column_id, _outcome(one))
                for one in results
                if one.call and one.version is not None
            ]
        )
        for (collection_id, number, column_id, outcome), calls in counted.items():
            column = version(collection_id, number).by_id.get(column_id)
            self.calls[column.job_type if column is not None else "", outcome] += calls

    def drain(self) -> None:
        self._draining = True

    def collect(self) -> "Iterator[Metric]":
        from cell_engine.worker.metrics import metrics_of  # a worker whom nobody asks imports none of it

        return metrics_of(self)

    def sick(self) -> str | None:
        now = time.monotonic()
        if now - self._turned > self._lease + STUCK_SECONDS:
            return f"the event loop has not turned for {now - self._turned:.0f} s"
        if now - self._tried > self._lease + STUCK_SECONDS:
            return f"the heartbeat has hung for {now - self._tried:.0f} s"
        return None

    def unready(self) -> str | None:
        if self._draining:
            return "it is stopping, and claims no more"
        if self._beaten is None:
            return "it has not registered yet"
        age = time.monotonic() - self._beaten
        return f"no heartbeat for {age:.0f} s" if age > self._lease else self._trouble
