"""What people do in a kill round, each on a connection that the server's death may cut at any moment."""

import random
import threading
import time
from dataclasses import dataclass, field

import psycopg

from cell_engine.errors import AutofillError
from cell_engine.store import control
from cell_engine.store.changes import edit
from cell_engine.store.database import Connection, connect
from cell_engine.store.demands import RangeScope, RowScope, dispatch
from tests.engine import Made

PAUSE = 0.03  # seconds between two actions, on average


@dataclass
class Person:
    """Edits every `of`th row from `first` on, and asks for any. What the server has confirmed is on record here.

    `shown` is, by (row, column), what may be shown now: the last confirmed value, and what was sent since without an
    answer. `forced` are the confirmed dispatches by force: their rows and column.
    """

    url: str
    made: Made
    rows: int
    first: int
    of: int
    lots: random.Random
    shown: dict[tuple[int, int], list[str]] = field(default_factory=dict)
    forced: dict[int, tuple[range, int]] = field(default_factory=dict)
    actions: int = 0

    def act(self, enough: threading.Event) -> None:
        """Do one thing after the other, whatever dies meanwhile."""
        connection: Connection | None = None
        while not enough.is_set():
            time.sleep(self.lots.expovariate(1 / PAUSE))
            try:
                if connection is None or connection.closed:
                    connection = connect(self.url, application="person", statement_timeout=30)
                self._one(connection)
                self.actions += 1
            except (psycopg.OperationalError, AutofillError):  # the server is away; or the dispatch has ended already
                continue
        if connection is not None:
            connection.close()

    def _one(self, connection: Connection) -> None:
        match self.lots.randrange(8):
            case 0:
                self._ask(connection, self.made.id(self.lots.choice("bdn")), force=self.lots.random() < 0.5)
            case 1 if self.forced:
                asked = self.lots.choice([*self.forced])
                del self.forced[asked]  # also if nobody answers: it may be canceled
                control.cancel(connection, asked)
            case _:
                self._edit(connection)

    def _edit(self, connection: Connection) -> None:
        row = self.lots.randrange(self.first, self.rows + 1, self.of)
        column = self.made.id(self.lots.choice("aak"))
        value = f"{row}/{column}/{self.lots.getrandbits(40)}"
        maybe = self.shown.setdefault((row, column), [str(row)])
        maybe.append(value)
        edit(connection, self.made.collection.id, row, {column: value}, actor="me")
        maybe[:] = [value]

    def _ask(self, connection: Connection, column: int, force: bool) -> None:
        if self.lots.random() < 0.5:
            rows = range(1, self.rows + 1)
            scope: RowScope | RangeScope = RangeScope(((rows[0], rows[-1]),))
        else:
            row = self.lots.randint(1, self.rows)
            rows = range(row, row + 1)
            scope = RowScope((row,))
        made = dispatch(
            connection, self.made.collection.id, scope, columns=[column], force=force, reason="r", actor="me"
        )
        if force:
            self.forced[made] = (rows, column)
