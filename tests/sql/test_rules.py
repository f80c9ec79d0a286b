"""Each SQL test finds what it is there for: a violation made on purpose."""

import pytest

from cell_engine.store.database import Connection
from cell_engine.store.models import broken_rules, rule_names
from tests.engine import Claimer, make

VIOLATIONS = {
    "inputs_never_read_ahead": "update autofill.cell set read_change = 1000000",
    "r2_computing_work_has_a_live_token": "update autofill.work set worker_id = gen_random_uuid()",
    "r4_slots_cover_visits": "update autofill.slot set held = 0",
    "r5_machine_cells_have_no_person": "update autofill.cell set user_set = true",
    "r5_unaccepted_answers_are_not_shown": "update autofill.cell set held = '{}'",
    "r7_closed_sweeps_have_no_holes": "insert into autofill.sweep_hole select id, 1 from autofill.sweep",
    "r7_ended_dispatches_own_nothing": "update autofill.dispatch set ended_at = clock_timestamp()",
}


@pytest.fixture
def in_flight(connection: Connection) -> Connection:
    """A collection with answers, and a row in flight."""
    made = make(connection, rows=[{"a": "x"}])
    Claimer(connection).work_off()
    make(connection, rows=[{"a": "y"}], key="second")
    assert len(Claimer(connection).claim()) == 1
    assert made.batch is not None
    assert broken_rules(connection) == {}
    return connection


def test_every_rule_has_a_violation_here() -> None:
    assert sorted(VIOLATIONS) == rule_names()


@pytest.mark.parametrize("rule", sorted(VIOLATIONS))
def test_a_violation_is_found(in_flight: Connection, rule: str) -> None:
    in_flight.execute(VIOLATIONS[rule].encode())
    assert rule in broken_rules(in_flight)
