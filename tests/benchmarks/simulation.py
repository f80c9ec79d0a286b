"""Fairness in virtual time: workers that share a provider's limit claim for a huge sweep and many tiny ones.

What is simulated are the workers, their calls and the clock; who gets how many slots is `cell_engine.fairness` itself.
"""

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from cell_engine.fairness import Lane, Offer, Share, Space, shares

TRIES = 5
"""How often a worker claims again at once, where a sweep that was given slots turned out to have fewer rows."""


@dataclass(frozen=True)
class Scene:
    """Namespaces of one collection each: a huge sweep, and small sweeps of so many cells, all asked for at once; edits
    of one cell come all the time. A call takes a second on average; a worker may start `per_worker` a second, one after
    the other, and has `slots`."""

    huge: int
    small: int
    cells: int
    workers: int
    per_worker: int
    slots: int
    edits: float
    seed: int = 0

    @property
    def limit(self) -> int:
        """Of the provider, in calls a second."""
        return self.workers * self.per_worker


@dataclass
class Seen:
    """What came of it, until the last small sweep was done. Waits are seconds from the asking to the start of the last
    call; `level` is what a fluid shared out in equal parts would take for a small one."""

    waits: list[float]
    edit_waits: list[float]
    level: float
    starts: list[float]
    until: float
    limit: int

    @property
    def worst(self) -> float:
        return max(self.waits)

    @property
    def p99(self) -> float:
        return percentile(self.waits, 0.99)

    @property
    def jain(self) -> float:
        """1: every small one was served at the same pace; 1/n: one had it all."""
        return jain([1 / wait for wait in self.waits])

    @property
    def most_in_a_second(self) -> int:
        """Calls started, in whichever second they were most: a window that slides."""
        most = first = 0
        for last, at in enumerate(self.starts):
            while self.starts[first] <= at - 1 + 1e-9:
                first += 1
            most = max(most, last - first + 1)
        return most

    @property
    def utilisation(self) -> float:
        """Of what the provider allows, while everybody had something to do."""
        return sum(at < self.until for at in self.starts) / (self.limit * self.until)


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[max(0, math.ceil(len(values) * share) - 1)]


def jain(paces: Sequence[float]) -> float:
    return sum(paces) ** 2 / (len(paces) * sum(pace * pace for pace in paces))


@dataclass
class _Simulation:
    scene: Scene
    lots: random.Random
    rows: dict[int, int] = field(default_factory=dict)  # collection -> rows left of its sweep
    edits: dict[int, list[float]] = field(default_factory=dict)  # collection -> when each was asked for
    held: Counter[int] = field(default_factory=Counter)
    busy: Counter[int] = field(default_factory=Counter)

    def run(self) -> Seen:
        scene = self.scene
        self.rows = {0: scene.huge} | dict.fromkeys(range(1, scene.small + 1), scene.cells)
        events: list[tuple[float, int, str, int]] = []  # when, order, what, who
        order = 0

        def at(when: float, what: str, who: int, of: int = 0) -> None:
            nonlocal order
            order += 1
            heappush(events, (when, order, what, who * 10_000_000 + of))

        for worker in range(scene.workers):
            at(self.lots.random(), "claim", worker)
        if scene.edits:
            at(self.lots.expovariate(scene.edits), "edit", 0)
        starts: list[float] = []
        last: dict[int, float] = {}
        edit_waits: list[float] = []
        until = math.inf
        small = scene.small
        while events:
            now, _, what, which = heappop(events)
            if now > until:
                break
            worker, collection = divmod(which, 10_000_000)
            if what == "edit":
                self.edits.setdefault(self.lots.randint(0, scene.small), []).append(now)
                at(now + self.lots.expovariate(scene.edits), "edit", 0)
            elif what == "end":
                self.held[collection] -= 1
                self.busy[worker] -= 1
            else:
                for place, (taken, asked) in enumerate(self.claim(worker)):
                    began = now + place / scene.per_worker
                    starts.append(began)
                    at(began + self.lots.uniform(0.5, 1.5), "end", worker, taken)
                    if asked is not None:
                        edit_waits.append(began - asked)
                    elif taken:
                        last[taken] = began
                        small -= not self.rows[taken]
                if small == 0 and until == math.inf:
                    until = max(last.values())
                at(now + 1, "claim", worker)
        starts.sort()
        level = scene.cells * (scene.small + 1) / scene.limit
        return Seen(list(last.values()), edit_waits, level, starts, until, scene.limit)

    def claim(self, worker: int) -> list[tuple[int, float | None]]:
        """(collection, when it was asked for; None for a sweep's row) of each call that the worker may start."""
        taken: list[tuple[int, float | None]] = []
        for _ in range(TRIES):
            free = self.scene.slots - self.busy[worker]
            slots = min(free, self.scene.per_worker - len(taken))
            if slots <= 0:
                break
            given = self.give_out(slots, min(slots, free - 1))
            if not given:
                break
            for share in given:
                for _ in range(share.urgent):
                    taken.append((share.collection_id, self.edits[share.collection_id].pop(0)))
                found = min(share.swept, self.rows[share.collection_id])
                self.rows[share.collection_id] -= found
                taken += [(share.collection_id, None)] * found
                self.held[share.collection_id] += share.urgent + found
                self.busy[worker] += share.urgent + found
        return taken

    def give_out(self, slots: int, sweep_slots: int) -> list[Share]:
        """What the store does under the claim lock."""
        wanting = {id for id, left in self.rows.items() if left} | {id for id, asked in self.edits.items() if asked}
        lanes = [
            Lane(
                id, "llm", id, min(len(self.edits.get(id, ())), slots + 1), 0, self.rows[id] > 0, 10**6, self.held[id],
                self.held[id],
            )
            for id in wanting
        ]  # fmt: skip
        spaces = {id: Space(1, None, self.held[id], self.held[id]) for id in wanting}
        return shares(lanes, spaces, Offer(slots, sweep_slots, 50_000, sum(self.busy.values())), self.lots.random)


def simulate(scene: Scene) -> Seen:
    return _Simulation(scene, random.Random(scene.seed)).run()
