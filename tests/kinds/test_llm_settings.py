"""Where the llm kind's calls go, with which key and which settings; and that no key is ever told."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from cell_engine.errors import AutofillError
from cell_engine.kinds.base import Answer, Failure
from cell_engine.kinds.llm import LlmKind
from cell_engine.shares import ProviderKey
from tests.kinds.helpers import Script, ScriptedProvider, call, completion, llm_column

pytestmark = pytest.mark.anyio

SECRET = "plain-words-that-look-like-no-key"


@pytest.fixture
async def other() -> AsyncIterator[ScriptedProvider]:
    async with ScriptedProvider() as provider:
        provider.script = [Script(completion('{"value": "from the other"}'))]
        yield provider


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_KEY", SECRET)
    monkeypatch.delenv("MISSING_KEY", raising=False)


async def test_columns_name_their_provider_and_several_are_called_at_once(
    scripted: LlmKind, provider: ScriptedProvider, other: ScriptedProvider
) -> None:
    provider.script = [Script(completion('{"value": "from the usual"}'))]
    columns = [
        llm_column(),
        llm_column(base_url=other.base_url, key="OTHER_KEY"),
        llm_column(key="OTHER_KEY"),
        llm_column(base_url=other.base_url),
    ]
    outcomes = [await scripted.compute(call(column, "x")) for column in columns]
    values = [one.value for one in outcomes if isinstance(one, Answer)]
    assert values == ["from the usual", "from the other", "from the usual", "from the other"]
    assert provider.authorizations == ["Bearer sk-secretsecretsecret", f"Bearer {SECRET}"]
    # an address of the column's own gets no key that it does not name: the usual one is for the usual address
    assert other.authorizations == [f"Bearer {SECRET}", "Bearer none"]
    assert scripted.provider(columns[1]) == ProviderKey(other.base_url + "/", "gpt-5-mini")
    assert scripted.provider(columns[0]) == ProviderKey(provider.base_url + "/", "gpt-5-mini")


async def test_a_key_that_is_not_there_is_named(scripted: LlmKind, other: ScriptedProvider) -> None:
    column = llm_column(base_url=other.base_url, key="MISSING_KEY")
    outcome = await scripted.compute(call(column, "x"))
    assert isinstance(outcome, Failure)
    assert outcome.error_class == "auth"
    assert "set MISSING_KEY" in outcome.message
    assert other.base_url in outcome.message
    with pytest.raises(AutofillError, match="set MISSING_KEY"):
        scripted.check(column)
    assert other.requests == []


@pytest.mark.parametrize("name", ["AUTOFILL_DATABASE_URL", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY"])
async def test_a_secret_that_is_no_models_key_goes_nowhere(
    scripted: LlmKind, other: ScriptedProvider, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Whoever writes a spec says where its key goes: also what was stored before is held back."""
    monkeypatch.setenv(name, "postgresql://me:hunter2@here/db")
    outcome = await scripted.compute(call(llm_column(base_url=other.base_url, key=name), "x"))
    assert isinstance(outcome, Failure)
    assert outcome.error_class == "auth"
    assert other.requests == []


@pytest.mark.parametrize(
    "answer",
    [
        Script({"error": {"message": f"Incorrect API key provided: {SECRET}."}}, 401),
        Script({"error": {"message": f"no credit for {SECRET}", "code": "insufficient_quota"}}, 429),
        Script({"error": {"message": f"upstream said {SECRET}", "code": 401}}),
        Script({"error": {"message": f"bad gateway {SECRET}"}}, 502),
    ],
)
async def test_a_provider_that_repeats_the_key_does_not_get_it_into_the_cell(
    scripted: LlmKind, other: ScriptedProvider, answer: Script, caplog: pytest.LogCaptureFixture
) -> None:
    other.script = [answer]
    caplog.set_level(0)
    outcome = await scripted.compute(call(llm_column(base_url=other.base_url, key="OTHER_KEY"), "x"))
    assert isinstance(outcome, Failure)
    assert SECRET not in outcome.message
    assert "***" in outcome.message
    assert SECRET not in caplog.text
    if outcome.error_class == "auth" and answer.status == 401:
        assert outcome.message.endswith("Check OTHER_KEY.")


async def test_reasoning_effort_is_sent_where_it_is_set(scripted: LlmKind, provider: ScriptedProvider) -> None:
    provider.script = [Script(completion('{"value": "x"}'))]
    await scripted.compute(call(llm_column(reasoning_effort="low"), "x"))
    assert provider.requests[0]["reasoning_effort"] == "low"
