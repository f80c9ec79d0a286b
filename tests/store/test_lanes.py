"""Which lanes a claim looks at, where a namespace has more of them than one claim walks."""

from cell_engine.fairness import WALKS
from cell_engine.store.claims import Token, claim
from cell_engine.store.database import Connection
from tests.engine import Claimer, Made, make, sheet

LANES = WALKS + 6


def lanes(connection: Connection, cap: int, rows: int) -> list[Made]:
    return [
        make(connection, sheet("a", "b: a", name=f"sheet{number}", cap=cap), rows=[{"a": "x"}] * rows)
        for number in range(LANES)
    ]


def test_lanes_with_little_room_are_all_claimed_from_at_once(connection: Connection) -> None:
    lanes(connection, cap=1, rows=2)
    assert len(Claimer(connection).claim()) == LANES


def test_a_lane_that_can_go_on_is_not_hidden_behind_those_that_cannot(connection: Connection) -> None:
    """They hold least, for their endpoint takes nothing."""
    *others, last = lanes(connection, cap=100, rows=3)
    claimer = Claimer(connection, ["function"])
    bounds = {(one.collection.id, "function"): 0 for one in others}
    for number, expected in ((1, 1), (2, 2)):  # the second time it holds more than any other
        claimed = claim(connection, Token(claimer.id, number), ["function"], expected, expected, {}, bounds)
        assert [one.key.collection_id for one in claimed.visits] == [last.collection.id] * expected
