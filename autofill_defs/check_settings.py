"""What a component says of its checks."""

from typing import Annotated, Literal, Self

import dagster as dg
from pydantic import Field, field_validator, model_validator

from cell_engine.specs import duration

Severity = Literal["warn", "error"]


class CheckModel(dg.Model, dg.Resolvable):
    severity: Annotated[
        Severity | None,
        dg.Resolver.default(description="What a failed check is. By default error_rate is an error, the others warn."),
    ] = None
    blocking: Annotated[
        bool,
        dg.Resolver.default(
            description="Whether what depends on the column, such as the table, is left out of a run in which it fails."
        ),
    ] = False

    @model_validator(mode="after")
    def _blocks_by_errors(self) -> Self:
        if self.blocking and self.severity == "warn":
            raise ValueError("blocking goes with severity: error. A warning stops nothing")
        return self


class ErrorRateModel(CheckModel):
    max: Annotated[
        float | None,
        dg.Resolver.default(
            description="The share of a column's cells that may be in error; by default what the runs may have "
            "(max_error_rate)."
        ),
    ] = Field(default=None, ge=0, le=1)


class EvidenceModel(CheckModel):
    min: Annotated[
        float,
        dg.Resolver.default(
            description="Of columns with `evidence: required`: the least share of cells whose answer has a quote that "
            "stands in an input."
        ),
    ] = Field(default=0.9, ge=0, le=1)


class FreshnessModel(CheckModel):
    within: Annotated[
        str,
        dg.Resolver.default(
            description="How long what is due may wait (mode on_change), and how long after its time a refresh may "
            "take (mode cron): 90s, 15m, 12h or 3d.",
            examples=["15m"],
        ),
    ] = "1h"

    @field_validator("within")
    @classmethod
    def _is_a_duration(cls, within: str) -> str:
        if not duration.seconds(within):
            raise ValueError("it is a time such as 90s, 15m, 12h or 3d")
        return within

    @property
    def seconds(self) -> int:
        return duration.seconds(self.within) or 0


class ChecksModel(dg.Model, dg.Resolvable):
    """The checks of a collection's computed columns: thresholds, and which of them block."""

    error_rate: ErrorRateModel = Field(default_factory=ErrorRateModel)
    evidence: EvidenceModel = Field(default_factory=EvidenceModel)
    freshness: FreshnessModel = Field(default_factory=FreshnessModel)
