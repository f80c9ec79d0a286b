"""Since when schedules are what they are: a tick of before that is none."""

from dataclasses import dataclass
from datetime import datetime

from cell_engine.specs.schedule import Schedule
from cell_engine.store.database import Connection, run

_REFRESH = 0  # no column has this id


@dataclass(frozen=True, slots=True)
class Scheduled:
    """Of a collection's current version. `columns` by id; `refresh` is None where nothing is looked at again."""

    columns: dict[int, tuple[Schedule, datetime]]
    refresh: tuple[Schedule, datetime] | None


def read_schedules(connection: Connection, collection_id: int) -> Scheduled:
    """Each with the time of the apply that brought it."""
    found = {
        one.column_id: (Schedule(one.schedule["cron"], one.schedule["timezone"]), one.since)
        for one in run(connection, "schedules_since", collection_id=collection_id)
    }
    refresh = found.pop(_REFRESH, None)
    return Scheduled(found, refresh)
