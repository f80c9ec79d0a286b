"""A call in a process of its own is the call that it would be here."""

from __future__ import annotations

import pytest

from cell_engine.kinds.apart import Apart
from cell_engine.kinds.base import Answer, Failure
from cell_engine.offline_model import MODEL_NAME, OfflineModel
from tests.kinds.helpers import TEXT, call, function_column, llm_column

pytestmark = pytest.mark.anyio


async def test_a_model_is_called_with_the_workers_own_settings(
    model: OfflineModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    outcome = await Apart().start(call(llm_column(), "It is a thing that works."))
    assert isinstance(outcome, Answer)
    assert (outcome.value, outcome.model) == ("It is a thing that works.", MODEL_NAME)
    assert outcome.tokens_in == model.stats.tokens_in > 0


async def test_what_a_function_prints_and_reads_is_not_the_workers() -> None:
    assert await Apart().start(call(function_column("talks", TEXT), "x")) == Answer("x and ''")


async def test_a_failure_is_a_failure_and_no_death() -> None:
    outcome = await Apart().start(call(function_column("fails"), "x"))
    assert isinstance(outcome, Failure)
    assert outcome.error_class == "function_error"


async def test_whatever_ends_the_process_is_a_death(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cell_engine.kinds.apart.PAUSE_SECONDS", 0.0)
    apart = Apart()
    outcome = await apart.start(call(function_column("leaves", TEXT), "x"))
    assert isinstance(outcome, Failure)
    assert outcome.error_class == "crashed"
    assert "(exit code 3, exit code 3, exit code 3)" in outcome.message


async def test_a_process_that_cannot_be_started_is_no_death(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    outcome = await Apart().start(call(function_column("length"), "x"))
    assert isinstance(outcome, Failure)
    assert (outcome.error_class, "No such file" in outcome.message) == ("transient", True)
