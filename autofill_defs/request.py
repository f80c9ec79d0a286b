"""What a run asks for, in the engine's terms."""

from collections.abc import Collection as Some
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import dagster as dg

from autofill_defs.config import FillConfig
from autofill_defs.defined import DefinedCollection
from autofill_defs.engine import PatientEngine
from autofill_defs.versions import ACTOR, apply_if_unknown
from cell_engine.specs.version import Column, Version
from cell_engine.store.batches import Batch, find_batches, list_batches
from cell_engine.store.collections import Collection, load_version
from cell_engine.store.database import Connection
from cell_engine.store.demands import RangeScope, dispatch

_PAGE = 1000
_NAMED = 5


@dataclass(frozen=True)
class Request:
    """Columns × batches. `max_cost` is in billionths of a dollar."""

    collection: Collection
    version: Version
    columns: tuple[Column, ...]
    batches: tuple[Batch, ...]
    force: bool = False
    only_if: tuple[str, ...] | None = None
    max_cost: int | None = None

    @property
    def scope(self) -> RangeScope:
        return RangeScope(merged_ranges(self.batches))

    @property
    def column_ids(self) -> list[int]:
        return [column.id for column in self.columns]

    @property
    def total(self) -> int:
        return sum(batch.rows for batch in self.batches) * len(self.columns)

    def dispatch(self, connection: Connection, key: str) -> int:
        return dispatch(
            connection,
            self.collection.id,
            self.scope,
            columns=self.column_ids,
            force=self.force,
            only_if=self.only_if,
            reason="run",
            actor=ACTOR,
            key=key,
            max_cost=self.max_cost,
        )


def merged_ranges(batches: Sequence[Batch]) -> tuple[tuple[int, int], ...]:
    """The row ranges of the batches, in order, neighbours as one: each becomes a sweep."""
    ranges: list[tuple[int, int]] = []
    for batch in sorted((one for one in batches if one.rows), key=lambda one: one.first_row):
        if ranges and batch.first_row <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], max(ranges[-1][1], batch.last_row))
        else:
            ranges.append((batch.first_row, batch.last_row))
    return tuple(ranges)


def resolve(
    log: dg.DagsterLogManager,
    config: FillConfig,
    defined: DefinedCollection,
    names: Some[str],
    keys: Sequence[str],
    engine: PatientEngine,
    *,
    patterns: bool = False,
) -> Request:
    """The request for the computed columns `names` (none: all) of the batches `keys`, which may be `patterns`.

    Raises dg.Failure for a column or batch that is not there.
    """
    collection, is_current = engine(lambda connection: apply_if_unknown(connection, defined))
    if not is_current:
        log.warning(
            f"{defined.full_name} is at version {collection.version}, which is not the definition this run was started "
            f"with: it works with version {collection.version}. Reload the code location to see it."
        )
    version = engine(lambda connection: load_version(connection, collection.id))
    gone = [name for name in names if name not in version.by_name or version.by_name[name].kind is None]
    if gone:
        raise dg.Failure(
            f"{defined.full_name} has no computed column {', '.join(map(repr, sorted(gone)))} in its current version "
            f"{version.number}. Where Dagster shows one by that name, that version was applied from another definition "
            "than the one Dagster loads: apply Dagster's again (`autofill apply`), or put the new one into its file "
            "and reload the code location.",
            allow_retries=False,
        )
    if patterns:
        batches = choose(engine(lambda connection: _all_batches(connection, collection.id)), keys)
    else:
        batches = engine(lambda connection: find_batches(connection, collection.id, keys))
        lacking = set(keys) - {batch.key for batch in batches}
        if lacking:
            raise dg.Failure(
                f"{defined.full_name} has no batch {_some(sorted(lacking))}: its rows were never loaded. "
                "Delete the partition, or drop its file into the inbox again.",
                allow_retries=False,
            )
    return Request(
        collection,
        version,
        tuple(column for column in version.computed if column.name in names or not names),
        tuple(batches),
        config.forces,
        config.only_if,
        config.cap,
    )


def choose(batches: Sequence[Batch], wanted: Sequence[str]) -> list[Batch]:
    """The batches that are wanted by key, by pattern or as `first..last`, in arrival order; a key that is just so goes
    before what it may mean. Raises dg.Failure for what finds none."""
    places = {batch.key: place for place, batch in enumerate(batches)}
    chosen: set[int] = set()
    missing: list[str] = []
    for one in wanted:
        first, dots, last = one.partition("..")
        if one in places:
            found = {places[one]}
        elif dots and first in places and last in places:
            found = set(range(places[first], places[last] + 1))
        else:
            found = {place for key, place in places.items() if fnmatchcase(key, one)}
        chosen |= found
        if not found:
            missing.append(one)
    if missing or not wanted:
        known = _some([batch.key for batch in batches][-_NAMED:])
        raise dg.Failure(
            f"no batch is {_some(missing)}; the latest are: {known}" if missing else f"name batches, such as: {known}",
            allow_retries=False,
        )
    return [batches[place] for place in sorted(chosen)]


def _all_batches(connection: Connection, collection_id: int) -> list[Batch]:
    found: list[Batch] = []
    while page := list_batches(connection, collection_id, after=found[-1].id if found else 0, limit=_PAGE):
        found += page
    return found


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more:,} more" if more > 0 else "") if names else "none"
