"""Kinds compute cells: ``llm`` by a language model, ``function`` by Python. Inputs in, an outcome out."""

from __future__ import annotations

from cell_engine.kinds.base import PAUSING, RETRYABLE, Answer, Call, ErrorClass, Failure, Kind, Outcome
from cell_engine.kinds.registry import JOB_TYPES, make_kinds

__all__ = [
    "JOB_TYPES",
    "PAUSING",
    "RETRYABLE",
    "Answer",
    "Call",
    "ErrorClass",
    "Failure",
    "Kind",
    "Outcome",
    "make_kinds",
]
