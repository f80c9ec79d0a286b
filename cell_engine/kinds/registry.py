"""The kinds this process can serve, by job type."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from cell_engine.errors import AutofillError, NotFoundError
from cell_engine.kinds.base import Kind
from cell_engine.log import get_logger
from cell_engine.specs import plugins

log = get_logger(__name__)


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


def _transcribe() -> Kind:
    from cell_engine.kinds.transcribe import TranscribeKind

    return TranscribeKind()


_KINDS: dict[str, Callable[[], Kind]] = {
    "extract": _extract,
    "fetch": _fetch,
    "function": _function,
    "llm": _llm,
    "transcribe": _transcribe,
}

JOB_TYPES: tuple[str, ...] = tuple(_KINDS)
"""The engine's own. A new kind is added above, and its settings to cell_engine.specs.settings_models."""

_NEEDED = ("check", "at_once", "provider", "compute", "close")


def make_kinds(job_types: Iterable[str] | None = None) -> dict[str, Kind]:
    """One kind per job type. Raises NotFoundError for a job type that nothing here computes, AutofillError for one of
    another package that is broken. Without `job_types` all there are, and what is broken is left out, and told."""
    others = plugins.load()
    if job_types is None:
        return _all(others)
    wanted = list(dict.fromkeys(job_types))
    broken = [f"{one!r} is left out: {others.broken[one]}" for one in wanted if one in others.broken]
    if broken:
        raise NotFoundError(f"Job type {'; '.join(broken)}.")
    known = {**_KINDS, **others.working}
    unknown = [job_type for job_type in wanted if job_type not in known]
    if unknown:
        raise NotFoundError(
            f"Unknown job type {', '.join(map(repr, unknown))}: this worker knows {', '.join(sorted(known))}."
        )
    return {job_type: _make(job_type, others) for job_type in wanted}


def _all(others: plugins.Plugins) -> dict[str, Kind]:
    kinds = {job_type: make() for job_type, make in _KINDS.items()}
    broken = dict(others.broken)
    for name in others.working:
        try:
            kinds[name] = _make(name, others)
        except AutofillError as error:
            broken[name] = str(error)
    for name, why in broken.items():
        log.warning("a kind is left out", kind=name, why=why)
    return kinds


def _make(name: str, others: plugins.Plugins) -> Kind:
    if name in _KINDS:
        return _KINDS[name]()
    try:
        kind = others.working[name].make()
    except Exception as error:
        raise AutofillError(f"Kind {name!r} cannot be made: {type(error).__name__}: {error}") from error
    missing = [one for one in _NEEDED if not callable(getattr(kind, one, None))]
    if missing or getattr(kind, "name", None) != name:
        wrong = f"lacks {', '.join(missing)}" if missing else f"is named {getattr(kind, 'name', None)!r}"
        raise AutofillError(f"Kind {name!r} is no cell_engine.kinds.base.Kind: it {wrong}")
    return cast(Kind, kind)
