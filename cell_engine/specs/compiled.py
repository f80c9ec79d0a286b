"""What a spec compiles to: columns by their stable keys, normalized and hashed. Numeric ids come with `bind`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b

from cell_engine.specs import prompt
from cell_engine.specs.files import FileSource
from cell_engine.specs.loading import SpecLoading
from cell_engine.specs.review import Review
from cell_engine.specs.schedule import Schedule
from cell_engine.specs.settings_models import SETTINGS_MODELS
from cell_engine.specs.text import Json
from cell_engine.specs.types import ColumnType
from cell_engine.specs.version import Cache, Column, Dependency, Mode, NotFound, dependency_json


@dataclass(frozen=True)
class SpecDependency:
    """A column that is read, by key."""

    column: str
    optional: bool
    not_found: NotFound | None = None
    silent: bool = False


@dataclass(frozen=True)
class SpecColumn:
    """A column as compiled; see Column for the fields. `deps` are sorted by key: their order in the file says nothing.

    An input column has mode `never`, no timeout and no attempts (0): nothing computes it.
    """

    key: str
    name: str
    type: ColumnType
    kind: str | None
    mode: Mode
    deps: tuple[SpecDependency, ...]
    timeout: float
    attempts: int
    settings: Mapping[str, Json]
    cache: Cache | None = None
    files: FileSource | None = None
    review: Review | None = None
    schedule: Schedule | None = None

    @cached_property
    def definition(self) -> dict[str, Json]:
        """What determines the answer, given the inputs."""
        ignored = SETTINGS_MODELS[self.kind].leaves_answer if self.kind is not None else ()
        said: dict[str, Json] = {
            "type": self.type.to_json(),
            "kind": self.kind,
            "deps": [dependency_json(dep.column, dep.optional, dep.not_found, dep.silent) for dep in self.deps],
            "settings": {name: value for name, value in self.settings.items() if name not in ignored},
        }
        if self.kind is not None and self.files is not None:
            said["files"] = self.files.root  # other files by the same names
        return said

    @cached_property
    def hash(self) -> bytes:
        return _hash(self.definition)

    @cached_property
    def normalized(self) -> dict[str, Json]:
        normalized = self.definition | {
            "key": self.key,
            "name": self.name,
            "settings": dict(self.settings),
            "mode": self.mode,
            "timeout": self.timeout,
            "attempts": self.attempts,
        }
        # Only where it is not as the kind has it: a spec that says nothing of the cache is the version it was before.
        usual = Cache() if self.kind is not None and SETTINGS_MODELS[self.kind].cached else None
        if self.cache != usual:
            normalized["cache"] = None if self.cache is None else {"ttl": self.cache.ttl}
        if self.files is not None:
            normalized["files"] = self.files.to_json()
        if self.review is not None:
            normalized["review"] = self.review.to_json()
        if self.schedule is not None:
            normalized["schedule"] = self.schedule.to_json()
        return normalized


@dataclass(frozen=True)
class CompiledSpec:
    """A collection's spec without mistakes. `cap` bounds the calls in flight; None leaves that to the caps around it.

    `hash` (16 bytes) covers all of `normalized`, names and order of columns included: equal hashes are one version.
    """

    namespace: str
    name: str
    cap: int | None
    columns: tuple[SpecColumn, ...]
    loading: SpecLoading = field(default_factory=SpecLoading)

    @cached_property
    def normalized(self) -> dict[str, Json]:
        return {
            "namespace": self.namespace,
            "name": self.name,
            "cap": self.cap,
            "columns": [column.normalized for column in self.columns],
            **self.loading.normalized,
        }

    @cached_property
    def hash(self) -> bytes:
        return _hash(self.normalized)

    def bind(self, ids: Mapping[str, int]) -> tuple[Column, ...]:
        """The columns with the numeric ids that `ids` gives to their keys. Raises KeyError for a key it lacks."""
        return tuple(
            Column(
                id=ids[column.key],
                key=column.key,
                name=column.name,
                type=column.type,
                kind=column.kind,
                mode=column.mode,
                deps=tuple(Dependency(ids[dep.column], dep.optional, dep.not_found, dep.silent) for dep in column.deps),
                timeout=column.timeout,
                attempts=column.attempts,
                settings=_bind_settings(column, ids),
                hash=column.hash,
                cache=column.cache,
                files=column.files,
                review=column.review,
                schedule=column.schedule,
            )
            for column in self.columns
        )


def _bind_settings(column: SpecColumn, ids: Mapping[str, int]) -> dict[str, Json]:
    settings = dict(column.settings)
    if column.kind is not None:
        for field in SETTINGS_MODELS[column.kind].prompt_fields:
            parts = settings.get(field)
            if isinstance(parts, list):
                settings[field] = prompt.bind(parts, ids)
    return settings


def _hash(definition: dict[str, Json]) -> bytes:
    # Stored, and part of every cell's fingerprint: another way to write it down would recompute every cell.
    canonical = json.dumps(definition, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return blake2b(canonical.encode("ascii"), digest_size=16).digest()
