"""`python -m tests.soak SECONDS`: the state machine with fresh seeds, and kill rounds between, for so long.

Exits with 1 at the first failure, having printed how to repeat it; with 0 when the time is over, and at Ctrl-C too:
what ran until then held.
"""

import argparse
import logging
import random
import sys
import time
import traceback
from collections.abc import Callable

import structlog

from tests.engine import own_database, own_home
from tests.soak.kills import kill_round
from tests.store.sequences import SEQUENCES, run_sequences


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak ARGS=SECONDS", description=__doc__)
    parser.add_argument("seconds", type=float)
    seconds: float = parser.parse_args().seconds
    # Warnings that the database is away are what a kill round is about.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    began = time.monotonic()
    done = {"sequences": 0, "kill rounds": 0}
    try:
        with own_home() as home:

            def sequences(seed: int) -> str:
                with own_database(home, f"sequences_{seed}") as url:
                    run_sequences(url, seed)
                return f"{SEQUENCES} sequences"

            while time.monotonic() - began < seconds:
                _one("tests/store/test_machine.py", sequences)
                done["sequences"] += SEQUENCES
                _one("tests/soak/test_kills.py", lambda seed: kill_round(home, seed))
                done["kill rounds"] += 1
    except KeyboardInterrupt:
        print("stopped", flush=True)
    except Failed:
        return 1
    print(f"{done['sequences']} sequences and {done['kill rounds']} kill rounds, nothing found")
    return 0


class Failed(Exception):
    """Told already."""


def _one(test: str, run: Callable[[int], object]) -> None:
    seed = random.randrange(2**32)
    print(f"{time.strftime('%X')} seed {seed}: ", end="", flush=True)
    try:
        print(run(seed), flush=True)
    except Exception as error:
        traceback.print_exc()
        print(f"FAILED. To repeat it: AUTOFILL_TEST_SEED={seed} python -m pytest {test}", flush=True)
        raise Failed from error


if __name__ == "__main__":
    sys.exit(main())
