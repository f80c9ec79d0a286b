"""Mechanic 7 and R8: what applying a version sets off."""

from concurrent.futures import Future

from cell_engine.specs.compile import compile_text
from cell_engine.store.applying import Applied, apply
from cell_engine.store.database import Connection
from cell_engine.store.demands import RangeScope, dispatch
from tests.engine import Claimer, make, sheet, wait_for_lock
from tests.store.conftest import Beside, Opened


def test_R8_a_column_that_turns_on_change_is_brought_up_to_date(connection: Connection) -> None:
    make(connection, sheet("a", "n/never: a"), rows=[{"a": "x"}])
    claimer = Claimer(connection)
    assert claimer.work_off() == []
    assert apply(connection, compile_text(sheet("a", "n: a")), actor="me").changed == ("n",)
    assert claimer.work_off() == ["n"]


def test_two_first_collections_of_one_namespace_may_be_applied_at_once(
    connection: Connection, opened: Opened, beside: Beside
) -> None:
    first, second = opened("first"), opened("second")
    with first.transaction():
        apply(first, compile_text(sheet("a", name="one")), actor="me")
        applied: Future[Applied] = beside(apply, second, compile_text(sheet("a", name="two")), actor="me")
        wait_for_lock(connection, "autofill second")
    assert applied.result().created


def test_mechanic_3_a_sweep_takes_its_signal_after_the_version_that_is_being_applied(
    connection: Connection, opened: Opened, beside: Beside
) -> None:
    made = make(connection, sheet("a", "n/never: a"), rows=[{"a": "x"}], demand=False)
    applying, sweeping = opened("applying"), opened("sweeping")
    whole, n = RangeScope(((1, 1),)), [made.id("n")]
    with applying.transaction():
        apply(applying, compile_text(sheet("a", "n@2/never: a", "b: a")), actor="me")
        asked = beside(dispatch, sweeping, made.collection.id, whole, columns=n, reason="r", actor="me")
        wait_for_lock(connection, "autofill sweeping")
    swept = asked.result()
    found = connection.execute("select id, version from autofill.dispatch order by signal desc limit 1").fetchone()
    assert found == (swept, 2)
