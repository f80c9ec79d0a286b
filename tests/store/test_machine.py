"""The state machine of `machine.py`, some sequences of it at every run. `make soak` goes on for as long as told.

AUTOFILL_TEST_SEED repeats a run that failed, and looks for a shorter sequence that fails.
"""

import os
import random

import pytest

from tests.store.sequences import run_sequences

RUNS = 6  # of 50 sequences each; several, so that parallel processes divide them among themselves
SEED = os.environ.get("AUTOFILL_TEST_SEED")
SEEDS = range(RUNS) if SEED is None else [int(SEED)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("run", SEEDS)
def test_R1_to_R8_in_any_order_of_steps(database: str, run: int) -> None:
    seed = random.randrange(2**32) if SEED is None else run
    print(f"AUTOFILL_TEST_SEED={seed}")
    run_sequences(database, seed, shrink=SEED is not None)
