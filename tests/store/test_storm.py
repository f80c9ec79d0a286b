"""R6 to R8 with real workers: a storm of edits, sweeps, versions and cancels; then all is at rest, and right."""

import random
from collections.abc import Callable
from contextlib import suppress

import pytest

from cell_engine.errors import AutofillError
from cell_engine.specs.compile import compile_text
from cell_engine.store import control
from cell_engine.store.applying import apply
from cell_engine.store.changes import edit, reset
from cell_engine.store.database import Connection, connect
from cell_engine.store.demands import RangeScope, RowScope, dispatch
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import page
from cell_engine.store.upkeep import keep_up
from cell_engine.worker import loop, rest
from tests.engine import Made, eventually, make, running_worker, sheet
from tests.store.conftest import Beside

ROWS = 20
ROUNDS = 40
SPECS = [sheet("a", "k", f"b@{number}: a", "c: k b?", "d: b c?", "n/never: b", cap=30) for number in (1, 2)]
COLUMNS = ("b", "c", "d")


def people(connection: Connection, made: Made, lots: random.Random) -> None:
    collection, row = made.collection.id, lots.randint(1, ROWS)
    match lots.randrange(6):
        case 0:
            reset(connection, collection, row, [made.id(lots.choice("akb"))], actor="me")
        case 1:
            columns = [made.id(lots.choice("nb"))]
            dispatch(connection, collection, RowScope((row,)), columns=columns, force=True, reason="r", actor="me")
        case 2:
            asked = dispatch(
                connection, collection, RangeScope(((1, ROWS),)), columns=[made.id("b")], reason="r", actor="me"
            )
            if lots.random() < 0.5:
                control.cancel(connection, asked)
        case _:
            value = lots.choice(["x", "y", "", None, str(lots.random())])
            edit(connection, collection, row, {made.id(lots.choice("aaakb")): value}, actor="me")


def operators(connection: Connection, made: Made, lots: random.Random) -> None:
    keep_up(connection)
    if lots.random() < 0.3:
        apply(connection, compile_text(lots.choice(SPECS)), actor="me")


def test_R8_after_a_storm_every_cell_has_the_answer_to_its_latest_inputs(
    connection: Connection, database: str, beside: Beside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "STORM_SECONDS", 0.2)
    monkeypatch.setattr(loop, "STORM_SECONDS", 0.2)
    made = make(connection, SPECS[0], rows=[{"a": f"x{row}", "k": "k"} for row in range(ROWS)])

    def repeat(step: Callable[[Connection, Made, random.Random], None], number: int) -> None:
        lots = random.Random(number)
        with connect(database, application=f"{step.__name__} {number}", statement_timeout=30) as mine:
            for _ in range(ROUNDS):
                with suppress(AutofillError):  # there may be nothing to reset, or to cancel any more
                    step(mine, made, lots)

    with running_worker(database, slots=20), running_worker(database, slots=7):
        for one in [beside(repeat, people, 1), beside(repeat, people, 2), beside(repeat, operators, 3)]:
            one.result()
        apply(connection, compile_text(SPECS[1]), actor="me")
        eventually(connection, "select not exists (select from autofill.dispatch where ended_at is null)")
    assert broken_rules(connection) == {}
    for table in ("work", "slot"):
        assert connection.execute(f"select {table}::text from autofill.{table}".encode()).fetchall() == []
    inputs, cells = page(connection, made.collection.id, limit=ROWS)
    shown = {(one.row_id, one.column_id): one.value for one in (*inputs, *cells)}
    for cell in cells:
        column = made.version.by_id[cell.column_id]
        if column.name not in COLUMNS or cell.status == "overridden":
            continue
        read = {dep: shown.get((cell.row_id, dep.column)) for dep in column.deps}
        if any(value is None and not dep.optional for dep, value in read.items()):
            assert cell.status == "blocked", cell
            continue
        names = sorted((made.version.by_id[dep.column].name, value) for dep, value in read.items())
        number = 2 if column.name == "b" else 1
        assert cell.status == "ready", cell
        assert cell.value == f"{number}({','.join(f'{name}={value}' for name, value in names)})"
