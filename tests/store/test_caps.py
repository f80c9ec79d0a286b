"""R4: no claim takes slots in flight above the cap in force, under any number of claimers and pools."""

import random
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import psycopg
import pytest

from cell_engine.store.claims import Token, claim, widen
from cell_engine.store.database import Connection, connect
from cell_engine.store.demands import RangeScope, RowScope, dispatch
from cell_engine.store.limits import set_limits
from cell_engine.store.models import broken_rules
from tests.engine import Claimer, Made, make, sheet
from tests.store.conftest import Beside

CAP = 10
CLAIMERS = 8
ROWS = 400

# The sums that the rule is about, taken at every commit of those that give out slots: the claim lock is still held
# then, so no other commit comes in between.
SAMPLE = """
create table seen (namespace_id int, collection_id int, held int not null);
create function sample() returns trigger language plpgsql as $$
begin
    insert into seen
    select namespace_id, collection_id, sum(held) from autofill.slot
    join autofill.collection on collection.id = collection_id
    group by grouping sets ((), namespace_id, collection_id);
    return null;
end $$;
create constraint trigger sample after insert or update on autofill.slot
    deferrable initially deferred for each row execute function sample();
"""
MOST = """
select namespace_id, collection_id, max(held) as held from seen
where held is not null group by namespace_id, collection_id
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


def ask(connection: Connection, made: Made, rows: int) -> None:
    """Sweeps of two pools over most of the rows, and an edit's demand for each of the others."""
    columns = {"function": [made.id("f")], "llm": [made.id("m")]}
    third = rows * 3 // 8
    for first, last, pool in ((1, third, "function"), (third + 1, 2 * third, "llm")):
        whole = RangeScope(((first, last),))
        dispatch(connection, made.collection.id, whole, columns=columns[pool], reason="r", actor="m")
    for row in range(2 * third + 1, rows + 1):
        asked = columns["llm" if row % 2 else "function"]
        dispatch(connection, made.collection.id, RowScope((row,)), columns=asked, reason="r", actor="m")


def claim_all(database: str, beside: Beside, rows: int) -> InHand:
    """Eight claimers of two pools until nothing is left."""
    in_hand = InHand()
    pools = (["function"], ["llm"], ["function", "llm"])
    working = [beside(work, database, number, pools[number % 3], in_hand) for number in range(CLAIMERS)]
    assert sum(one.result() for one in working) >= rows
    return in_hand


def test_R4_eight_claimers_of_two_pools_never_go_above_the_cap(
    connection: Connection, database: str, beside: Beside
) -> None:
    spec = sheet("a", "f: a", "m!llm: a", cap=CAP)
    made = make(connection, spec, rows=[{"a": "x"}] * ROWS, demand=False)
    connection.execute(SAMPLE)
    ask(connection, made, ROWS)
    in_hand = claim_all(database, beside, ROWS)
    highest = connection.execute("select max(held) as held from seen").fetchone()
    assert highest is not None
    assert highest.held <= CAP
    assert in_hand.most <= CAP
    assert highest.held == CAP, "the cap was never reached: this test has seen nothing"
    assert broken_rules(connection) == {}


def test_R4_nor_above_those_of_a_namespace_and_of_everything(
    connection: Connection, database: str, beside: Beside
) -> None:
    """Two collections in one namespace, and one in another; no cap is the sum of those below it."""
    caps = {"test/one": 8, "test/two": 8, "other/three": 8, "test": 11, None: 15}
    rows = ROWS // 4
    for name in ("test/one", "test/two", "other/three"):
        namespace, _, collection = name.partition("/")
        spec = sheet("a", "f: a", "m!llm: a", name=collection).replace("namespace: test", f"namespace: {namespace}")
        made = make(connection, spec, rows=[{"a": "x"}] * rows, demand=False)
        ask(connection, made, rows)
    for scope, cap in caps.items():
        set_limits(connection, scope, {"cap": cap})
    connection.execute(SAMPLE)
    in_hand = claim_all(database, beside, 3 * rows)
    for one in connection.execute(MOST).fetchall():
        cap = 15 if one.namespace_id is None and one.collection_id is None else 11 if one.collection_id is None else 8
        assert one.held <= cap, one
    most = {one.held for one in connection.execute(MOST)}
    assert {8, 11, 15} <= most, f"a cap was never reached: this test has seen nothing of it: {most}"
    assert in_hand.most <= 15
    assert broken_rules(connection) == {}


def test_a_changed_cap_holds_from_the_next_claim_on(connection: Connection) -> None:
    make(connection, sheet("a", "b: a"), rows=[{"a": "x"}] * 100)
    claimer = Claimer(connection)
    held = 0
    for scope, cap, most in (
        ("test", 10, 9), ("test/sheet", 5, 9), ("test/sheet", 40, 9), ("test", 30, 29), (None, 20, 29), (None, 39, 29),
        ("test", 50, 38), ("test", None, 38), (None, None, 38), ("test/sheet", 60, 57),
    ):  # fmt: skip
        set_limits(connection, scope, {"cap": cap})
        held += len(claimer.claim())
        assert held == most, (scope, cap)


def test_a_spec_without_a_cap_leaves_the_one_that_is_set(connection: Connection) -> None:
    make(connection, sheet("a", "b: a"))
    set_limits(connection, "test/sheet", {"cap": 7})
    assert make(connection, sheet("a", "b@2: a")).collection.cap == 7
    assert make(connection, sheet("a", "b: a", cap=9)).collection.cap == 9


def test_a_namespace_of_three_times_the_weight_gets_three_times_the_slots(connection: Connection) -> None:
    for namespace in ("test", "other"):
        spec = sheet("a", "b: a").replace("namespace: test", f"namespace: {namespace}")
        make(connection, spec, rows=[{"a": "x"}] * 200)
    set_limits(connection, "other", {"weight": 3})
    set_limits(connection, None, {"cap": 84})  # sweeps leave four
    visits = Counter(visit.key.collection_id for visit in Claimer(connection).claim())
    assert sorted(visits.values()) == [20, 60]


def test_more_is_bounded_by_lane(connection: Connection) -> None:
    ids = [
        make(connection, sheet("a", f"{'b: a' if number else 'b!llm: a'}", name=f"s{number}"), rows=[{"a": "x"}] * 9)
        for number in range(2)
    ]
    claimer = Claimer(connection)
    bounds = {(ids[0].collection.id, "llm"): 3}
    token = Token(claimer.id, 1)
    claimed = claim(connection, token, claimer.job_types, 50, 50, {}, bounds, 5)
    assert Counter(visit.job_type for visit in claimed.visits) == {"llm": 3, "function": 5}


def test_sweeps_go_on_below_a_flood_of_edits(connection: Connection) -> None:
    """Every slot that comes free is wanted by edits: a twentieth of them goes to the sweep all the same."""
    made = make(connection, sheet("a", "b: a", cap=4), rows=[{"a": "x"}] * 600, demand=False)
    dispatch(connection, made.collection.id, RangeScope(((1, 300),)), reason="reprocess", actor="me")
    edits = RowScope(tuple(range(301, 601)))
    dispatch(connection, made.collection.id, edits, columns=[made.id("b")], reason="one by one", actor="me")
    claimer = Claimer(connection)
    seen: Counter[str] = Counter()
    while sum(seen.values()) < 280:
        visits = claimer.claim(slots=2)
        seen.update(visit.priority for visit in visits)
        claimer.flush(releases=[claimer.release(visit) for visit in visits])
    assert seen["edit"] > 200
    assert seen["sweep"] > 0


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
