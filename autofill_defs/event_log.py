"""Dagster's event log on PostgreSQL, with the events that a run plans written together.

A run plans an event for each column × batch. Dagster hands them over in batches, and its own storage writes those one
by one, each on connections of its own (dagster-io/dagster#33831).
"""

import os
from collections.abc import Sequence
from typing import Any

from dagster._core.events.log import EventLogEntry
from dagster._core.storage.event_log import SqlEventLogStorageTable
from dagster_postgres import PostgresEventLogStorage

_BATCH_SIZE_VARIABLE, _BATCH_SIZE = "DAGSTER_EVENT_BATCH_SIZE", "1000"


class BatchingEventLogStorage(PostgresEventLogStorage):
    """Stores what `PostgresEventLogStorage` stores. Every process of an instance that plans or reports batches has to
    hand them over as such, which Dagster does if its environment says so: whoever opens this storage has it set."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        os.environ.setdefault(_BATCH_SIZE_VARIABLE, _BATCH_SIZE)

    def store_event_batch(self, events: Sequence[EventLogEntry]) -> None:
        """Of the planned materializations of an asset only the last counts for the asset's own row, as with stock
        storage it is the last to overwrite it. Should writing those rows fail, Dagster stores all events again, one by
        one: planned twice, which changes nothing that is shown."""
        planned = [event for event in events if event.get_dagster_event().is_asset_materialization_planned]
        if planned:
            with self.run_connection() as connection:
                ids = connection.execute(
                    self.prepare_insert_event_batch(planned).returning(SqlEventLogStorageTable.c.id)
                ).scalars()
                last = {
                    event.get_dagster_event().asset_key: (event, event_id)
                    for event, event_id in zip(planned, ids, strict=True)
                }
            for event, event_id in last.values():
                self.store_asset_event(event, event_id)
        others = [event for event in events if not event.get_dagster_event().is_asset_materialization_planned]
        if others:
            super().store_event_batch(others)
