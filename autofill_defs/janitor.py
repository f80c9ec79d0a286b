"""The janitor as a sensor: it gives back what dead workers held, and ends what is over."""

import dagster as dg

from autofill_defs.engine import engine
from cell_engine.store.budgets import enforce_all
from cell_engine.store.upkeep import is_alone, keep_up, vacuum_work
from cell_engine.store.usage import ROLL_BATCH, roll_up

_JANITOR_EVERY = 30
_JANITOR_STATEMENT_TIMEOUT = 20.0


@dg.sensor(
    minimum_interval_seconds=_JANITOR_EVERY,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Gives the work of dead workers to others and ends dispatches that are over. `autofill janitor` does "
    "the same in a process of its own; several at once are safe.",
)
def janitor() -> dg.SkipReason:
    with (
        engine("dagster janitor lock", _JANITOR_STATEMENT_TIMEOUT) as guard,
        engine("dagster janitor", _JANITOR_STATEMENT_TIMEOUT) as connection,
        guard.transaction(),
    ):
        # Rounds that outlast their tick must not pile up.
        if not is_alone(guard, "autofill.janitor.sensor"):
            return dg.SkipReason("another round is under way")
        done = keep_up(connection)
        vacuum_work(connection)
        enforce_all(connection)
        while roll_up(connection) == ROLL_BATCH:
            pass
    return dg.SkipReason(
        f"workers ended: {done.workers}, visits given back: {done.visits}, dispatches ended: {done.dispatches}"
    )
