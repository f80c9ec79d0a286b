"""What a column says of review: which answers a person looks at before they are shown, and what happens if nobody does.

`review: required` holds every answer; `review: {when: {choice: [high]}}` those that a rule names. A rule is one of a
small closed set, made for the column's type; of several in one `when`, any one is enough.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from cell_engine.specs import duration
from cell_engine.specs.text import Json, shorten

REQUIRED = "required"
LONGEST_DAYS = 366

Then = Literal["accept", "reject", "wait"]


@dataclass(frozen=True)
class Rule:
    """Answers that are held: one of `choices`, above or below a number, or the boolean `is_value`."""

    choices: tuple[str, ...] = ()
    above: float | None = None
    below: float | None = None
    is_value: bool | None = None

    def holds(self, value: Json) -> bool:
        if self.is_value is not None and value is self.is_value:
            return True
        if isinstance(value, int | float) and not isinstance(value, bool):
            return (self.above is not None and value > self.above) or (self.below is not None and value < self.below)
        return any(one in self.choices for one in (value if isinstance(value, list) else [value]))

    def to_json(self) -> dict[str, Json]:
        choices: list[Json] = [*self.choices]
        rule: dict[str, Json] = {"choice": choices or None, "above": self.above, "below": self.below}
        return {name: value for name, value in (rule | {"is": self.is_value}).items() if value is not None}

    @classmethod
    def from_json(cls, rule: Mapping[str, Any]) -> "Rule":
        return cls(tuple(rule.get("choice", ())), rule.get("above"), rule.get("below"), rule.get("is"))


@dataclass(frozen=True)
class Review:
    """`when` is None where every answer is held. After `within` seconds (None: for ever), `then` is what happens."""

    when: Rule | None = None
    within: float | None = None
    then: Then = "wait"

    def asks(self, value: Json, is_not_found: bool = False) -> bool:
        """Whether a person looks at such an answer first. That there is no value to be found may be wrong, too, but no
        rule is about it; an answer that is empty without saying so says nothing that could be."""
        if self.when is None:
            return value is not None or is_not_found
        return value is not None and self.when.holds(value)

    def to_json(self) -> dict[str, Json]:
        return {
            "when": None if self.when is None else self.when.to_json(),
            "within": self.within,
            "then": self.then,
        }

    @classmethod
    def from_json(cls, definition: Mapping[str, Any] | None) -> "Review | None":
        if definition is None:
            return None
        rule = definition["when"]
        return cls(None if rule is None else Rule.from_json(rule), definition["within"], definition["then"])


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, populate_by_name=True)


class RuleModel(_Strict):
    choice: list[str] | None = Field(None, min_length=1)
    above: float | None = None
    below: float | None = None
    is_: bool | None = Field(None, alias="is")

    @model_validator(mode="after")
    def _names_something(self) -> "RuleModel":
        if not self.model_fields_set:
            raise ValueError("a rule is one of choice, above, below, is; to hold every answer leave `when` out")
        return self


def _seconds(text: Any) -> float:
    found = duration.seconds(text)
    if found is None or not 0 < found <= LONGEST_DAYS * 86_400:
        raise ValueError(
            f"{shorten(str(text))} is no time for a review: a whole number with s, m, h or d, such as 12h or 3d, "
            f"and {LONGEST_DAYS}d at most"
        )
    return float(found)


class ReviewModel(_Strict):
    when: RuleModel | None = None
    within: Annotated[float, BeforeValidator(_seconds)] | None = None
    then: Then | None = None

    @model_validator(mode="after")
    def _belongs_together(self) -> "ReviewModel":
        if self.then is not None and self.within is None:
            raise ValueError(f"then: {self.then} after how long? Say it by within, such as within: 3d")
        if self.within is not None and self.then is None:
            raise ValueError("within without then: say what happens after that time: accept, reject or wait")
        return self


def required_as_review(value: Any) -> Any:
    """`review: required` is the short form of holding every answer."""
    if value == REQUIRED:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"expected {REQUIRED} or {{when: …, within: …, then: …}}, got {shorten(str(value))}")
    return value


def review_of(model: ReviewModel | None) -> Review | None:
    if model is None:
        return None
    rule = model.when
    when = None if rule is None else Rule(tuple(rule.choice or ()), rule.above, rule.below, rule.is_)
    return Review(when, model.within, model.then or "wait")
