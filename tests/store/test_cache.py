"""The cache, statement by statement: who calls, who waits, what counts, and what is kept."""

from collections.abc import Sequence

import pytest

from cell_engine.plan import plan
from cell_engine.store.cache import Ask, Told, ask, trim, wake
from cell_engine.store.changes import edit
from cell_engine.store.claims import Reading
from cell_engine.store.database import Connection
from cell_engine.store.demands import RangeScope, dispatch
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import progress
from cell_engine.store.results import Result
from cell_engine.store.upkeep import keep_up
from tests.engine import Claimer, Made, make, sheet, wait_for_lock
from tests.store.conftest import Beside, Opened

KEY = b"k" * 16


@pytest.fixture
def made(connection: Connection) -> Made:
    return make(connection, sheet("a", "b!llm: a"), rows=[{"a": "x"}] * 4)


def asked(claimer: Claimer, made: Made, visits: Sequence[Reading], **fields: object) -> list[Told]:
    """What the cache tells these rows' visits, which all ask for KEY unless told otherwise."""
    common: dict[str, object] = {"fingerprint": KEY, "forced": 0, "ttl": None, "lease": 60.0} | fields
    asks = [Ask(one.key, one.token.claim, made.id("b"), **common) for one in visits]  # type: ignore[arg-type]
    return ask(claimer.connection, claimer.id, asks)


def states(claimer: Claimer, made: Made, visits: Sequence[Reading], **fields: object) -> list[str]:
    return [one.state for one in asked(claimer, made, visits, **fields)]


def answer(claimer: Claimer, made: Made, visit: Reading, signal: int, value: object = "B", **fields: object) -> Result:
    common: dict[str, object] = {
        "fingerprint": KEY, "cache_signal": signal, "model": "m", "tokens_in": 3, "tokens_out": 5, "cost": 7,
    }  # fmt: skip
    steps = plan(visit.row, made.version, visit.asked)
    return claimer.answer(visit, made.id("b"), value, steps, **(common | fields))  # type: ignore[arg-type]


def rows(connection: Connection) -> list[str]:
    """The state of each row's work, in order."""
    return [one.state for one in connection.execute("select state from autofill.work order by row_id")]


def test_of_those_that_ask_for_the_same_one_calls_and_the_others_wait(connection: Connection, made: Made) -> None:
    claimer = Claimer(connection)
    visits = claimer.claim()
    told = asked(claimer, made, visits)
    assert [one.state for one in told] == ["owner", "wait", "wait", "wait"]
    # an answer that got lost is told again
    assert states(claimer, made, visits[::-1]) == ["wait", "wait", "wait", "owner"]
    flushed = claimer.flush([answer(claimer, made, visits[0], told[0].signal)])
    assert flushed.ended == {KEY: True}
    assert asked(claimer, made, visits[1:]) == [Told("hit", told[0].signal, "B", "m", 3, 5, 7)] * 3


def test_that_there_is_no_answer_is_an_answer(connection: Connection, made: Made) -> None:
    claimer = Claimer(connection)
    visits = claimer.claim()
    (told,) = asked(claimer, made, visits[:1])
    claimer.flush([answer(claimer, made, visits[0], told.signal, None)])
    assert asked(claimer, made, visits[1:2]) == [Told("hit", told.signal, None, "m", 3, 5, 7)]


def test_what_was_kept_beside_an_answer_comes_with_it(connection: Connection, made: Made) -> None:
    claimer = Claimer(connection)
    visits = claimer.claim()
    (told,) = asked(claimer, made, visits[:1])
    claimer.flush([answer(claimer, made, visits[0], told.signal, details={"quote": "b"})])
    assert asked(claimer, made, visits[1:2])[0].details == {"quote": "b"}


def test_an_answer_from_the_cache_meets_the_demand_and_is_saved_not_made(connection: Connection, made: Made) -> None:
    claimer = Claimer(connection)
    visits = claimer.claim()
    (told,) = asked(claimer, made, visits[:1])
    claimer.flush([answer(claimer, made, visits[0], told.signal)])
    claimer.flush(
        [
            answer(claimer, made, one, 0, cached=True, cache_signal=None, demanded=told.signal, cost=0, saved_cost=7)
            for one in visits[1:]
        ]
    )
    now = progress(connection, visits[0].dispatch_id)
    assert now is not None
    assert now.outcomes == {"ready": 1, "cached": 3}
    assert now.attempts == {"succeeded": 1}
    assert (now.saved["cached"], now.saved_tokens_in, now.saved_tokens_out) == (3, 9, 15)
    assert (now.tokens_in, now.tokens_out, now.cost, now.saved_cost) == (3, 5, 7, 21)
    assert sorted(one.cost for one in connection.execute("select cost from autofill.cell")) == [0, 0, 0, 7]
    cells = connection.execute("select ai_value, called, model from autofill.cell").fetchall()
    assert [tuple(one) for one in cells] == [("B", visits[0].signal, "m")] * 4
    found = connection.execute("select cached, tokens_in, tokens_out, cost from autofill.saved").fetchone()
    assert found is not None and tuple(found) == (3, 9, 15, 21)


def test_an_error_is_not_kept_and_frees_the_key(connection: Connection, made: Made) -> None:
    claimer = Claimer(connection)
    visits = claimer.claim()
    (told,) = asked(claimer, made, visits[:1])
    failed = answer(claimer, made, visits[0], told.signal, None, error_class="refused", error="no")
    assert claimer.flush([failed]).ended == {KEY: False}
    assert states(claimer, made, visits[1:3]) == ["owner", "wait"]
    assert connection.execute("select count(*) from autofill.cache").fetchone() == (0,)


def test_a_time_to_live_is_the_asking_columns(connection: Connection, made: Made) -> None:
    claimer = Claimer(connection)
    visits = claimer.claim()
    (told,) = asked(claimer, made, visits[:1])
    claimer.flush([answer(claimer, made, visits[0], told.signal)])
    connection.execute("update autofill.cache set computed_at = computed_at - interval '1 hour'")
    assert states(claimer, made, visits[1:2]) == ["hit"]
    assert states(claimer, made, visits[1:2], ttl=3700.0) == ["hit"]
    (told,) = asked(claimer, made, visits[1:2], ttl=3500.0)
    assert told.state == "owner"
    claimer.flush([answer(claimer, made, visits[1], told.signal, "newer")])
    assert [one.value for one in asked(claimer, made, visits[2:3], ttl=3500.0)] == ["newer"]


def test_a_forced_demand_takes_nothing_older_than_itself(connection: Connection, made: Made) -> None:
    claimer = Claimer(connection)
    visits = claimer.claim()
    (told,) = asked(claimer, made, visits[:1])
    claimer.flush([answer(claimer, made, visits[0], told.signal)])
    force = connection.execute("select nextval('autofill.signal')").fetchone()
    assert force is not None
    newer = asked(claimer, made, visits[1:3], forced=force[0])
    assert [one.state for one in newer] == ["owner", "wait"]
    claimer.flush([answer(claimer, made, visits[1], newer[0].signal, "newer")])
    assert [one.value for one in asked(claimer, made, visits[2:3], forced=force[0])] == ["newer"]


def test_a_forced_demand_waits_for_no_call_that_is_older_than_itself(connection: Connection, made: Made) -> None:
    claimer = Claimer(connection)
    visits = claimer.claim()
    (older,) = asked(claimer, made, visits[:1])
    force = connection.execute("select nextval('autofill.signal')").fetchone()
    assert force is not None
    newer = asked(claimer, made, visits[1:3], forced=force[0])
    assert [one.state for one in newer] == ["owner", "wait"]
    # the older call's answer is kept meanwhile, for who takes any, and it is not the end of the newer
    claimer.flush([answer(claimer, made, visits[0], older.signal, "older")])
    assert [one.value for one in asked(claimer, made, visits[2:3])] == ["older"]
    assert states(claimer, made, visits[3:], forced=force[0]) == ["wait"]
    claimer.flush([answer(claimer, made, visits[1], newer[0].signal, "newer")])
    assert [one.value for one in asked(claimer, made, visits[2:])] == ["newer"] * 2


def test_a_call_that_began_earlier_and_comes_later_replaces_no_answer(connection: Connection, made: Made) -> None:
    claimer = Claimer(connection)
    visits = claimer.claim()
    (older,) = asked(claimer, made, visits[:1], lease=0.0)
    connection.execute("select nextval('autofill.signal')")
    (newer,) = asked(claimer, made, visits[1:2])  # the first is past its lease
    assert (older.state, newer.state) == ("owner", "owner")
    claimer.flush([answer(claimer, made, visits[1], newer.signal, "newer")])
    claimer.flush([answer(claimer, made, visits[0], older.signal, "older")])
    assert [one.value for one in asked(claimer, made, visits[2:3])] == ["newer"]


def test_R2_a_losers_answer_is_kept_for_it_was_paid_for(connection: Connection, made: Made) -> None:
    loser = Claimer(connection, lease=0)
    (lost,) = loser.claim(1)
    (told,) = asked(loser, made, [lost])
    keep_up(connection)  # it is taken for dead: its visit has ended, and so has its ownership
    claimer = Claimer(connection)
    visits = claimer.claim()
    (again,) = asked(claimer, made, visits[:1])
    assert again.state == "owner"
    flushed = loser.flush([answer(loser, made, lost, told.signal, "late")])
    assert not flushed.stored[0].won
    assert [one.value for one in asked(claimer, made, visits[1:2])] == ["late"]
    assert states(claimer, made, visits[:1]) == ["hit"]
    assert broken_rules(connection) == {}


def test_two_that_ask_at_once_get_one_call(connection: Connection, made: Made, opened: Opened, beside: Beside) -> None:
    first, second = Claimer(opened("first")), Claimer(opened("second"))
    mine, yours = first.claim(2), second.claim(2)
    with first.connection.transaction():
        assert states(first, made, mine) == ["owner", "wait"]
        waiting = beside(states, second, made, yours)
        wait_for_lock(connection, "autofill second")
    assert waiting.result() == ["wait", "wait"]


def test_an_answer_that_commits_while_its_key_is_taken_is_taken_instead(
    connection: Connection, made: Made, opened: Opened, beside: Beside
) -> None:
    """The second has looked before the first's answer was there, and gets the key when it is."""
    first, second = Claimer(opened("first")), Claimer(opened("second"))
    mine, yours = first.claim(1), second.claim(1)
    (told,) = asked(first, made, mine, lease=0.0)
    with first.connection.transaction():
        first.flush([answer(first, made, mine[0], told.signal)])
        waiting = beside(asked, second, made, yours)
        wait_for_lock(connection, "autofill second")
    assert waiting.result() == [Told("hit", told.signal, "B", "m", 3, 5, 7)]
    assert connection.execute("select count(*) from autofill.cache_owner").fetchone() == (0,)


def test_who_waits_is_due_when_there_is_an_answer(connection: Connection, made: Made) -> None:
    claimer = Claimer(connection)
    visits = claimer.claim()
    told = asked(claimer, made, visits)
    claimer.flush(releases=[claimer.release(one, "delay", seconds=1000.0, awaits=KEY) for one in visits[1:]])
    assert rows(connection) == ["computing", "delayed", "delayed", "delayed"]
    ended = claimer.flush([answer(claimer, made, visits[0], told[0].signal)]).ended
    assert wake(connection, ended) == 3
    assert rows(connection) == ["computing", "queued", "queued", "queued"]
    assert [(one.waits, one.priority, one.attempts) for one in claimer.claim()] == [(1, "retry", {})] * 3


def test_one_of_those_that_wait_is_due_when_the_call_has_failed(connection: Connection, made: Made) -> None:
    claimer = Claimer(connection)
    visits = claimer.claim()
    told = asked(claimer, made, visits)
    claimer.flush(releases=[claimer.release(one, "delay", seconds=1000.0, awaits=KEY) for one in visits[1:]])
    failed = answer(claimer, made, visits[0], told[0].signal, None, error_class="refused", error="no")
    assert wake(connection, claimer.flush([failed]).ended) == 1
    assert sorted(rows(connection)) == ["computing", "delayed", "delayed", "queued"]


def test_a_row_that_rests_for_another_reason_is_not_woken(connection: Connection, made: Made) -> None:
    claimer = Claimer(connection)
    (visit, *_) = claimer.claim(1)
    claimer.flush(releases=[claimer.release(visit, "defer", seconds=1000.0, awaits=KEY)])
    assert wake(connection, {KEY: True}) == 0


def test_who_gives_its_row_back_after_the_call_has_ended_is_due_at_once(connection: Connection, made: Made) -> None:
    claimer = Claimer(connection)
    visits = claimer.claim()
    told = asked(claimer, made, visits)
    assert wake(connection, claimer.flush([answer(claimer, made, visits[0], told[0].signal)]).ended) == 0
    claimer.flush(releases=[claimer.release(visits[1], "delay", seconds=1000.0, awaits=KEY)])
    assert rows(connection)[1] == "queued"


def test_answers_are_kept_by_namespace(connection: Connection, made: Made) -> None:
    other = make(connection, sheet("a", "b!llm: a").replace("namespace: test", "namespace: other"), rows=[{"a": "x"}])
    claimer = Claimer(connection)
    visits = {one.key: one for one in claimer.claim()}
    here = [one for key, one in visits.items() if key.collection_id == made.collection.id]
    there = [one for key, one in visits.items() if key.collection_id == other.collection.id]
    (told,) = asked(claimer, made, here[:1])
    claimer.flush([answer(claimer, made, here[0], told.signal)])
    assert states(claimer, made, here[1:2]) == ["hit"]
    assert states(claimer, other, there) == ["owner"]


def test_answers_that_nobody_may_take_any_more_are_forgotten(connection: Connection, made: Made) -> None:
    connection.execute(
        "insert into autofill.cache (namespace_id, fingerprint, signal, tokens_in, tokens_out, computed_at) "
        "select 1, decode(lpad(to_hex(id), 32, '0'), 'hex'), 1, 1, 1, "
        "    clock_timestamp() - case when id <= 2500 then interval '91 days' else interval '89 days' end "
        "from generate_series(1, 2510) as id"
    )
    claimer = Claimer(connection)
    visits = claimer.claim()
    asked(claimer, made, visits[:1])
    asked(claimer, made, visits[:1], fingerprint=b"o" * 16)
    connection.execute("update autofill.cache_owner set lease = '-2 hours' where fingerprint = %s", [KEY])
    assert trim(connection) == 2500
    assert connection.execute("select count(*) from autofill.cache").fetchone() == (10,)
    owners = connection.execute("select fingerprint from autofill.cache_owner").fetchall()
    assert [one.fingerprint for one in owners] == [b"o" * 16]


@pytest.mark.parametrize("leaving", [False, True], ids=["stored", "released"])
def test_R6_an_answer_from_the_cache_meets_no_force_that_came_while_it_was_asked_for(
    connection: Connection, made: Made, opened: Opened, leaving: bool
) -> None:
    """The force has an older signal than the edit that the visit had planned with, and is newer than the answer."""
    first = Claimer(connection)
    (visit, *_) = first.claim(1)
    (told,) = asked(first, made, [visit])
    first.flush([answer(first, made, visit, told.signal, leaving=True)], [first.release(visit, answered=(2,))])
    first.work_off()
    b, scope = made.id("b"), RangeScope(((2, 2),))
    late = opened("late")
    with late.transaction():
        dispatch(late, made.collection.id, scope, columns=[b], force=True, reason="r", actor="me")
        edit(connection, made.collection.id, 2, {made.id("a"): "edited"}, actor="me")
        (visit,) = first.claim()
        (hit,) = asked(first, made, [visit])
    Claimer(connection).claim()  # the sweep comes to the row
    result = answer(
        first, made, visit, 0, cached=True, cache_signal=None, demanded=hit.signal, leaving=leaving
    )  # fmt: skip
    fresh: Reading | None
    if leaving:
        fresh = first.flush([result], [first.release(visit, answered=(b,))]).released[0].reading
    else:
        first.flush([result])
        fresh = first.reread(visit)
    assert fresh is not None
    assert fresh.asked[b].forced > fresh.row.cells[b].called
    assert [one.forced for one in plan(fresh.row, made.version, fresh.asked).due] == [fresh.asked[b].forced]
