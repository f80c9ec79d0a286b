"""Mechanic 7 and R8: what applying a version sets off."""

from concurrent.futures import Future

from cell_engine.specs.compile import compile_text
from cell_engine.store.applying import Applied, apply
from cell_engine.store.database import Connection
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
