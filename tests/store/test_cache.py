"""The cache, statement by statement: who calls, who waits, what counts, and what is kept."""

from collections.abc import Sequence

import pytest

from cell_engine.plan import plan
from cell_engine.store.cache import Ask, Told, ask, trim, wake
from cell_engine.store.claims import Reading
from cell_engine.store.database import Connection
from tests.engine import Claimer, Made, make, sheet

SHEET = sheet("a", "b!llm: a")
KEY, OTHER = b"k" * 16, b"o" * 16


def asked(claimer: Claimer, visits: Sequence[Reading], column: int, **fields: object) -> list[Told]:
    """What the cache tells these rows' visits, which all ask for KEY unless told otherwise."""
    common: dict[str, object] = {"fingerprint": KEY, "forced": 0, "ttl": None, "lease": 60.0} | fields
    asks = [Ask(one.key, one.token.claim, column, **common) for one in visits]  # type: ignore[arg-type]
    return ask(claimer.connection, claimer.id, asks)


@pytest.fixture
def made(connection: Connection) -> Made:
    return make(connection, SHEET, rows=[{"a": "x"}] * 4)


def test_of_those_that_ask_for_the_same_one_calls_and_the_others_wait(connection: Connection, made: Made) -> None:
    claimer = Claimer(connection)
    visits = claimer.claim()
    b = made.id("b")
    told = asked(claimer, visits, b)
    assert [one.state for one in told] == ["owner", "wait", "wait", "wait"]
    # an answer that got lost is told again
    assert [one.state for one in asked(claimer, visits[::-1], b)] == ["wait", "wait", "wait", "owner"]
    result = claimer.answer(
        visits[0], b, "B", plan(visits[0].row, made.version, {}), fingerprint=KEY, cache_signal=told[0].signal,
        model="m", tokens_in=3, tokens_out=5,
    )  # fmt: skip
    flushed = claimer.flush([result])
    assert flushed.ended == {KEY: True}
    assert asked(claimer, visits[1:], b) == [Told("hit", 0, "B", "m", 3, 5)] * 3
    assert wake(connection, flushed.ended) == 0
    assert trim(connection) == 0
