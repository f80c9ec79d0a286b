"""A provider at its worst: every cell ends right or in its true class, and no call is made without need."""

import pytest

from cell_engine.store.database import Connection
from tests.engine import offline_model
from tests.worker.storm import ATTEMPTS, SLOTS, weather

ROWS = 1_000

ATTEMPTS_OF_CLASS = """
    select coalesce(sum(cardinality(row_ids)), 0)::int as calls from autofill.attempt where error_class = %s
"""
TRANSIENT_ERRORS = """
    select row_id from autofill.cell where error_class = 'transient' and row_id not in (
        select unnest(row_ids) from autofill.attempt where error_class = 'transient'
        group by 1 having count(*) = %s)
"""


def test_every_cell_ends_right_or_in_its_true_class_and_nothing_is_called_without_need(
    connection: Connection, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with offline_model(monkeypatch) as model:
        storm = weather(connection, database, model, ROWS, seconds=120)
    assert storm.wrong == []
    assert set(storm.errors) <= {"truncated", "transient"}
    assert storm.errors["truncated"] == storm.fates["truncated"]
    assert storm.turned_away <= SLOTS
    assert storm.fates["answered"] + storm.fates["truncated"] == ROWS - storm.errors["transient"]  # paid for once
    # A rate limit costs no attempt: who ends in error has had all of its own.
    assert connection.execute(TRANSIENT_ERRORS, [ATTEMPTS]).fetchall() == []
    for error_class, fate in (("rate_limited", "rate_limited"), ("quota", "quota_exhausted")):
        booked = connection.execute(ATTEMPTS_OF_CLASS, [error_class]).fetchone()
        assert booked is not None and booked.calls == storm.fates[fate]
