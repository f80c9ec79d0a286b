"""Old and new side by side: how far they agree, where they differ, what each cost."""

from collections import Counter
from dataclasses import dataclass, field

from cell_engine.plan import canonical
from cell_engine.specs.text import Json
from cell_engine.specs.types import ColumnType

COUNTED_TYPES = ("choice", "boolean")
"""Of few values: which became which is counted."""


@dataclass(frozen=True, slots=True)
class Before:
    """What a cell shows now: a value, or, without one, its error class, "not_found" or "empty". An answer that waits
    for review is not shown and stands here all the same, with the state "proposed". `by_hand`: it is a person's.
    `cost` in billionths of a dollar, of the AI's call, None where it is not known."""

    value: Json = None
    state: str | None = None
    by_hand: bool = False
    cost: int | None = None


@dataclass(frozen=True, slots=True)
class Tried:
    """One row: what is there, and what the changed column answers. `agrees` is None where one of them is no answer.
    `not_found`: why there is no value, which is an answer."""

    row_id: int
    before: Before
    value: Json = None
    error_class: str | None = None
    error: str | None = None
    model: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    cost: int | None = 0
    agrees: bool | None = None
    not_found: str | None = None


@dataclass(slots=True)
class Preview:
    """`stopped`: why calls that were planned have not been made. `cost` is of all calls, those tried again among them,
    in billionths of a dollar, and without the `unpriced` ones, whose cost is not known."""

    dispatch_id: int
    tried: list[Tried] = field(default_factory=list)
    stopped: str | None = None
    cost: int = 0
    unpriced: int = 0

    @property
    def compared(self) -> int:
        """Rows with an answer before and after."""
        return sum(one.agrees is not None for one in self.tried)

    @property
    def agreeing(self) -> int:
        return sum(one.agrees is True for one in self.tried)

    @property
    def failed(self) -> dict[str, int]:
        """Calls that failed, by class."""
        return dict(Counter(one.error_class for one in self.tried if one.error_class is not None))

    @property
    def cost_before(self) -> tuple[int, int]:
        """What the answers that are there had cost, and of how many of them that is known."""
        known = [one.before.cost for one in self.tried if one.before.cost is not None]
        return sum(known), len(known)

    def changes(self, type: ColumnType) -> list[tuple[Json, Json, int]]:
        """Of a column of few values: before, after, in how many rows; the most frequent first."""
        if type.name not in COUNTED_TYPES:
            return []
        pairs = [(one.before.value, one.value) for one in self.tried if one.agrees is not None]
        counted = Counter((canonical(before), canonical(after)) for before, after in pairs)
        values = {canonical(value): value for pair in pairs for value in pair}
        return [(values[before], values[after], rows) for (before, after), rows in counted.most_common()]


def agree(before: Json, after: Json) -> bool:
    """Equal after normalizing: numbers as numbers, keys in any order, and white space folded in text."""
    return canonical(_folded(before)) == canonical(_folded(after))


def _folded(value: Json) -> Json:
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, list):
        return [_folded(one) for one in value]
    if isinstance(value, dict):
        return {key: _folded(one) for key, one in value.items()}
    return value
