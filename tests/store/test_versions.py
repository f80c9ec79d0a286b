"""Mechanic 7 and R8: what applying a version sets off."""

from concurrent.futures import Future

import pytest

from cell_engine.errors import BadValueError
from cell_engine.specs.compile import compile_text
from cell_engine.store.applying import Applied, apply
from cell_engine.store.batches import InputsChangedError, add_batch
from cell_engine.store.changes import ConflictError, edit, undo
from cell_engine.store.collections import hold_version
from cell_engine.store.database import Connection, run
from cell_engine.store.demands import RangeScope, dispatch
from tests.engine import Claimer, Made, make, sheet, wait_for_lock, wait_or_lock
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


TEXT = sheet("a", "b: a")
NUMBER = sheet("a", "b@2: a").replace("name: a, type: text", "name: a, type: integer")


def test_an_edit_that_meets_an_open_apply_is_checked_against_the_version_it_makes(
    connection: Connection, opened: Opened, beside: Beside
) -> None:
    made = make(connection, TEXT, rows=[{"a": "1"}])
    applying, editor = opened("applying"), opened("editor")
    with applying.transaction():
        apply(applying, compile_text(NUMBER), actor="me")
        edited = beside(edit, editor, made.collection.id, 1, {made.id("a"): "word"}, actor="me")
        wait_for_lock(connection, "autofill editor")
    with pytest.raises(BadValueError, match=r"'a'.*integer"):
        edited.result()
    assert connection.execute("select count(*) from autofill.cell where user_set").fetchone() == (0,)


def test_an_apply_does_not_come_between_the_check_of_an_edit_and_its_commit(
    connection: Connection, opened: Opened, beside: Beside
) -> None:
    made = make(connection, TEXT, rows=[{"a": "1"}])
    holder, editor, applying = opened("holder"), opened("editor"), opened("applying")
    with holder.transaction():
        holder.execute("select from autofill.row for update")
        edited = beside(edit, editor, made.collection.id, 1, {made.id("a"): "word"}, actor="me")
        wait_for_lock(connection, "autofill editor")  # it has been checked, and is not stored yet
        applied = beside(apply, applying, compile_text(NUMBER), actor="me")
        wait_or_lock(connection, "autofill applying", applied)
    edited.result()
    applied.result()
    # in the order they came in: the edit is of version 1, and what the apply sets off comes after it
    order = connection.execute("select reason, version from autofill.dispatch order by id").fetchall()
    assert order == [("load", 1), ("edit", 1), ("apply", 2)]


def test_a_change_whose_value_no_longer_fits_its_column_is_not_taken_back(connection: Connection) -> None:
    made = make(connection, TEXT, rows=[{"a": "1"}])
    for value in ("word", "2"):
        edit(connection, made.collection.id, 1, {made.id("a"): value}, actor="me")
    apply(connection, compile_text(NUMBER), actor="me")
    with pytest.raises(ConflictError, match=r"row 1 held does not fit now: column 'a'.*integer"):
        undo(connection, made.collection.id, actor="me")


def hold_key(holder: Connection, made: Made, key: str) -> None:
    """A load of the same content is under way until the holder's transaction ends: another one waits, rows checked."""
    run(
        holder,
        "batch_insert",
        collection_id=made.collection.id,
        batch_id=1000,
        key=key,
        source="s",
        first_row=1,
        last_row=0,
        rejected="[]",
        rejected_rows=0,
        actor="me",
    )


@pytest.mark.parametrize("demand", [True, False])
def test_a_load_whose_inputs_an_apply_has_changed_since_their_check_is_refused(
    connection: Connection, opened: Opened, beside: Beside, demand: bool
) -> None:
    made = make(connection, TEXT, rows=[{"a": "1"}])
    holder, loader = opened("holder"), opened("loader")
    with holder.transaction(force_rollback=True):
        hold_key(holder, made, "new")
        rows = [{made.id("a"): "word"}]
        loaded = beside(add_batch, loader, made.version, "new", rows, source="s", actor="me", demand=demand)
        wait_for_lock(connection, "autofill loader")
        apply(connection, compile_text(NUMBER), actor="me")
    with pytest.raises(InputsChangedError, match="'a'"):
        loaded.result()
    assert connection.execute("select count(*) from autofill.row").fetchone() == (1,)


@pytest.mark.parametrize("demand", [True, False])
def test_an_apply_does_not_come_between_the_check_of_a_load_and_its_commit(
    connection: Connection, opened: Opened, beside: Beside, demand: bool
) -> None:
    made = make(connection, TEXT, rows=[{"a": "1"}])
    holder, loader, applying = opened("holder"), opened("loader"), opened("applying")
    connection.execute(
        "create function wait() returns trigger language plpgsql as "
        "'begin perform pg_advisory_xact_lock_shared(1); return null; end'"
    )
    connection.execute(
        "create constraint trigger wait after insert on autofill.batch initially deferred "
        "for each row execute function wait()"
    )
    with holder.transaction():
        holder.execute("select pg_advisory_xact_lock(1)")
        rows = [{made.id("a"): "word"}]
        loaded = beside(add_batch, loader, made.version, "new", rows, source="s", actor="me", demand=demand)
        wait_for_lock(connection, "autofill loader")  # at its commit
        applied = beside(apply, applying, compile_text(NUMBER), actor="me")
        wait_or_lock(connection, "autofill applying", applied)
        assert not applied.done()
    loaded.result()
    applied.result()


def test_loads_do_not_wait_for_each_other_and_an_apply_that_leaves_their_inputs_alone_not_refuse_them(
    connection: Connection, opened: Opened
) -> None:
    made = make(connection, TEXT, rows=[{"a": "1"}])
    apply(connection, compile_text(sheet("a", "b@2: a")), actor="me")
    with connection.transaction():
        hold_version(connection, made.collection.id)  # as another load does, at its end
        rows = [{made.id("a"): "word"}]
        _, new = add_batch(opened("loader"), made.version, "new", rows, source="s", actor="me", demand=False)
    assert new
