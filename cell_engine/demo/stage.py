"""What a demo plays on: its stack and collection, and whoever watches. A demo goes in rounds: something is done to its
world, and all cells come to rest again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from cell_engine.demo import run
from cell_engine.demo.patience import PatientStore
from cell_engine.demo.run import Totals, Watched
from cell_engine.parts import open_store
from cell_engine.store.database import Connection
from cell_engine.store.reading import Progress, page, recent_dispatches

ACTOR = run.ACTOR
_ROWS_SHOWN = 100


class Screen(Protocol):
    """Where a demo shows itself."""

    def say(self, text: str) -> None: ...

    def rows(self, watched: Watched, inputs: Any, cells: Any, columns: Sequence[str]) -> None:
        """Show rows as a table of these columns."""

    def following(self, watched: Watched) -> AbstractContextManager[Callable[[Progress], None]]:
        """Show a dispatch's progress, as often as it is told."""


@dataclass
class Stage:
    """`home` is a folder of the demo's own, which stays. `pause` lets time pass, and raises once all shall stop."""

    home: Path
    url: str
    watched: Watched
    store: PatientStore
    pause: Callable[[float], None]
    screen: Screen
    took: Totals | None = None

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        """The database."""
        with open_store("demo", self.url) as connection:
            yield connection

    @contextmanager
    def round(self, title: str) -> Iterator[None]:
        """Within it something is done; after it every cell has ended, and `took` says what that took."""
        self.screen.say(f"\n{title}")
        collection = self.watched.collection.id
        newest = self.store(lambda connection: recent_dispatches(connection, collection, limit=1))
        watched = replace(self.watched, known=newest[0].id if newest else 0)
        yield
        with self.screen.following(watched) as update:
            run.follow(self.store, watched, self.pause, update)
        totals = self.took = self.store(lambda connection: run.totals(connection, watched))
        by_status = ", ".join(f"{count:,} {status}" for status, count in sorted(totals.cells.items()))
        self.screen.say(
            f"cells: {by_status}; calls in this round: {totals.calls:,}; "
            f"tokens: {totals.tokens_in:,} in, {totals.tokens_out:,} out; {totals.seconds:.1f} s"
        )

    def show(self, *columns: str) -> None:
        collection = self.watched.collection.id
        inputs, cells = self.store(lambda connection: page(connection, collection, limit=_ROWS_SHOWN))
        self.screen.rows(self.watched, inputs, cells, columns)

    def problems(self) -> list[str]:
        """Cells in error or not ended, and rules of the database broken."""
        return self.store(lambda connection: run.problems(connection, self.watched))
