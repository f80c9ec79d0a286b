"""What a janitor notes of its rounds and reads of the queue, for `/live`, `/ready` and `/metrics`."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import psycopg

from cell_engine.log import get_logger
from cell_engine.store.database import Connection
from cell_engine.store.figures import Lane, Spent, lanes_and_spend
from cell_engine.store.upkeep import Upkeep

if TYPE_CHECKING:
    from prometheus_client.core import Metric

READ_SECONDS = 15.0
"""Between two readings of the queue: each reads all of `work`."""

STUCK_SECONDS = 600.0
"""A round after an outage gives back what all workers held, and vacuums; one that takes longer hangs."""

LATE_SECONDS = 60.0

log = get_logger(__name__)


class JanitorWatch:
    """One janitor's numbers."""

    def __init__(self) -> None:
        self.rounds = self.failures = 0
        self.workers = self.visits = self.dispatches = 0
        self._begun = time.monotonic()
        self._ended: float | None = None
        self._read: float | None = None
        self._lanes: list[Lane] = []
        self._spent: list[Spent] = []

    def begin(self) -> None:
        """A round begins."""
        self._begun = time.monotonic()

    def done(self, upkeep: Upkeep, connection: Connection) -> None:
        """A round has done its work; now and then the queue is read."""
        self.rounds += 1
        self.workers += upkeep.workers
        self.visits += upkeep.visits
        self.dispatches += upkeep.dispatches
        now = time.monotonic()
        if self._read is None or now - self._read >= READ_SECONDS:
            self._read = now
            try:
                self._lanes, self._spent = lanes_and_spend(connection)
            except (psycopg.errors.QueryCanceled, psycopg.ProgrammingError) as error:  # too long; views of another time
                log.warning("the queue's figures cannot be read, and are left out", error=str(error).strip())
                self._lanes, self._spent = [], []
        self._ended = time.monotonic()

    def failed(self) -> None:
        self.failures += 1

    def sick(self) -> str | None:
        age = time.monotonic() - self._begun
        return f"a round has taken {age:.0f} s" if age > STUCK_SECONDS else None

    def unready(self) -> str | None:
        if self._ended is None:
            return "no round has been made yet"
        age = time.monotonic() - self._ended
        return f"no round for {age:.0f} s: the database is away, or a round takes long" if age > LATE_SECONDS else None

    def collect(self) -> "Iterator[Metric]":
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, text, number in (
            ("rounds", "Rounds made.", self.rounds),
            ("failures", "Rounds that the database was away for.", self.failures),
            ("reclaimed_workers", "Workers whose lease had run out.", self.workers),
            ("reclaimed_visits", "Rows given back that they had held.", self.visits),
            ("ended_dispatches", "Dispatches found to be over.", self.dispatches),
        ):
            yield CounterMetricFamily(f"autofill_janitor_{name}", text, number)
        if self._ended is not None:
            age = time.monotonic() - self._ended
            yield GaugeMetricFamily("autofill_janitor_last_round_age_seconds", "Since a round was made.", age)
        lane = ("collection", "job_type")
        rows = GaugeMetricFamily("autofill_queue_rows", "Rows of the queue.", labels=(*lane, "state"))
        ages = GaugeMetricFamily("autofill_queue_oldest_seconds", "Age of the oldest queued row.", labels=lane)
        for one in self._lanes:
            for state in ("queued", "delayed", "parked", "computing"):
                rows.add_metric((one.collection, one.job_type, state), getattr(one, state))
            ages.add_metric((one.collection, one.job_type), one.oldest_age)
        yield from (rows, ages)
        for name, text in (("cost_dollars", "Known cost"), ("calls", "Number"), ("tokens", "Tokens, in and out,")):
            family = GaugeMetricFamily(
                f"autofill_spent_{name}", f"{text} of models' calls so far.", labels=("collection",)
            )
            for spent in self._spent:
                family.add_metric((spent.collection,), getattr(spent, name.removesuffix("_dollars")))
            yield family
