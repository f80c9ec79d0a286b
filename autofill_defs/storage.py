"""Where the Dagster instance keeps its runs, events and ticks."""

import os
from collections.abc import Mapping
from typing import Any

from dagster._config import UserConfigSchema
from dagster._core.storage.base_storage import DagsterStorage
from dagster._core.storage.event_log import EventLogStorage
from dagster._core.storage.sqlite_storage import DagsterSqliteStorage
from dagster._serdes import ConfigurableClassData
from dagster_postgres import DagsterPostgresStorage

from autofill_defs.event_log import BatchingEventLogStorage
from autofill_defs.instance import URL_VARIABLE, with_driver
from cell_engine.errors import AutofillError
from cell_engine.settings import get_settings


class InstanceStorage(DagsterPostgresStorage):
    """PostgreSQL, at AUTOFILL_DAGSTER_DATABASE_URL, with an event log that writes batches.

    Commands that check the code, and `dg dev` in a checkout, run without an instance: no DAGSTER_HOME says so. They
    find this repository's dagster.yaml all the same, and get SQLite below AUTOFILL_HOME.
    """

    def __init__(self, url: str, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(url, inst_data=inst_data)
        self._batching = BatchingEventLogStorage(url)

    @property
    def event_log_storage(self) -> EventLogStorage:
        return self._batching

    @classmethod
    def config_type(cls) -> UserConfigSchema:
        return {}

    @classmethod
    def from_config_value(  # type: ignore[override]
        cls, inst_data: ConfigurableClassData | None, config_value: Mapping[str, Any]
    ) -> DagsterStorage:
        """Raises AutofillError for an instance without its database."""
        url = os.environ.get(URL_VARIABLE)
        if url:
            return cls(with_driver(url), inst_data=inst_data)
        if os.environ.get("DAGSTER_HOME"):
            raise AutofillError(
                f"{URL_VARIABLE} is not set, and DAGSTER_HOME is: this process belongs to an instance, whose runs and "
                "events are in a PostgreSQL database of Dagster's own. Give its URL."
            )
        return DagsterSqliteStorage(str(get_settings().home / "dagster" / "sqlite"), inst_data=inst_data)
