"""A few kill rounds, and an outage; `make soak` runs such rounds for as long as told."""

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from cell_engine.embedded import ensure
from cell_engine.store import claims
from cell_engine.store.database import Connection, connect
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import recent_dispatches
from cell_engine.store.upkeep import keep_up
from cell_engine.worker import loop
from tests import functions
from tests.embedded.helpers import kill_server
from tests.engine import eventually, make, own_database, own_home, running_worker
from tests.soak.kills import kill_round

ROUNDS = 3
SEED = os.environ.get("AUTOFILL_TEST_SEED")
LEASE = 3.0
HELD = """
namespace: test
name: held
columns:
  - {name: a, type: text}
  - {name: b, type: text, kind: function, deps: [a], function: {name: "tests.functions:held"}}
"""


@pytest.fixture
def home() -> Iterator[Path]:
    with own_home() as home:
        yield home


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", range(ROUNDS if SEED is None else 1))
def test_R2_R6_R8_workers_and_servers_killed_at_random_lose_nothing_and_bill_nothing_twice(
    home: Path, number: int
) -> None:
    seed = random.randrange(2**32) if SEED is None else int(SEED)
    print(f"AUTOFILL_TEST_SEED={seed}")
    print(kill_round(home, seed))


def test_mechanic_16_an_outage_longer_than_the_lease_bills_nothing_twice(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = threading.Event()

    def beat_unless_away(connection: Connection, worker_id: UUID) -> None:
        if away.is_set():
            raise psycopg.OperationalError("the janitor comes before the worker's first beat")
        claims.beat(connection, worker_id)

    monkeypatch.setattr(loop, "beat", beat_unless_away)
    functions.HOLD.clear()
    try:
        with own_database(home, "outage") as url, running_worker(url, lease=LEASE):
            with connect(url, application="test") as connection:
                made = make(connection, HELD, rows=[{"a": f"x{row}"} for row in range(5)])
                eventually(connection, "select count(*) = 5 from autofill.work where computing is not null")
                connection.execute("checkpoint")  # claims commit asynchronously: a crash may undo the last ones
            away.set()
            kill_server(ensure(home))
            time.sleep(LEASE + 1)
            functions.HOLD.set()  # the answers come while nobody takes them
            ensure(home)
            with connect(url, application="test") as connection:
                assert keep_up(connection).workers == 0
                away.clear()
                eventually(connection, "select not exists (select from autofill.dispatch where ended_at is null)")
                (load,) = recent_dispatches(connection, made.collection.id)
                assert (load.outcomes, load.attempts) == ({"ready": 5}, {"succeeded": 5})
                assert broken_rules(connection) == {}
    finally:
        functions.HOLD.set()
