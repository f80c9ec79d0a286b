"""R4: no claim takes slots in flight above the cap in force, under any number of claimers and pools."""

import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import psycopg
import pytest

from cell_engine.store.claims import widen
from cell_engine.store.database import Connection, connect
from cell_engine.store.demands import RangeScope, RowScope, dispatch
from cell_engine.store.models import broken_rules
from tests.engine import Claimer, make, sheet
from tests.store.conftest import Beside

CAP = 10
CLAIMERS = 8
ROWS = 400

# The sum that the rule is about, taken at every commit of those that give out slots: the claim lock is still held then,
# so no other commit comes in between.
SAMPLE = """
create table seen (held int not null);
create function sample() returns trigger language plpgsql as $$
begin
    insert into seen select coalesce(sum(held), 0) from autofill.slot;
    return null;
end $$;
create constraint trigger sample after insert or update on autofill.slot
    deferrable initially deferred for each row execute function sample();
"""


@dataclass
class InHand:
    """Slots that the claimers have, as they know it: from the claim's return until the release is sent."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    now: int = 0
    most: int = 0

    def add(self, slots: int) -> None:
        with self.lock:
            self.now += slots
            self.most = max(self.most, self.now)


def work(database: str, number: int, job_types: Sequence[str], in_hand: InHand) -> int:
    """Claim, widen and release at random until nothing is left; returns the rows it has visited."""
    lots = random.Random(number)
    visited = idle = 0
    with connect(database, application=f"claimer {number}", statement_timeout=30) as connection:
        claimer = Claimer(connection, job_types)
        while idle < 20:
            visits = claimer.claim(slots=lots.randint(1, 6))
            in_hand.add(len(visits))
            idle = 0 if visits else idle + 1
            if not visits:
                threading.Event().wait(0.01)  # caps are full, or the lanes are dry: as a worker does
            more = widen(connection, claimer.id, [(visit.key, visit.token.claim) for visit in visits[:2]])
            in_hand.add(len(more))
            lots.shuffle(visits)
            for visit in visits:
                in_hand.add(-1 - ((visit.key, visit.token.claim) in more))
                claimer.flush(releases=[claimer.release(visit)])
            visited += len(visits)
    return visited


def test_R4_eight_claimers_of_two_pools_never_go_above_the_cap(
    connection: Connection, database: str, beside: Beside
) -> None:
    spec = sheet("a", "f: a", "m!llm: a", cap=CAP)
    made = make(connection, spec, rows=[{"a": "x"}] * ROWS, demand=False)
    connection.execute(SAMPLE)
    columns = {"function": [made.id("f")], "llm": [made.id("m")]}
    dispatch(
        connection, made.collection.id, RangeScope(((1, 150),)), columns=columns["function"], reason="r", actor="m"
    )
    dispatch(connection, made.collection.id, RangeScope(((151, 300),)), columns=columns["llm"], reason="r", actor="m")
    for row in range(301, ROWS + 1):
        asked = columns["llm" if row % 2 else "function"]
        dispatch(connection, made.collection.id, RowScope((row,)), columns=asked, reason="r", actor="m")
    in_hand = InHand()
    pools = (["function"], ["llm"], ["function", "llm"])
    working = [beside(work, database, number, pools[number % 3], in_hand) for number in range(CLAIMERS)]
    assert sum(one.result() for one in working) >= ROWS
    highest = connection.execute("select max(held), count(*) from seen").fetchone()
    assert highest is not None
    assert highest.max <= CAP
    assert in_hand.most <= CAP
    assert highest.max == CAP, "the cap was never reached: this test has seen nothing"
    assert broken_rules(connection) == {}


def test_R4_a_lower_cap_holds_from_the_next_claim_on(connection: Connection) -> None:
    make(connection, sheet("a", "b: a", cap=8), rows=[{"a": "x"}] * 20)
    claimer, other = Claimer(connection), Claimer(connection)
    first = claimer.claim()
    assert len(first) == 7  # a sweep leaves one to edits
    make(connection, sheet("a", "b: a", cap=4))
    assert other.claim() == []
    claimer.flush(releases=[claimer.release(visit) for visit in first[:5]])
    claimer.claim(slots=1)  # gives back what came free
    held = connection.execute("select sum(held) as held from autofill.slot").fetchone()
    assert held is not None
    assert held.held <= 4


def test_R4_held_slots_are_never_fewer_than_none(connection: Connection) -> None:
    make(connection, rows=[{"a": "x"}])
    Claimer(connection).claim()
    with pytest.raises(psycopg.errors.CheckViolation):
        connection.execute("update autofill.slot set held = held - 2")
