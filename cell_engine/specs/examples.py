"""Few-shot examples of an ``llm`` column: what it would read, and what it would answer.

They are shown to the model as turns of the conversation, in the very form of the real one, so that whatever an example
answers must be an answer that the column would take.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from cell_engine.errors import BadValueError
from cell_engine.specs import answer_shape
from cell_engine.specs.text import Json, clean, shorten
from cell_engine.specs.types import ColumnType


class QuoteModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    column: str
    quote: str


class ExampleModel(BaseModel):
    """``inputs`` by column name, one left out is absent. It answers ``output``, or ``not_found`` with a reason."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    inputs: dict[str, Any]
    output: Any = None
    not_found: str | None = None
    evidence: list[QuoteModel] | None = None


Examples = Annotated[list[ExampleModel], Field(min_length=1, max_length=50)]


def problems(
    examples: Sequence[ExampleModel],
    column_type: ColumnType | None,
    settings: Mapping[str, Json],
    names: Collection[str],
) -> Iterator[tuple[int, str, str]]:
    """Mistakes: the example's place, the key, and what is wrong. ``names`` are the columns that the prompt refers to;
    ``column_type`` is None where it has mistakes of its own."""
    for place, example in enumerate(examples):
        for name in example.inputs.keys() - set(names):
            yield place, "inputs", f"the prompt refers to no column {shorten(name)}"
        for quote in example.evidence or ():
            if quote.column not in example.inputs:
                yield place, "evidence", f"the example has no input {shorten(quote.column)}"
            elif quote.quote not in str(example.inputs[quote.column]):
                yield place, "evidence", f"{shorten(quote.quote)} does not stand in its input"
        if (example.output is None) == (example.not_found is None):
            yield place, "output", "an example answers either output or not_found"
        elif example.not_found is not None:
            if not answer_shape.may_not_find(settings):
                yield place, "not_found", "this column has to answer: say not_found: true in its settings, too"
        elif answer_shape.needs_evidence(settings) != bool(example.evidence):
            has = "needs" if answer_shape.needs_evidence(settings) else "has no"
            yield place, "evidence", f"an answer of this column {has} evidence"
        if example.output is not None and column_type is not None:
            try:
                column_type.accept(example.output)
            except BadValueError as error:
                yield place, "output", str(error)


def normalize(examples: Sequence[ExampleModel], column_type: ColumnType, keys: Mapping[str, str]) -> list[Json]:
    """As they are kept, with column keys for names: a rename changes nothing. Of examples without mistakes."""
    return [
        {
            "inputs": {keys[name]: clean(value) for name, value in sorted(example.inputs.items()) if value is not None},
            "output": None if example.output is None else column_type.accept(example.output),
            "not_found": example.not_found,
            "evidence": [{"column": keys[one.column], "quote": one.quote} for one in example.evidence or ()],
        }
        for example in examples
    ]
