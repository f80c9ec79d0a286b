"""Mechanic 4: everything takes its locks in one order, so that nothing ever deadlocks, whoever meets whom."""

import random
from collections.abc import Callable
from contextlib import suppress

from cell_engine.errors import AutofillError
from cell_engine.plan import plan
from cell_engine.specs.compile import compile_text
from cell_engine.store import control
from cell_engine.store.applying import apply
from cell_engine.store.changes import edit, reset
from cell_engine.store.claims import WorkerEndedError, mark, recover, reread
from cell_engine.store.collections import load_version
from cell_engine.store.database import Connection, connect
from cell_engine.store.demands import RangeScope, RowScope, dispatch
from cell_engine.store.models import broken_rules
from cell_engine.store.results import Release, Result
from cell_engine.store.upkeep import keep_up
from tests.engine import Claimer, Made, make, sheet
from tests.store.conftest import Beside

SPECS = [sheet("a", "k", f"b@{number}: a", "c: b k?", "n/never: b", cap=30) for number in (1, 2)]
ROWS = 12
ROUNDS = 60

Step = Callable[[Connection, Made, random.Random], None]


def some_rows(lots: random.Random) -> list[int]:
    return lots.sample(range(1, ROWS + 1), lots.randint(1, 6))


def people(connection: Connection, made: Made, lots: random.Random) -> None:
    collection, row = made.collection.id, lots.randint(1, ROWS)
    match lots.randrange(5):
        case 0:
            reset(connection, collection, row, [made.id(lots.choice("ab"))], actor="me")
        case 1:
            scope = RowScope(tuple(some_rows(lots)))
            columns = [made.id("n")] if lots.random() < 0.5 else []
            dispatch(connection, collection, scope, columns=columns, force=bool(columns), reason="r", actor="me")
        case 2:
            dispatch(connection, collection, RangeScope(((1, ROWS),)), columns=[made.id("b")], reason="r", actor="me")
        case _:
            edit(connection, collection, row, {made.id(lots.choice("akb")): str(lots.random())}, actor="me")


def operators(connection: Connection, made: Made, lots: random.Random) -> None:
    keep_up(connection)
    apply(connection, compile_text(lots.choice(SPECS)), actor="me")
    found = connection.execute("select id from autofill.dispatch where ended_at is null order by random()").fetchone()
    if found is not None:
        lots.choice([control.cancel, control.pause, control.resume, control.resume])(connection, found.id)


def worker(connection: Connection, made: Made, lots: random.Random) -> None:
    """One life of a worker: it claims, visits side by side, and ends well, or is taken for dead."""
    claimer = Claimer(connection, lease=lots.choice([0, 60, 60]))
    claim_number = 0
    for _ in range(3):
        claim_number += 1
        visits = claimer.claim(slots=lots.randint(1, 8))
        if lots.random() < 0.1:
            recover(connection, claimer.id, claim_number)
            continue
        identities = [(one.key, one.token.claim) for one in visits]
        mark(connection, claimer.id, {one: [made.id("b")] for one in identities})
        results: list[Result] = []
        releases: list[Release] = []
        for one in reread(connection, claimer.id, lots.sample(identities, len(identities))):
            version = load_version(connection, one.key.collection_id, one.version)
            steps = plan(one.row, version, one.asked)
            results += claimer.found(one, steps)
            results += [claimer.answer(one, due.column.id, str(lots.random()), steps) for due in steps.due]
            releases.append(claimer.release(one, "hand_back" if steps.due else "done"))
        lots.shuffle(releases)
        claimer.flush(results, releases)


def test_mechanic_4_nothing_deadlocks(connection: Connection, database: str, beside: Beside) -> None:
    made = make(connection, SPECS[0], rows=[{"a": "x", "k": "y"}] * ROWS)

    def repeat(step: Step, number: int) -> None:
        lots = random.Random(number)
        with connect(database, application=f"{step.__name__} {number}", statement_timeout=30) as mine:
            for _ in range(ROUNDS):
                # There may be nothing to reset or resume, and a worker may be taken for dead.
                with suppress(AutofillError, WorkerEndedError):
                    step(mine, made, lots)

    steps: list[Step] = [people, people, people, operators, worker, worker, worker]
    for one in [beside(repeat, step, number) for number, step in enumerate(steps)]:
        one.result()  # a deadlock raises psycopg.errors.DeadlockDetected here
    # Those who did not lose count as well: the server's own number, which backends report as they end.
    found = connection.execute("select deadlocks from pg_stat_database where datname = current_database()").fetchone()
    assert found == (0,)
    assert broken_rules(connection) == {}
    for one in connection.execute("select id from autofill.dispatch where paused_at is not null and ended_at is null"):
        control.resume(connection, one.id)
    connection.execute("update autofill.worker set lease = '0 s' where ended_at is null")
    keep_up(connection)
    Claimer(connection).work_off()
    keep_up(connection)
    assert connection.execute("select work::text from autofill.work").fetchall() == []
    assert connection.execute("select id, reason from autofill.dispatch where ended_at is null").fetchall() == []
