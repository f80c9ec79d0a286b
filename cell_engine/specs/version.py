"""A collection's columns as everything behind the compiler sees them: immutable, ids resolved, the DAG in order.

A column's numeric `id` is the database's and survives renames, as does its `key`; `name` is for people.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import TopologicalSorter
from typing import Any, Literal

from cell_engine.specs.files import FileSource
from cell_engine.specs.review import Review
from cell_engine.specs.schedule import Schedule
from cell_engine.specs.settings_models import SETTINGS_MODELS
from cell_engine.specs.text import Json
from cell_engine.specs.types import ColumnType

Mode = Literal["on_change", "cron", "never"]


NotFound = Literal["skip", "run", "propagate"]
"""What a cell comes to whose input was not found: blocked; computed with that input absent; not found itself."""


@dataclass(frozen=True)
class Dependency:
    """A column that is read, by id. A row is not computed while a dependency that is not `optional` is missing.

    `not_found` is None where it is as usual, so that a definition that says nothing of it is what it always was. One
    that is `silent` is followed only: its change makes the reader due, which is not given its value.
    """

    column: int
    optional: bool
    not_found: NotFound | None = None
    silent: bool = False

    @property
    def if_not_found(self) -> NotFound:
        return self.not_found or usual_not_found(self.optional)

    def to_json(self) -> dict[str, Json]:
        return dependency_json(self.column, self.optional, self.not_found, self.silent)


def usual_not_found(optional: bool) -> NotFound:
    """Where a dependency says nothing of it, not found is as good as missing."""
    return "run" if optional else "skip"


def dependency_json(
    column: int | str, optional: bool, not_found: NotFound | None, silent: bool = False
) -> dict[str, Json]:
    """Only what is said, so that a definition that says nothing of the rest is what it always was."""
    definition: dict[str, Json] = {"column": column, "optional": optional}
    if not_found is not None:
        definition["not_found"] = not_found
    return definition | {"silent": True} if silent else definition


@dataclass(frozen=True)
class Cache:
    """How a column takes answers that an equal call gave before: those of the last `ttl` seconds, None for all kept."""

    ttl: float | None = None


@dataclass(frozen=True)
class Column:
    """One column of a version.

    `kind` is None for an input. `timeout` is seconds for one call, `attempts` the calls made before a transient
    failure stays. `settings` are the kind's own, normalized. `hash` (16 bytes) covers the definition: type, kind,
    dependencies by key and settings, and nothing that leaves the answer alone (name, mode, schedule, timeout, attempts,
    cache, review). `cache` is None for a column that computes each cell itself, `review` for one that shows answers at
    once. `files` is there where it has to do with files, `schedule` where it is of mode cron, but for versions of
    before there were any: such a column is computed only when asked for.
    """

    id: int
    key: str
    name: str
    type: ColumnType
    kind: str | None
    mode: Mode
    deps: tuple[Dependency, ...]
    timeout: float
    attempts: int
    settings: Mapping[str, Json] = field(hash=False)
    hash: bytes
    cache: Cache | None = None
    files: FileSource | None = None
    review: Review | None = None
    schedule: Schedule | None = None

    @property
    def job_type(self) -> str:
        """The pool of workers that computes this column: its kind. Raises ValueError for an input column."""
        if self.kind is None:
            raise ValueError(f"column {self.name!r} is an input: nothing computes it")
        return self.kind

    def to_json(self) -> dict[str, Json]:
        """The column as JSON, all of it; `from_json` reads it back."""
        said: dict[str, Json] = {
            "id": self.id,
            "key": self.key,
            "name": self.name,
            "type": self.type.to_json(),
            "kind": self.kind,
            "mode": self.mode,
            "deps": [dep.to_json() for dep in self.deps],
            "timeout": self.timeout,
            "attempts": self.attempts,
            "settings": dict(self.settings),
            "hash": self.hash.hex(),
            "cache": None if self.cache is None else {"ttl": self.cache.ttl},
            "review": None if self.review is None else self.review.to_json(),
        }
        if self.schedule is not None:
            said["schedule"] = self.schedule.to_json()
        return said if self.files is None else said | {"files": self.files.to_json()}

    @classmethod
    def from_json(cls, definition: Mapping[str, Any]) -> "Column":
        return cls(
            id=definition["id"],
            key=definition["key"],
            name=definition["name"],
            type=ColumnType.from_json(definition["type"]),
            kind=definition["kind"],
            mode=definition["mode"],
            deps=tuple(
                Dependency(dep["column"], dep["optional"], dep.get("not_found"), dep.get("silent", False))
                for dep in definition["deps"]
            ),
            timeout=float(definition["timeout"]),
            attempts=definition["attempts"],
            settings=definition["settings"],
            hash=bytes.fromhex(definition["hash"]),
            cache=_cache(definition),
            files=FileSource.from_json(definition.get("files")),
            review=Review.from_json(definition.get("review")),
            schedule=Schedule.from_json(definition.get("schedule")),
        )


def _cache(definition: Mapping[str, Any]) -> Cache | None:
    if "cache" in definition:
        return None if definition["cache"] is None else Cache(definition["cache"]["ttl"])
    # written by code that knew no cache
    settings = SETTINGS_MODELS.get(definition["kind"])
    return Cache() if settings is not None and settings.cached else None


@dataclass(frozen=True)
class Version:
    """An immutable, numbered compile of a collection's schema. What follows from the columns is worked out once.

    Its dependencies form a DAG (the compiler refused everything else); a cycle raises graphlib.CycleError.
    """

    collection_id: int
    number: int
    columns: tuple[Column, ...]

    @cached_property
    def by_id(self) -> dict[int, Column]:
        return {column.id: column for column in self.columns}

    @cached_property
    def by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}

    @cached_property
    def keys(self) -> dict[int, str]:
        """What prompts and functions call the columns, by id."""
        return {column.id: column.key for column in self.columns}

    @cached_property
    def reads(self) -> dict[int, tuple[int, ...]]:
        """The ids of the columns that each column reads directly, by its id."""
        return {column.id: tuple(dep.column for dep in column.deps) for column in self.columns}

    @cached_property
    def readers(self) -> dict[int, tuple[Column, ...]]:
        """The columns that read each column directly, by its id, in the order of `computed`."""
        return {
            source.id: tuple(one for one in self.computed if any(dep.column == source.id for dep in one.deps))
            for source in self.columns
        }

    @cached_property
    def input_columns(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column.kind is None)

    @cached_property
    def computed(self) -> tuple[Column, ...]:
        """The computed columns, each after all it reads; those of equal depth in the order of the file."""
        place = {column.id: place for place, column in enumerate(self.columns)}
        sorter = TopologicalSorter({column.id: [dep.column for dep in column.deps] for column in self.columns})
        sorter.prepare()
        order: list[Column] = []
        while sorter.is_active():
            ready = sorted(sorter.get_ready(), key=place.__getitem__)
            order += (self.by_id[column] for column in ready if self.by_id[column].kind is not None)
            sorter.done(*ready)
        return tuple(order)

    def dependents(self, column_id: int) -> tuple[int, ...]:
        """The ids of all columns that read this one, directly or not, in the order of `computed`."""
        return self._dependents[column_id]

    @cached_property
    def _dependents(self) -> dict[int, tuple[int, ...]]:
        reached: dict[int, set[int]] = {column.id: set() for column in self.columns}
        for column in reversed(self.computed):
            for dep in column.deps:
                reached[dep.column] |= {column.id} | reached[column.id]
        order = [column.id for column in self.computed]
        return {source: tuple(target for target in order if target in found) for source, found in reached.items()}
