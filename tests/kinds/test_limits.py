"""What is read of an endpoint's headers, and whose limits they are."""

from __future__ import annotations

import pytest

from cell_engine.kinds.base import Failure, Traffic
from cell_engine.kinds.function import FunctionKind
from cell_engine.kinds.limits import note_limits
from cell_engine.kinds.llm import LlmKind
from cell_engine.offline_model import OfflineModel, Switches
from tests.kinds.helpers import Script, ScriptedProvider, call, completion, function_column, llm_column


def _headers(limit: str, remaining: str, reset: str) -> dict[str, str]:
    return {
        "x-ratelimit-limit-requests": limit,
        "x-ratelimit-remaining-requests": remaining,
        "x-ratelimit-reset-requests": reset,
    }


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        (_headers("500", "499", "120ms"), 999),  # all is there: twice the limit is what a minute may bring
        (_headers("500", "0", "1m0s"), 500),
        (_headers("500", "250", "30s"), 750),
        (_headers("14400", "14370", "2m59.56s"), 14380),  # a day's: what comes back is ten a minute
        (_headers("100", "50", "30"), 150),
        (_headers("100", "50", "1764500000"), None),  # a point in time
        (_headers("100", "50", "2026-11-30T04:00:00Z"), None),
        (_headers("100", "50", "0s"), None),
        (_headers("many", "50", "1s"), None),
        (_headers("100", "-1", "1s"), None),
        ({"x-ratelimit-limit-requests": "100"}, None),
        ({}, None),
    ],
)
def test_what_headers_leave_a_minute(headers: dict[str, str], found: int | None) -> None:
    traffic = Traffic()
    note_limits(traffic, headers)
    assert (traffic.requests_minute, traffic.tokens_minute) == (found, None)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://user:secret@Host.example/v1?key=k", "https://host.example/v1/"),
        ("HTTP://127.0.0.1:8080/v1/", "http://127.0.0.1:8080/v1/"),
        ("http://[::1]:80", "http://[::1]:80/"),
        (None, "https://api.openai.com/v1/"),
    ],
)
def test_limits_belong_to_base_url_and_model_without_secrets(address: str | None, shown: str) -> None:
    assert LlmKind(base_url=address).provider(llm_column()) == (shown, "gpt-5-mini")
    assert FunctionKind().provider(function_column("count")) is None


@pytest.mark.anyio
async def test_each_request_of_a_call_is_counted_and_its_headers_are_heard(
    scripted: LlmKind, provider: ScriptedProvider
) -> None:
    headers = _headers("60", "30", "30s") | {"x-ratelimit-limit-tokens": "x"}
    provider.script = [Script(completion("no JSON")), Script(completion('{"value": "x"}'), headers=headers)]
    asked = call(llm_column(), "x")
    asked.traffic = Traffic()
    await scripted.compute(asked)
    assert asked.traffic == Traffic(2, 90, None)


@pytest.mark.anyio
async def test_they_are_heard_of_a_429_too(llm: LlmKind, model: OfflineModel) -> None:
    model.switches = Switches(requests_minute=1, limit_headers=True)
    for _ in range(2):
        asked = call(llm_column(), "x")
        asked.traffic = Traffic()
        outcome = await llm.compute(asked)
    assert isinstance(outcome, Failure) and outcome.error_class == "rate_limited"
    assert asked.traffic == Traffic(1, 1, None)
