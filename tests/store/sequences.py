"""Runs of the state machine: so many random sequences of steps from one seed, over one real database."""

from contextlib import ExitStack

import hypothesis
from hypothesis.stateful import run_state_machine_as_test

from cell_engine.store.database import Connection, connect
from tests.store.machine import Machine
from tests.store.world import Connections

SEQUENCES = 50
"""How many a run makes: a seed repeats only a run of the same length."""

STEPS = 32


def run_sequences(url: str, seed: int, *, shrink: bool = False) -> None:
    """Raises what the first failing sequence raised, its steps in the notes. `shrink` looks for a shorter one first,
    which takes minutes.

    A step waits for locks by the clock: on a machine so busy that one which is free outlasts it, a sequence is not the
    same twice, and is no finding. So such a run is made once more; twice is one.
    """
    try:
        _run(url, seed, shrink)
    except hypothesis.errors.FlakyStrategyDefinition as error:
        print(f"seed {seed} once more: {str(error).splitlines()[0]}")
        _run(url, seed, shrink)


def _run(url: str, seed: int, shrink: bool) -> None:
    phases = [hypothesis.Phase.generate, *([hypothesis.Phase.shrink] if shrink else [])]
    with ExitStack() as stack:

        def opened(name: str) -> Connection:
            connection = stack.enter_context(connect(url, application=name, statement_timeout=30))
            connection.execute("set lock_timeout = '250ms'; set synchronous_commit = off")
            return connection

        class Here(Machine):
            connections = Connections(
                opened("control"),
                [opened(f"editor {number}") for number in range(2)],
                [opened(f"claiming {number}") for number in range(3)],
                [opened(f"storing {number}") for number in range(3)],
            )

        run_state_machine_as_test(
            hypothesis.seed(seed)(Here),
            settings=hypothesis.settings(
                max_examples=SEQUENCES,
                stateful_step_count=STEPS,
                deadline=None,
                database=None,
                print_blob=True,
                phases=phases,
                suppress_health_check=list(hypothesis.HealthCheck),
            ),
        )
