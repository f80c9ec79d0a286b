"""20,000 cells through a provider that limits, fails, breaks off, lies and runs out of money: the calls it took."""

from collections.abc import Iterator

import pytest

from cell_engine.embedded.server import Server
from cell_engine.store.database import connect
from tests.benchmarks.bench import Figure, migrated, note
from tests.engine import offline_model
from tests.worker.storm import SLOTS, weather

ROWS = 20_000


def figures(server: Server) -> Iterator[Figure]:
    url = migrated(server, "faults")
    with (
        connect(url, application="benchmark") as connection,
        pytest.MonkeyPatch.context() as patch,
        offline_model(patch) as model,
    ):
        storm = weather(connection, url, model, ROWS, seconds=900)
    assert not storm.wrong and set(storm.errors) <= {"truncated", "transient"}, storm
    assert storm.errors["truncated"] == storm.fates["truncated"] and storm.turned_away <= SLOTS, storm
    note(f"{dict(storm.fates)}; in error: {dict(storm.errors)}; turned away at the quota: {storm.turned_away}")
    yield Figure("calls made to calls needed, with faults", [storm.waste], "ratio", 1.10, at_most=True)
