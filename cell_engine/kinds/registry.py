"""The kinds this process can serve, by job type."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cell_engine.errors import NotFoundError
from cell_engine.kinds.base import Kind


# Imported when asked for: the model's client alone takes 0.9 s of CPU, in each process that computes a call apart, too.
def _extract() -> Kind:
    from cell_engine.kinds.extract import ExtractKind

    return ExtractKind()


def _fetch() -> Kind:
    from cell_engine.kinds.fetch import FetchKind

    return FetchKind()


def _function() -> Kind:
    from cell_engine.kinds.function import FunctionKind

    return FunctionKind()


def _llm() -> Kind:
    from cell_engine.kinds.llm import LlmKind

    return LlmKind()


_KINDS: dict[str, Callable[[], Kind]] = {
    "extract": _extract,
    "fetch": _fetch,
    "function": _function,
    "llm": _llm,
}

JOB_TYPES: tuple[str, ...] = tuple(_KINDS)
"""All job types there are. A new kind is added above, and its settings to cell_engine.specs.settings_models."""


def make_kinds(job_types: Iterable[str]) -> dict[str, Kind]:
    """One kind per job type. Raises NotFoundError for a job type that nothing here computes."""
    wanted = list(dict.fromkeys(job_types))
    unknown = [job_type for job_type in wanted if job_type not in _KINDS]
    if unknown:
        raise NotFoundError(
            f"Unknown job type {', '.join(map(repr, unknown))}: this worker knows {', '.join(sorted(_KINDS))}."
        )
    return {job_type: _KINDS[job_type]() for job_type in wanted}
