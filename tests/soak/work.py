"""`python -m tests.soak.work URL`: a worker of a kill round, with a short lease and a short brake for storms."""

import asyncio
import sys

from cell_engine.log import configure_logging
from cell_engine.worker import loop, rest, run_worker

SLOTS = 8
LEASE = 4.0
"""Seconds. A worker that a busy machine keeps from its heart for so long is rightly taken for dead."""


if __name__ == "__main__":
    configure_logging(verbose=False, json=False)
    rest.STORM_SECONDS = loop.STORM_SECONDS = 0.5
    asyncio.run(run_worker(sys.argv[1], slots=SLOTS, lease=LEASE, stop=asyncio.Event()))
