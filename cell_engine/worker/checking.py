"""Columns in use that a starting worker cannot compute, or whose functions do not fit: told in its log, once.

It serves all the others. In a thread of its own: checking imports the functions' modules, which may take their time.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress

import psycopg

from cell_engine.errors import AutofillError
from cell_engine.kinds.base import Kind
from cell_engine.kinds.function_check import version_troubles
from cell_engine.log import get_logger
from cell_engine.specs.version import Version
from cell_engine.store.collections import list_collections, load_version
from cell_engine.store.database import connect

TOLD = 20
"""So many are told; a worker without a key may not be able to compute any of thousands."""

log = get_logger(__name__)


def start_checking(url: str, kinds: Mapping[str, Kind]) -> None:
    threading.Thread(target=_check, args=(url, kinds), name="check-columns", daemon=True).start()


def _check(url: str, kinds: Mapping[str, Kind]) -> None:
    count = 0
    with suppress(psycopg.Error):  # who claims tells of a database that is away
        for collection, column, trouble in _troubles(url, kinds):
            count += 1
            if count <= TOLD:
                log.warning("a column does not work here", collection=collection, column=column, why=trouble)
    if count > TOLD:
        log.warning("more columns do not work here", columns=count - TOLD)


def _troubles(url: str, kinds: Mapping[str, Kind]) -> Iterator[tuple[str, str, str]]:
    with connect(url, application="worker check") as connection:
        for collection in list_collections(connection):
            if collection.version:
                version = load_version(connection, collection.id)
                for name, trouble in troubles(version, kinds):
                    yield collection.full_name, name, trouble


def troubles(version: Version, kinds: Mapping[str, Kind]) -> Iterator[tuple[str, str]]:
    """The columns of a version that do not work with these kinds, and why."""
    for column in version.computed:
        kind = kinds.get(column.job_type)
        if kind is None:
            continue
        try:
            kind.check(column)
        except AutofillError as error:
            yield column.name, str(error)
            continue
        if column.kind == "function":
            for trouble in version_troubles(version, column):
                yield column.name, trouble
