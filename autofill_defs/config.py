"""What can be set for a run in the launchpad."""

from enum import Enum

import dagster as dg
from pydantic import Field

from cell_engine.prices import dollars
from cell_engine.store.reading import FAILED

POLICY = frozenset({"dry_run", "max_error_rate", "cancel_on_terminate"})
"""What says how a run looks at its dispatch; the rest is what it asks for."""


class Only(Enum):
    """Which cells, by what they are. In a list Dagster takes the name, where it stands alone the value: both agree."""

    empty = "empty"
    outdated = "outdated"
    not_found = "not_found"
    errors = "errors"


class ErrorClass(Enum):
    """The classes of errors that cells can be in; those of `FAILED`."""

    transient = "transient"
    rate_limited = "rate_limited"
    quota = "quota"
    auth = "auth"
    model_missing = "model_missing"
    too_long = "too_long"
    truncated = "truncated"
    refused = "refused"
    schema = "schema"
    bad_input = "bad_input"
    function_error = "function_error"
    crashed = "crashed"
    unsupported = "unsupported"


class FillConfig(dg.Config):
    """The same as `autofill reprocess` and `retry` take, and what the run is to make of it."""

    only: list[Only] = Field(
        default=[],
        description="Only cells that are any of these; [] for all. Cells that are up to date are left alone either "
        "way. `not_found` looks anew, past the cache.",
        examples=[["empty", "outdated"]],
    )
    error_classes: list[ErrorClass] = Field(
        default=[],
        description="Only cells in an error of these classes, beside what `only` says.",
        examples=[["schema", "too_long"]],
    )
    force: bool = Field(
        default=False, description="Compute again also what is up to date. Every cell in scope is paid for again."
    )
    max_cost: float | None = Field(
        default=None,
        ge=0,
        description="Dollars. Once the dispatch has cost this it is paused, and the run reports what there is and "
        "fails. Calls in flight run to their end.",
    )
    dry_run: bool = Field(
        default=False,
        description="Only say what it would compute and cost, from a sample: an observation of each column, no "
        "materialization, no call.",
    )
    max_error_rate: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="The run fails when more than this share of its cells ended in error. Good cells are kept, and "
        "reported, either way. Default: what the collection's component declares.",
    )
    cancel_on_terminate: bool = Field(
        default=False,
        description="Whether terminating the run also takes back what is not computed yet. Otherwise the run only "
        "stops waiting, the cells go on, and Re-execute waits for them again.",
    )

    @property
    def only_if(self) -> tuple[str, ...] | None:
        """As `dispatch` takes it."""
        classes = {one.value for one in self.error_classes} | (FAILED if Only.errors in self.only else set())
        plain = {one.value for one in self.only if one is not Only.errors}
        return tuple(sorted(plain | {f"error:{one}" for one in classes})) or None

    @property
    def forces(self) -> bool:
        """Not found is an answer, and current: only a force has it looked for again."""
        return self.force or Only.not_found in self.only

    @property
    def cap(self) -> int | None:
        """`max_cost` in billionths of a dollar."""
        return None if self.max_cost is None else dollars(repr(self.max_cost))

    @property
    def asks(self) -> dict[str, object]:
        """What a dispatch is asked for: runs that differ in it do not wait for each other's."""
        return self.model_dump(exclude=set(POLICY))


class BatchesConfig(FillConfig):
    """A set of batches, whichever."""

    batches: list[str] = Field(
        description="Batches by key or by pattern: `4ed6626a8b9532b7-*` for all of a file, `*` for all there are. A "
        "`first..last` is a range in the order in which they arrived. With `only: [outdated]` and `*`: all that is "
        "outdated.",
        examples=[["4ed6626a8b9532b7-0001"], ["4ed6626a8b9532b7-*"], ["*"]],
    )
    columns: list[str] = Field(default=[], description="Computed columns by name; [] for all of them.")


class TickConfig(dg.Config):
    """What a schedule's run is told."""

    columns: list[str] = Field(
        default=[], description="Columns of mode cron, by name; [] for all of them, whatever their schedules."
    )
    max_error_rate: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="The run fails when more than this share of its cells ended in error. Good cells are kept, and "
        "reported, either way. Default: what the collection's component declares.",
    )

    @property
    def asks(self) -> dict[str, object]:
        """What a dispatch is asked for."""
        return {"columns": self.columns}
