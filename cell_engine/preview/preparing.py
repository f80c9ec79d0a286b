"""What a preview would call: the changed column over the inputs that rows show now, and what that costs."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cell_engine.errors import BadValueError, NotFoundError
from cell_engine.estimate.calls import Past, read_past
from cell_engine.estimate.drawing import choose_of
from cell_engine.estimate.summing import Estimate, sum_up
from cell_engine.plan import NOT_FOUND, PROPOSED, Asked, Due, Row, plan
from cell_engine.preview.comparing import Before
from cell_engine.prices import prices
from cell_engine.specs.compile import CompiledSpec
from cell_engine.specs.version import Column, Version
from cell_engine.store.collections import Collection
from cell_engine.store.database import Connection
from cell_engine.store.sampling import Sampled, read_sample

_NEW = 2**62  # a signal above all that were given out


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that cannot be tried, and why."""

    row_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """`version` is the current one with the changed `column` in it. `calls` are by row id, in the order drawn."""

    collection: Collection
    version: Version
    column: Column
    calls: dict[int, Due]
    before: dict[int, Before]
    skipped: tuple[Skipped, ...]
    estimate: Estimate


def prepare(
    connection: Connection,
    collection: Collection,
    version: Version,
    spec: CompiledSpec,
    name: str,
    *,
    rows: Sequence[int] = (),
    count: int = 10,
) -> Prepared:
    """Column `name` as `spec` has it, over these rows, or over `count` rows drawn at random from those with its inputs.

    Raises NotFoundError and BadValueError for a spec of another collection, a column that is not computed in both, or
    that reads one which is not there yet.
    """
    column = _bind(collection, version, spec, name)
    # Nothing but the column is computed here: what it reads is taken as it is.
    others = tuple(
        column if one.id == column.id else replace(one, mode="never") if one.kind is not None else one
        for one in version.columns
    )
    trial = Version(version.collection_id, version.number, others)
    drawn = sorted(set(rows)) if rows else _draw(collection)
    found = {one.row_id: one for one in read_sample(connection, collection.id, drawn)}
    calls: dict[int, Due] = {}
    skipped: list[Skipped] = []
    for row_id in drawn:
        if len(calls) == count and not rows:
            break
        if row_id not in found:
            skipped += [Skipped(row_id, "there is no such row")] if rows else []
            continue
        due = _due(found[row_id].row, trial, column)
        if isinstance(due, Due):
            calls[row_id] = due
        else:
            skipped.append(Skipped(row_id, due))
    before = {row_id: _before(found[row_id], column) for row_id in calls}
    return Prepared(
        collection, trial, column, calls, before, tuple(skipped),
        _estimate(connection, collection, version, trial, column, list(calls.values())),
    )  # fmt: skip


def _bind(collection: Collection, version: Version, spec: CompiledSpec, name: str) -> Column:
    if (spec.namespace, spec.name) != (collection.namespace, collection.name):
        raise BadValueError(
            f"the file is of the collection {spec.namespace}/{spec.name}, not of {collection.full_name}"
        )
    wanted = next((one for one in spec.columns if one.name == name), None)
    if wanted is None or wanted.kind is None:
        computed = ", ".join(one.name for one in spec.columns if one.kind is not None)
        raise NotFoundError(f"the file has no computed column {name!r}; it has: {computed}")
    ids = {one.key: one.id for one in version.columns}
    missing = [key for key in (wanted.key, *(dep.column for dep in wanted.deps)) if key not in ids]
    if missing:
        raise NotFoundError(
            f"column {missing[0]!r} is not in version {version.number} of {collection.full_name} yet: apply it first"
        )
    if version.by_id[ids[wanted.key]].kind is None:
        raise BadValueError(
            f"column {name!r} is an input in version {version.number}: there is nothing to compare with"
        )
    # the others need ids only to be bound with it
    free = max(ids.values()) + 1
    for number, one in enumerate(one for one in spec.columns if one.key not in ids):
        ids[one.key] = free + number
    bound = next(one for one in spec.bind(ids) if one.key == wanted.key)
    return replace(bound, cache=None)  # each row is called for: that is what is to be seen


def _draw(collection: Collection) -> list[int]:
    """Some hundred rows in random order, so that those which cannot be tried are passed over."""
    drawn = choose_of([(1, collection.next_row - 1)]) if collection.next_row > 1 else []
    random.shuffle(drawn)
    return drawn


def _due(row: Row, trial: Version, column: Column) -> Due | str:
    """The call, or why there is none."""
    steps = plan(row, trial, {column.id: Asked(_NEW, _NEW, 0)})
    for due in steps.due:
        if due.column.id == column.id:
            return due
    for blocked in steps.blocked:
        if blocked.column.id == column.id:
            return blocked.reason
    for unfound in steps.unfound:
        if unfound.column.id == column.id:
            return unfound.reason
    return "an input waits for review"


def _before(sampled: Sampled, column: Column) -> Before:
    cell = sampled.row.cells.get(column.id)
    called = sampled.called.get(column.id)
    price = prices().of(called.model) if called is not None else None
    cost = None if called is None or price is None else price.cost(called.tokens_in, 0, called.tokens_out)
    if cell is not None and cell.user_set:
        return Before(cell.user_value, None if cell.user_value is not None else "blank", True, cost)
    if cell is None or cell.fingerprint is None:
        return Before(None, "empty")
    if cell.error_class not in (None, PROPOSED):
        return Before(None, cell.error_class, cost=cost)
    return Before(cell.ai_value, NOT_FOUND if cell.not_found is not None else cell.error_class, cost=cost)


def _estimate(
    connection: Connection,
    collection: Collection,
    version: Version,
    trial: Version,
    column: Column,
    calls: Sequence[Due],
) -> Estimate:
    past = read_past(connection, collection, version, ())
    if version.by_id[column.id].settings.get("model") != column.settings.get("model"):
        past[column.id] = Past(answer=past[column.id].answer)  # what another model took says nothing of this one
    each = [[due] for due in calls]
    return sum_up(trial, len(each), len(each), each, each, past, set())
