"""A kind that costs nothing, so that what is measured is the queue: each call answers one of a thousand texts.

Importing this module registers it, in the process that compiles the collections and in each worker.
"""

import asyncio
import json
import random
import time
from itertools import count
from multiprocessing.queues import SimpleQueue
from string import ascii_lowercase

from cell_engine.kinds import registry
from cell_engine.kinds.base import Answer, Call, Outcome
from cell_engine.specs.settings_models import SETTINGS_MODELS, KindSettings
from cell_engine.specs.version import Column

JOB_TYPE = "noop"
SLOW_JOB_TYPE = "slow_noop"
"""The same, for another pool."""

EDITED = "edited "
"""How a value begins whose call is reported."""


class NoopSettings(KindSettings):
    seconds: float = 0.0


class NoopKind:
    """Answers after `seconds`. Reports calls for edited values: (what it read, the monotonic time it started)."""

    name = JOB_TYPE
    started: "SimpleQueue[tuple[str, float]] | None" = None

    def __init__(self) -> None:
        self._texts = texts()
        self._numbers = count(random.randrange(len(self._texts)))

    def check(self, column: Column) -> None:
        """Anything goes."""

    def at_once(self, call: Call) -> Outcome | None:
        if call.column.settings["seconds"] or self.started is not None:
            return None
        return Answer(self._texts[next(self._numbers) % len(self._texts)])

    def provider(self, column: Column) -> None:
        """Nobody's."""

    async def compute(self, call: Call) -> Outcome:
        if self.started is not None:
            for value in call.inputs.values():
                if isinstance(value, str) and value.startswith(EDITED):
                    self.started.put((value, time.monotonic()))
        seconds = call.column.settings["seconds"]
        if isinstance(seconds, float) and seconds:
            await asyncio.sleep(seconds)
        return Answer(self._texts[next(self._numbers) % len(self._texts)])

    async def close(self) -> None:
        """Nothing is held."""


def texts() -> list[str]:
    """A prime number of texts of about 300 bytes, from a vocabulary large enough not to flatter compression."""
    rng = random.Random(1)
    words = ["".join(rng.choices(ascii_lowercase, k=rng.randint(2, 10))) for _ in range(5_000)]
    return [" ".join(rng.choices(words, k=60))[: 300 - len(json.dumps(""))] for _ in range(1_009)]


class SlowNoopKind(NoopKind):
    name = SLOW_JOB_TYPE


for kind in (NoopKind, SlowNoopKind):
    registry._KINDS[kind.name] = kind
    SETTINGS_MODELS[kind.name] = NoopSettings
