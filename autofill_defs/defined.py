"""A collection as this code location defines it, and every name that Dagster knows it by."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import dagster as dg

from cell_engine.specs.compile import CompiledSpec
from cell_engine.specs.compiled import SpecColumn

ROWS = "rows"
MAX_ERROR_RATE = 0.05
"""Of a run's cells, where the component declares no other."""


@dataclass(frozen=True)
class DefinedCollection:
    """`spec` as compiled when the code location was loaded; files dropped into `inbox` become rows.

    `owners`, `tags` and `group` are those of its assets (None: a group of its own). Runs fail above `max_error_rate`.
    `file` is the YAML, and `lines` where its columns begin in it; both may be unknown.
    """

    spec: CompiledSpec
    inbox: Path
    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    group: str | None = None
    max_error_rate: float = MAX_ERROR_RATE
    file: Path | None = None
    lines: Mapping[str, int] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        return f"{self.spec.namespace}/{self.spec.name}"

    @property
    def identifier(self) -> str:
        """What jobs, sensors and groups are called: Dagster allows letters, digits and underscores in them."""
        return f"{self.spec.namespace}__{self.spec.name}"

    @property
    def rows_key(self) -> dg.AssetKey:
        return self.column_key(ROWS)

    def column_key(self, column_name: str) -> dg.AssetKey:
        return dg.AssetKey([self.spec.namespace, self.spec.name, column_name])

    @property
    def partitions(self) -> dg.DynamicPartitionsDefinition:
        """One partition a batch, in the order in which they arrived."""
        return dg.DynamicPartitionsDefinition(name=self.full_name)

    @cached_property
    def inputs(self) -> tuple[SpecColumn, ...]:
        return tuple(column for column in self.spec.columns if column.kind is None)

    @cached_property
    def computed(self) -> tuple[SpecColumn, ...]:
        return tuple(column for column in self.spec.columns if column.kind is not None)
