"""What follows from results that are not stored yet. If nothing does, a row leaves with them, in one batch."""

from collections.abc import Collection, Sequence

from cell_engine.plan import Cell, Found, Row, plan
from cell_engine.specs.version import Version
from cell_engine.store.claims import Reading
from cell_engine.store.results import Result
from cell_engine.worker.outcomes import cell_after


def nothing_follows(
    reading: Reading, version: Version, results: Sequence[Result], unsettled: Collection[int], *, is_whole: bool
) -> bool:
    """Whether a plan with these results in place would start or find anything more; in doubt, no.

    `unsettled` are columns that are not due whatever comes. `is_whole`: these are all the calls that the last plan of
    this very reading made due; then most are judged without another.
    """
    cells = reading.row.cells
    if is_whole:
        # What nobody reads leads to nothing, and what is read and has changed leads on: a plan will see where to.
        is_read = False
        for result in results:
            readers = version.readers[result.column_id]
            if readers:
                is_read = True
                if _is_change(result, cells.get(result.column_id)) and any(one.mode == "on_change" for one in readers):
                    return False
        if not is_read:
            return True
    asked = {
        id: one
        for id, one in reading.asked.items()
        if not any(result.column_id == id and one.signal <= result.signal for result in results)
    }
    after = dict(cells)
    for result in results:
        if not result.retry:
            after[result.column_id] = cell_after(cells.get(result.column_id), result, 0)
    row = reading.row
    steps = plan(Row(row.inputs, row.change, after, row.deleted), version, asked, unsettled)
    return not (steps.due or steps.found)


def _is_change(result: Result, cell: Cell | None) -> bool:
    if result.retry:
        return False
    return result.error_class is not None or result.value != (None if cell is None else cell.ai_value)


def unmoved(found: Sequence[Found], moved: Collection[int], version: Version) -> list[Found]:
    """Those whose numbers are not of what they read among the columns `moved`, by id, nor among each other."""
    place = {column.id: place for place, column in enumerate(version.computed)}
    passed, kept = set(moved), []
    for one in sorted(found, key=lambda one: place[one.column.id]):
        if passed.isdisjoint(version.reads[one.column.id]):
            kept.append(one)
        else:
            passed.add(one.column.id)
    return kept
