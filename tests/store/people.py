"""What people do in the state machine: edits, undo, reprocesses, cancels, loads, versions, deletes."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any
from unittest import mock

from hypothesis import strategies as st

from cell_engine.errors import NotFoundError
from cell_engine.specs.compile import compile_text
from cell_engine.store import changes, control, demands, reviews
from cell_engine.store.applying import apply
from cell_engine.store.database import Connection
from cell_engine.store.demands import RangeScope, RowScope
from cell_engine.store.results import end_dispatches
from tests.store.world import VERSIONS, CellModel, World

INPUTS = st.sampled_from(["x", "y", None])
ONLY_IF = st.sampled_from([None, None, None, ("outdated",), ("empty",), ("error:refused", "error:function_error")])


class People(World):
    def as_one(self, data: st.DataObject, demand: Callable[[Connection], int], done: Callable[[int], None]) -> None:
        """Demand at once, or in a transaction left open."""
        connection = next((one for one in self.connections.editors if not self.busy(one)), None)
        if connection is None or not data.draw(st.booleans(), label="leave it open"):
            done(demand(self.control))
            return
        later: list[int] = []

        def then(commit: bool) -> None:
            if commit:
                done(made)
                end_dispatches(self.control, later)

        with (
            mock.patch.object(demands, "end_dispatches", lambda _, ids: later.extend(ids)),
            mock.patch.object(changes, "end_dispatches", lambda _, ids: later.extend(ids)),
            mock.patch.object(reviews, "end_dispatches", lambda _, ids: later.extend(ids)),
            self.left_open(connection, then),
        ):
            made = demand(connection)

    def edit(self, data: st.DataObject) -> None:
        if not (rows := self.free_rows()):
            return
        row = data.draw(st.sampled_from(rows), label="row")
        names = [column.name for column in self.version.columns]
        chosen = data.draw(st.sampled_from(["a", "a", "k", *names]), label="column")
        more = data.draw(st.sampled_from([(), (), ("a",), ("b",)]), label="and")
        values = {self.version.by_name[name].id: data.draw(INPUTS) for name in sorted({chosen, *more})}

        def done(made: int) -> None:
            self.book(made, [row])
            for column, value in values.items():
                self.cells.setdefault((row, column), CellModel()).user = (True, value)

        self.as_one(data, lambda on: changes.edit(on, self.collection, row, values, actor="me"), done)

    def reset(self, data: st.DataObject) -> None:
        rows = self.free_rows()
        cells = [key for key, cell in self.cells.items() if cell.user[0]]
        cells = sorted(key for key in cells if key[0] in rows and key[1] in self.version.by_id)
        if not cells:
            return
        row, column = data.draw(st.sampled_from(cells), label="cell")

        def done(made: int) -> None:
            self.book(made, [row])
            self.cells[row, column].user = (False, None)

        self.as_one(data, lambda on: changes.reset(on, self.collection, row, [column], actor="me"), done)

    def revert(self, data: st.DataObject) -> None:
        """Undo or redo, where no open transaction makes it wait."""
        what = data.draw(st.sampled_from([changes.undo, changes.redo]), label="what")
        if self.opened:
            return
        with suppress(NotFoundError, changes.ConflictError):
            made = what(self.control, self.collection, actor="me")
            entries = self.control.execute("select * from autofill.history where dispatch_id = %s", [made]).fetchall()
            self.book(made, sorted({one.row_id for one in entries}))
            for one in entries:
                self.cells.setdefault((one.row_id, one.column_id), CellModel()).user = (one.now_set, one.now)

    def ask(self, data: st.DataObject) -> None:
        computed = [column.id for column in self.version.computed]
        columns = data.draw(st.lists(st.sampled_from(computed), unique=True, max_size=2), label="columns")
        force = data.draw(st.booleans(), label="force") if columns else False
        only_if = data.draw(ONLY_IF, label="only if") if columns else None
        scope: RowScope | RangeScope
        free = self.free_rows()
        if free and data.draw(st.booleans(), label="rows"):
            rows = data.draw(st.lists(st.sampled_from(free), min_size=1, max_size=3, unique=True), label="which")
            scope = RowScope(tuple(rows))
        elif not self.held()[1]:
            first = data.draw(st.integers(1, max(self.rows)), label="first")
            last = data.draw(st.integers(first, max(self.rows)), label="last")
            ranges = [(first, last), (1, first)] if data.draw(st.booleans(), label="two") else [(first, last)]
            scope = RangeScope(tuple(ranges))
            rows = sorted({row for low, high in ranges for row in range(low, high + 1)} - self.deleted)
        else:
            return

        def demand(on: Connection) -> int:
            asked: dict[str, Any] = {"columns": columns, "force": force, "only_if": only_if}
            return demands.dispatch(on, self.collection, scope, reason="reprocess", actor="me", **asked)

        # Limited to some cells, it says nothing of the others.
        booked = columns if only_if is None else []
        self.as_one(data, demand, lambda made: self.book(made, rows, booked, force))

    def decide(self, data: st.DataObject) -> None:
        """Accept or reject what waits for review."""
        free = self.free_rows()
        computed = tuple(column.id for column in self.version.computed)
        ranges = tuple((row, row) for row in free)
        waiting = reviews.proposals(self.control, self.collection, reviews.Filter(computed, ranges))
        if not waiting:
            return
        seen = data.draw(st.sampled_from(waiting), label="proposal")
        accepted = data.draw(st.booleans(), label="accept")

        def demand(on: Connection) -> int:
            decided = reviews.decide_these(on, self.collection, [seen], accepted=accepted, actor="me")
            assert decided.cells == 1
            return decided.dispatches[0]

        def done(made: int) -> None:
            self.book(made, [seen.row_id])
            self.cells[seen.row_id, seen.column_id].error_class = None if accepted else "rejected"

        self.as_one(data, demand, done)

    def stop(self, data: st.DataObject) -> None:
        """Cancel, pause, resume; where no open transaction makes them wait."""
        one = data.draw(st.sampled_from([one for one in self.asked if one.reason == "reprocess"]), label="dispatch")
        what = data.draw(st.sampled_from(["cancel", "pause", "pause", "resume"]), label="what")
        with suppress(control.DispatchStateError):
            getattr(control, what)(self.control, one.id)
            one.canceled |= what == "cancel"

    def load(self, data: st.DataObject) -> None:
        if not self.held()[1]:
            self.load_rows(data.draw(st.lists(st.tuples(INPUTS, INPUTS), min_size=1, max_size=2), label="rows"))

    def apply(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(VERSIONS) - 1), label="version")
        if self.held()[1] or self.version_is_held():
            return
        applied = apply(self.control, compile_text(VERSIONS[number]), actor="me")
        self.version = self.versions[applied.version.number] = applied.version
        if applied.dispatch_id is not None:
            columns = [self.version.by_name[name].id for name in applied.changed]
            self.book(applied.dispatch_id, sorted(self.rows - self.deleted), columns)

    def delete(self, data: st.DataObject) -> None:
        if rows := self.free_rows():
            row = data.draw(st.sampled_from(rows), label="row")
            self.control.execute("update autofill.row set deleted_at = now() where row_id = %s", [row])
            self.deleted.add(row)
            self.once_deleted.add(row)

    def undelete(self, data: st.DataObject) -> None:
        if rows := sorted(self.deleted - self.held()[0]):
            row = data.draw(st.sampled_from(rows), label="row")
            with self.control.transaction():
                self.control.execute("update autofill.row set deleted_at = null where row_id = %s", [row])
                made = demands.dispatch(self.control, self.collection, RowScope((row,)), reason="undo", actor="me")
            self.deleted.remove(row)
            self.book(made, [row])

    def finish(self, data: st.DataObject) -> None:
        """A transaction that was left open ends."""
        number = data.draw(st.integers(0, len(self.opened) - 1), label="which")
        self.close(self.opened[number], data.draw(st.sampled_from([True, True, False]), label="commit"))
