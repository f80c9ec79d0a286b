"""Rows and small versions for the tests of `plan`, and what storing an answer does to a row."""

from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b

from cell_engine.plan import (
    NOT_FOUND,
    PROPOSED,
    Blocked,
    Cell,
    Current,
    Due,
    Row,
    Shown,
    Unfound,
    Waiting,
    fingerprint,
)
from cell_engine.specs.text import Json
from cell_engine.specs.types import ColumnType
from cell_engine.specs.version import Column, Dependency, Mode, NotFound, Version

TEXT = ColumnType("text")


def column(
    id: int,
    deps: Sequence[int] = (),
    *,
    optional: Sequence[int] = (),
    mode: Mode = "on_change",
    not_found: Mapping[int, NotFound] | None = None,
) -> Column:
    """Column `id`: an input without `deps`, else computed from them; those in `optional` may be missing."""
    name = f"c{id}"
    read = tuple(Dependency(dep, dep in optional, (not_found or {}).get(dep)) for dep in deps)
    mark = blake2b(f"{name} {read}".encode(), digest_size=16).digest()
    return Column(id, name, name, TEXT, "function" if deps else None, mode, read, 30.0, 4, {}, mark)


def version(*columns: Column) -> Version:
    return Version(1, 1, columns)


def shown(row: Row, version: Version, column_id: int) -> Shown:
    """What is stored of a column, as its dependents see it."""
    cell = row.cells.get(column_id) or Cell()
    if cell.user_set:
        value = cell.user_value
    elif version.by_id[column_id].kind is None:
        value = row.inputs.get(column_id)
    elif cell.error_class is not None:
        return ("proposed" if cell.error_class == PROPOSED else "error", None)
    else:
        value = cell.ai_value
        if value is None and NOT_FOUND in (cell.details or {}):
            return ("not_found", None)
    return ("missing", None) if value is None else ("value", value)


def mark(row: Row, version: Version, column_id: int) -> bytes:
    """The fingerprint of what a column would read now."""
    column = version.by_id[column_id]
    return fingerprint(column, [shown(row, version, dep.column) for dep in column.deps])


def is_lacking(row: Row, version: Version, column_id: int) -> bool:
    """Whether an input is not there, nor on its way, without which the column is blocked."""
    for dep in version.by_id[column_id].deps:
        state = shown(row, version, dep.column)[0]
        policy = dep.not_found or ("run" if dep.optional else "skip")
        if policy == "skip" if state == "not_found" else state in ("missing", "error") and not dep.optional:
            return True
    return False


def is_passed_on(row: Row, version: Version, column_id: int) -> bool:
    """Whether an input was not found that makes the column not found itself."""
    return not is_lacking(row, version, column_id) and any(
        dep.not_found == "propagate" and shown(row, version, dep.column)[0] == "not_found"
        for dep in version.by_id[column_id].deps
    )


def rests(row: Row, version: Version, column_id: int, asked: Collection[int] = ()) -> bool:
    """Whether an input is under review, or will be computed once another one's review has ended. `asked`: by name."""
    for dep in version.by_id[column_id].deps:
        source, cell = version.by_id[dep.column], row.cells.get(dep.column) or Cell()
        if source.kind is None or cell.user_set:
            continue
        if cell.error_class == PROPOSED:
            return True
        is_wanted = source.mode == "on_change" or source.id in asked or cell.demanded > cell.called
        if is_wanted and rests(row, version, source.id, asked):
            return True
    return False


def store(
    row: Row,
    step: Due | Blocked | Unfound | Current | Waiting,
    signal: int,
    value: Json = None,
    error: str | None = None,
    not_found: str | None = None,
) -> None:
    """Store what a call came to, or what a plan found without one, as finalize does; a change is numbered `signal`."""
    cell = row.cells.setdefault(step.column.id, Cell())
    if isinstance(step, Waiting):
        cell.demanded = max(cell.demanded, step.demanded)
        return
    before = (cell.error_class is None, cell.ai_value if cell.error_class is None else None)
    if isinstance(step, Unfound):
        value, error, not_found = None, None, step.reason
    cell.read_change = max(cell.read_change, step.read_change)
    if isinstance(step, Current):
        return
    cell.fingerprint = step.fingerprint
    cell.error_class = "blocked" if isinstance(step, Blocked) else error
    if isinstance(step, Blocked):
        cell.demanded = max(cell.demanded, step.demanded)
    else:
        cell.called, cell.demanded = max(cell.called, signal), 0
        if error is None:
            cell.ai_value = value
            cell.details = None if not_found is None else {NOT_FOUND: not_found}
    if before != (cell.error_class is None, cell.ai_value if cell.error_class is None else None) and not cell.user_set:
        cell.change = signal
