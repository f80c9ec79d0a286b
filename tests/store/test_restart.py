"""Mechanic 16: an outage of the server, however long, takes no worker's work away."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cell_engine.embedded import ensure, stop
from cell_engine.embedded.server import Server
from cell_engine.store.database import connect
from cell_engine.store.migrating import migrate
from cell_engine.store.upkeep import keep_up
from tests.engine import Claimer, make, own_home

AN_HOUR = 3600.0


@pytest.fixture
def home() -> Iterator[Path]:
    with own_home() as home:
        yield home


def test_mechanic_16_a_lease_counts_from_the_servers_start_at_the_earliest(home: Path) -> None:
    def url(server: Server) -> str:
        return server.dsn("postgres")

    server = ensure(home)
    migrate(url(server))
    with connect(url(server), application="before") as connection:
        make(connection, rows=[{"a": "x"}])
        claimer = Claimer(connection, lease=AN_HOUR)
        (visit,) = claimer.claim()
        # The last beat that got through is two hours old: for so long will the server have been away.
        connection.execute("update autofill.worker set beat_at = clock_timestamp() - interval '2 hours'")
    stop(home)
    with connect(url(ensure(home)), application="after") as connection:
        assert keep_up(connection).workers == 0
        # Its answers are still wanted.
        claimer.connection = connection
        assert claimer.visit(visit) == ["b", "c"]
        assert connection.execute("select outcome from autofill.attempt group by outcome").fetchall() == [
            ("succeeded",)
        ]
        # One that is silent for its lease from then on has died, restart or not.
        connection.execute("update autofill.worker set lease = '0 s'")
        assert keep_up(connection).workers == 1
