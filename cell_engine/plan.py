"""What is due in a row: all cascade logic, as a pure function over the compiled DAG.

    visit: claim → plan → call what is due → finalize → plan again with the new values → … → nothing due → release

An answer under review shows nothing yet, and what reads it rests until a person, or a time-out, has decided.

A cell is due when it is not pinned (unless asked for by name), its required inputs are at rest and present, and either
it is on-change and its stored fingerprint differs from that of its shown inputs under the current definition, or a
demand covers it that is newer than its last real call. The test is always the stored fingerprint against the inputs
shown now, never a parent's old value against its new one: so diamonds, cut-offs, overlapping sweeps and edits in any
order come to the same end.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import blake2b
from json.encoder import encode_basestring_ascii
from typing import NamedTuple, TypeAlias

from cell_engine.specs.text import Json
from cell_engine.specs.version import Column, Version

BLOCKED = "blocked"

PROPOSED = "proposed"
"""The error class of a cell whose answer is held for review: it shows nothing, and what reads it waits."""

NOT_FOUND = "not_found"
"""In a cell's `details`, the reason of an answer that there is no value. Its value is null, as no other answer's is.
(A column of its own would be one more array in every finalize, for what few cells ever have.)"""


@dataclass(slots=True)
class Cell:
    """A cell as stored; one that has no tuple is a `Cell()`. Numbers are signals."""

    user_set: bool = False
    user_value: Json = None
    ai_value: Json = None
    fingerprint: bytes | None = None
    called: int = 0
    demanded: int = 0
    change: int = 0
    read_change: int = 0
    error_class: str | None = None
    details: Mapping[str, Json] | None = None
    """Beside the AI's value, and no part of it: nothing that reads the column sees it."""
    held: Mapping[str, Json] | None = None
    """Not None while the AI's value has not been accepted: {"accepted": the one that was, if there was one}."""

    @property
    def not_found(self) -> str | None:
        """Why there is no value, of an answer that says just that."""
        if self.ai_value is not None or self.error_class is not None or not self.details:
            return None
        reason = self.details.get(NOT_FOUND)
        return reason if isinstance(reason, str) else None


_NO_CELL = Cell()


@dataclass(slots=True)
class Row:
    """A row's loaded inputs by column id (an absent key is a missing value) and the cells it has."""

    inputs: Mapping[int, Json]
    change: int = 0
    cells: dict[int, Cell] = field(default_factory=dict)
    deleted: bool = False
    marks: "dict[int, tuple[Column, list[Shown], bytes]]" = field(default_factory=dict, compare=False, repr=False)
    """Fingerprints by column, with what they were made of: each plan of a visit asks for those of all columns."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A column asked for by name, with what signal, and by which dispatch. `forced` is the signal of the latest demand
    that wants even a fresh answer computed again, 0 for none. `only_if`: what the cell must be, see `matches`."""

    signal: int
    forced: int
    dispatch: int
    only_if: tuple[str, ...] | None = None


Shown: TypeAlias = tuple[str, Json]
"""What a dependent sees of a column: ("value", the value), ("missing", None), ("not_found", None), ("error", None) or
("proposed", None).

Not found is without its reason: models word it anew at each call, and what reads the column does not see it."""


class Due(NamedTuple):
    """A call to make: what it reads, and the numbers that are stored with its answer. `forced` is the signal of the
    latest demand that takes no answer older than itself, 0 for none."""

    column: Column
    inputs: Mapping[int, Json]
    fingerprint: bytes
    read_change: int
    forced: int = 0


@dataclass(frozen=True, slots=True)
class Blocked:
    """A cell that cannot be computed, at rest: `reason` says which input is missing. `demanded` is the signal of a
    forced demand that counts when the input comes, else 0."""

    column: Column
    reason: str
    fingerprint: bytes
    read_change: int
    demanded: int


@dataclass(frozen=True, slots=True)
class Waiting:
    """A cell asked for by name that has an input on its way, one under review: it rests, and is left as it is.
    `demanded`: as of one that is blocked, or the signal of any demand for what nothing else would compute.
    `read_change` is the cell's own."""

    column: Column
    read_change: int
    demanded: int


@dataclass(frozen=True, slots=True)
class Unfound:
    """A cell that is not found itself, without a call, as its column declares for an input that was not: an answer,
    stored as one. `reason` names the input."""

    column: Column
    reason: str
    fingerprint: bytes
    read_change: int


@dataclass(frozen=True, slots=True)
class Current:
    """A cell found current again without a call: its numbers are refreshed so that nothing shows it outdated.

    Or, with `stale`, one that is not, though its numbers say so: an input was edited before another one's answer, which
    it has read, got its number. What is computed only when asked would never show it.
    """

    column: Column
    read_change: int
    stale: bool = False


Found: TypeAlias = "Blocked | Unfound | Current | Waiting"


class Plan(NamedTuple):
    due: tuple[Due, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    current: tuple[Current, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    unfound: tuple[Unfound, ...] = ()

    @property
    def found(self) -> tuple[Found, ...]:
        """What needs no call."""
        return (*self.blocked, *self.unfound, *self.current, *self.waiting)


def fingerprint(column: Column, shown: Collection[Shown]) -> bytes:
    """16 bytes over the column's definition and its shown inputs, in the order of its dependencies.

    Equal inputs under an equal definition have equal fingerprints, in any row and any collection.
    """
    digest = blake2b(column.hash, digest_size=16)
    for state, value in shown:
        text = "" if state != "value" else canonical(value)
        digest.update(f"{state}:{len(text)}:{text}".encode())
    return digest.digest()


def plan(
    row: Row,
    version: Version,
    asked: Mapping[int, Asked],
    unsettled: Collection[int] = (),
    answer: Callable[[Due], bool] | None = None,
) -> Plan:
    """The calls that are due now, and the cells that are blocked, not found for want of an input, or current again.

    `asked` is the row's explicit demand by column id. `unsettled` are columns whose answer is on its way (in flight,
    or to be tried again): they are not due, and what reads them waits. `answer` is shown each call as it is found due;
    it returns True where it has put the answer into `row.cells` at once, and then the call is not among those due, and
    what reads it is planned with it. One pass in dependency order: O(columns + deps).
    """
    if row.deleted:
        return Plan()
    due: list[Due] = []
    blocked: list[Blocked] = []
    current: list[Current] = []
    waiting: list[Waiting] = []
    unfound: list[Unfound] = []
    # columns whose shown value may still change in this visit: a pinned one stays, whatever is computed underneath
    moving = {id for id in unsettled if not (row.cells.get(id) or _NO_CELL).user_set} if unsettled else set()
    resting: set[int] = set()  # columns that wait for the end of a review, which no visit waits for
    stuck: dict[int, Shown] = {}  # what columns show that this very pass has found blocked, or not found
    cells, by_id, reads = row.cells, version.by_id, version.reads
    for column in version.computed:
        if column.id in unsettled:
            continue
        cell = cells.get(column.id, _NO_CELL)
        request = asked.get(column.id)
        automatic = column.mode == "on_change" and not cell.user_set
        remembered = cell.demanded > cell.called  # a demand that found its inputs missing, or under review
        if not (automatic or request is not None or remembered):
            if (
                column.mode != "on_change"
                and not cell.user_set
                and _is_hidden(row, version, column, cell, stuck, moving)
            ):
                current.append(Current(column, _read_change(row, column) - 1, stale=True))
            continue
        sources = reads[column.id]
        if moving and not moving.isdisjoint(sources):
            if not cell.user_set:
                moving.add(column.id)
            continue
        shown = [_shown(row, by_id[source], stuck) for source in sources]
        mark = _mark(row, column, shown)
        stale = cell.fingerprint != mark
        if request is not None and not matches(request.only_if, cell, stale):
            request = None
            if not (automatic or remembered):
                continue
        # Answered is what a call newer than the demand has answered, under the definition there is now.
        wanted = request is not None and (stale or request.signal > cell.called)
        is_whole = None not in [value for _, value in shown]
        if (not is_whole and _PROPOSED in shown) or (resting and not resting.isdisjoint(sources)):
            if request is not None and wanted:
                # What is computed only when asked would else not be, once the review has ended. It is remembered as a
                # force is: at worst a call is made that a cache would have spared, behind a review.
                kept = request.forced if automatic or request.forced > cell.called else request.signal
                waiting.append(Waiting(column, cell.read_change, kept if kept > cell.called else 0))
            if not cell.user_set:
                resting.add(column.id)
            continue
        read_change = _read_change(row, column)
        lacking = "" if is_whole else _lacking(column, shown, version)
        if lacking:
            stuck[column.id] = _ERROR
            if wanted or (automatic and stale):
                demanded = request.forced if request is not None and request.forced > cell.called else 0
                blocked.append(Blocked(column, lacking, mark, read_change, demanded))
            elif not stale and cell.read_change < read_change:
                current.append(Current(column, read_change))
            continue
        forced = max(request.forced if request is not None else 0, cell.demanded)
        if forced <= cell.called:
            forced = 0
        failed = cell.error_class is not None and cell.error_class != PROPOSED
        needed = (automatic and stale) or (wanted and (stale or failed)) or forced > 0
        passed_on = "" if is_whole else _passed_on(column, shown, version)
        if needed and passed_on:
            stuck[column.id] = _SHOWN_NOT_FOUND
            unfound.append(Unfound(column, passed_on, mark, read_change))
        elif needed:
            inputs = dict(zip(sources, [value for _, value in shown], strict=True))
            if column.files is not None:
                for dep in column.deps:
                    if dep.silent:
                        del inputs[dep.column]
            call = Due(column, inputs, mark, read_change, forced)
            if answer is None or not answer(call):
                due.append(call)
                if not cell.user_set:
                    moving.add(column.id)
        elif not stale and cell.read_change < read_change:
            current.append(Current(column, read_change))
    return Plan(tuple(due), tuple(blocked), tuple(current), tuple(waiting), tuple(unfound))


def _is_hidden(
    row: Row, version: Version, column: Column, cell: Cell, stuck: Mapping[int, Shown], moving: Collection[int]
) -> bool:
    """Whether a cell that nothing asks for is outdated, and its numbers say that it has read what its inputs show."""
    if cell.fingerprint is None or cell.read_change < _read_change(row, column):
        return False
    if not version.reads[column.id] or any(source in moving for source in version.reads[column.id]):
        return False
    shown = [_shown(row, version.by_id[dep.column], stuck) for dep in column.deps]
    return _PROPOSED not in shown and cell.fingerprint != _mark(row, column, shown)


def _mark(row: Row, column: Column, shown: list[Shown]) -> bytes:
    known = row.marks.get(column.id)
    if known is not None and known[0] is column:
        for before, now in zip(known[1], shown, strict=True):
            # The very same value: equal is too little, since to Python True is 1.
            if before[1] is not now[1] or before[0] != now[0]:
                break
        else:
            return known[2]
    mark = fingerprint(column, shown)
    row.marks[column.id] = (column, shown, mark)
    return mark


def matches(only_if: Collection[str] | None, cell: Cell, stale: bool) -> bool:
    """Whether a cell is what a demand was limited to: any of "empty" (never computed), "outdated", "not_found",
    "error:<class>"."""
    if only_if is None:
        return True
    computed = cell.fingerprint is not None
    return (
        ("empty" in only_if and not computed)
        or ("outdated" in only_if and computed and stale)
        or (NOT_FOUND in only_if and cell.not_found is not None)
        or f"error:{cell.error_class}" in only_if
    )


def is_held(column: Column, cell: Cell | None, value: Json, is_not_found: bool = False) -> bool:
    """Whether an answer waits for a person before it is shown. One equal to what was accepted before does not."""
    if column.review is None or not column.review.asks(value, is_not_found):
        return False
    if cell is None:
        return True
    if value is None:  # equal only to an answer without a value that is shown: `held` has values alone
        return cell.ai_value is not None or cell.error_class is not None or cell.fingerprint is None
    accepted = cell.ai_value if cell.held is None else cell.held.get("accepted")
    return accepted is None or canonical(accepted) != canonical(value)


def canonical(value: Json) -> str:
    """One text for one value as the database compares it: keys sorted, and 1, 1.0 and 1e0 the same number."""
    if isinstance(value, str):
        return encode_basestring_ascii(value)  # what the encoder comes to, without its detours
    return _ENCODER.encode(_integral(value))


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def _integral(value: Json) -> Json:
    if isinstance(value, float) and value.is_integer():
        return int(Decimal(repr(value)))  # the digits that were written, as jsonb keeps them; not the double's own
    if isinstance(value, list):
        return [_integral(item) for item in value]
    if isinstance(value, dict):
        return {key: _integral(item) for key, item in value.items()}
    return value


def _shown(row: Row, column: Column, stuck: Mapping[int, Shown]) -> Shown:
    """A person's value is what is shown, even a blank one; it hides whatever lies above it."""
    cell = row.cells.get(column.id)
    if cell is not None and cell.user_set:
        value = cell.user_value
    elif column.kind is None:
        value = row.inputs.get(column.id)
    elif column.id in stuck:
        return stuck[column.id]
    elif cell is None:
        return _MISSING
    elif cell.error_class is not None:
        return _PROPOSED if cell.error_class == PROPOSED else _ERROR
    else:
        value = cell.ai_value
        if value is None and cell.not_found is not None:
            return _SHOWN_NOT_FOUND
    return _MISSING if value is None else ("value", value)


_ERROR: Shown = ("error", None)
_MISSING: Shown = ("missing", None)
_PROPOSED: Shown = ("proposed", None)
_SHOWN_NOT_FOUND: Shown = ("not_found", None)


def _read_change(row: Row, column: Column) -> int:
    """The highest change number among what a column reads; a loaded input changes with its row."""
    highest = row.change if column.deps else 0
    for dep in column.deps:
        cell = row.cells.get(dep.column)
        if cell is not None and cell.change > highest:
            highest = cell.change
    return highest


def _lacking(column: Column, shown: Collection[Shown], version: Version) -> str:
    """The first required input that is at rest without a value, said for people; empty when none is."""
    for dep, (state, _) in zip(column.deps, shown, strict=True):
        if state == "value":
            continue
        if dep.if_not_found == "skip" if state == "not_found" else not dep.optional:
            return f"required input {version.by_id[dep.column].name!r} is {_IN_WORDS[state]}"
    return ""


_IN_WORDS = {"missing": "missing", "error": "in error, rejected or blocked", "not_found": "not found"}


def _passed_on(column: Column, shown: Collection[Shown], version: Version) -> str:
    """The first input that was not found, and makes the column not found itself, said for people; empty for none."""
    for dep, (state, _) in zip(column.deps, shown, strict=True):
        if state == "not_found" and dep.if_not_found == "propagate":
            return f"input {version.by_id[dep.column].name!r} was not found"
    return ""
