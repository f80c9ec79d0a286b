"""What an ``llm`` column says of texts too long for one request."""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from cell_engine.specs.prompt import references


class Chunks(BaseModel):
    """Parts of at most ``size`` characters, each beginning with the last ``overlap`` of the one before. ``failed`` is
    what a part without an answer means for the cell."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    size: int = Field(ge=200, le=10_000_000)
    overlap: int = Field(0, ge=0)
    failed: Literal["fail", "leave_out"] = "fail"

    @model_validator(mode="after")
    def _overlap_leaves_room(self) -> "Chunks":
        if self.overlap > self.size // 2:
            raise ValueError(f"an overlap of {self.overlap:,} is more than half of the size, {self.size:,}")
        return self


def check_chunks(has_chunks: bool, prompts: Mapping[str, str | None]) -> None:
    """Whether ``prompt``, ``map`` and ``reduce`` go together. Raises ValueError."""
    if not has_chunks:
        alone = [name for name in ("map", "reduce") if prompts.get(name) is not None]
        if alone:
            raise ValueError(f"{' and '.join(alone)} without chunks: {{size: 8000}} would never be asked")
        return
    missing = [name for name in ("map", "reduce") if prompts.get(name) is None]
    if missing:
        raise ValueError(f"chunks need {' and '.join(missing)}: what is asked of a part, and of what all came to")
    cut = sorted(set(references(prompts.get("map") or "")))
    if len(cut) != 1:
        raise ValueError(f"map refers to one column, the one that is cut, and not to {len(cut)}")
    for name in ("prompt", "reduce"):
        text = prompts.get(name)
        if text is not None and cut[0] not in references(text):
            raise ValueError(f"{name} does not refer to {{{{{cut[0]}}}}}, which is what map cuts")
