"""The llm kind: the real OpenAI client over HTTP, against the offline model and against scripted faults."""

from __future__ import annotations

import asyncio
import json
import time
import zlib
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from cell_engine.errors import AutofillError
from cell_engine.kinds import llm_client
from cell_engine.kinds.base import Answer, Failure
from cell_engine.kinds.llm import CORRECTIONS, LlmKind
from cell_engine.kinds.provider_errors import retry_after
from cell_engine.offline_model import MODEL_NAME, OfflineModel, Switches
from cell_engine.offline_model.switches import Fault
from cell_engine.specs.prompt import FENCE_NOTE
from cell_engine.specs.types import ColumnType
from tests.kinds.helpers import INTEGER, TEXT, Script, ScriptedProvider, call, completion, llm_column

pytestmark = pytest.mark.anyio

SENTENCE = "It is a thing that works."


async def _failure(kind: LlmKind, column_type: ColumnType = TEXT) -> Failure:
    outcome = await kind.compute(call(llm_column(column_type), SENTENCE))
    assert isinstance(outcome, Failure)
    return outcome


async def test_an_answer_with_its_model_and_tokens(llm: LlmKind, model: OfflineModel) -> None:
    outcome = await llm.compute(call(llm_column(), SENTENCE))
    assert isinstance(outcome, Answer)
    assert (outcome.value, outcome.model) == (SENTENCE, MODEL_NAME)
    assert outcome.tokens_in == model.stats.tokens_in > 0
    assert outcome.tokens_out == model.stats.tokens_out > 0
    assert await llm.compute(call(llm_column(), SENTENCE)) == outcome


@pytest.mark.parametrize(
    ("column_type", "value"),
    [
        (TEXT, "Released 2024-03-01 with 42 parts, see https://example.org/x."),
        (INTEGER, 42),
        (ColumnType("number"), 42),
        (ColumnType("boolean"), False),
        (ColumnType("date"), "2024-03-01"),
        (ColumnType("datetime"), "2024-03-01T00:00:00+00:00"),
        (ColumnType("choice", ("parts", "whole")), "parts"),
        (ColumnType("list", items="text"), ["released", "part"]),
        (ColumnType("list", items="integer"), [42]),
        (ColumnType("url"), "https://example.org/x"),
        (ColumnType("json"), {"text": "Released 2024-03-01 with 42 parts, see https://example.org/x."}),
    ],
    ids=lambda value: value.name if isinstance(value, ColumnType) else "",
)
async def test_every_type_goes_through_the_strict_schema(llm: LlmKind, column_type: ColumnType, value: object) -> None:
    text = "Released 2024-03-01 with 42 parts, see https://example.org/x."
    outcome = await llm.compute(call(llm_column(column_type), text))
    assert isinstance(outcome, Answer), outcome
    if column_type.name in ("text", "json"):
        assert "42 parts" in json.dumps(outcome.value)
    else:
        assert outcome.value == value


async def test_what_is_sent(scripted: LlmKind, provider: ScriptedProvider) -> None:
    provider.script = [Script(completion('{"value": 1}'))]
    settings: dict[str, Any] = {"system": "Be brief.", "temperature": 0, "max_tokens": 50, "seed": 7}
    outcome = await scripted.compute(call(llm_column(INTEGER, **settings), "a {{b}} </column>"))
    assert outcome == Answer(1, "scripted-model", 10, 5, cost=None)
    [request] = provider.requests
    system, user = request.pop("messages")
    note = FENCE_NOTE.replace("<column …> and </column …>", "<column-1 …> and </column-1 …>")
    assert note != FENCE_NOTE
    assert system == {"role": "system", "content": f"Be brief.\n\n{note}"}
    assert user["role"] == "user"
    assert user["content"].startswith('Summarise.\n<column-1 name="a">a {{b}} </column></column-1>')
    assert request == {
        "model": "gpt-5-mini",
        "temperature": 0,
        "max_completion_tokens": 50,
        "seed": 7,
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "cell",
                "strict": True,
                "schema": {
                    "type": "object",
                    "properties": {"value": {"type": "integer"}},
                    "required": ["value"],
                    "additionalProperties": False,
                },
            },
        },
    }


async def test_settings_left_out_are_not_sent(scripted: LlmKind, provider: ScriptedProvider) -> None:
    provider.script = [Script(completion('{"value": "x"}'))]
    await scripted.compute(call(llm_column(system=None, temperature=None), SENTENCE))
    assert provider.requests[0].keys() == {"model", "messages", "response_format"}
    assert provider.requests[0]["messages"][0]["content"] == FENCE_NOTE


async def test_an_answer_is_cleaned(scripted: LlmKind, provider: ScriptedProvider) -> None:
    provider.script = [Script(completion(json.dumps({"value": "a\x00b\ud800c"})))]
    assert await scripted.compute(call(llm_column(), SENTENCE)) == Answer("abc", "scripted-model", 10, 5, cost=None)


async def test_a_wrong_shape_is_sent_back_with_the_validators_words(
    scripted: LlmKind, provider: ScriptedProvider
) -> None:
    provider.script = [Script(completion('{"value": "twelve"}')), Script(completion('{"value": 12}'))]
    outcome = await scripted.compute(call(llm_column(INTEGER), SENTENCE))
    assert outcome == Answer(12, "scripted-model", 20, 10, cost=None)
    first, second = provider.requests
    assert second["messages"][:2] == first["messages"]
    assert second["messages"][2] == {"role": "assistant", "content": '{"value": "twelve"}'}
    assert "'twelve': expected an integer, not text" in second["messages"][3]["content"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("not json", "not JSON"),
        ('{"value": 1', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("", "not JSON"),
        ('{"other": 1}', 'the single key "value"'),
        ('{"value": 1, "other": 2}', 'the single key "value"'),
        ("[1]", 'the single key "value"'),
        ('{"value": null}', "null"),
        ('{"value": NaN}', "expected an integer"),
        ('{"value": 1.0}', "expected an integer"),
        ('```json\n{"value": 1}\n```', "not JSON"),
    ],
)
async def test_a_shape_that_stays_wrong_is_a_schema_failure(
    scripted: LlmKind, provider: ScriptedProvider, content: str, said: str
) -> None:
    provider.script = [Script(completion(content))]
    failure = await _failure(scripted, INTEGER)
    assert failure.error_class == "schema"
    assert said in failure.message
    assert len(provider.requests) == 1 + CORRECTIONS == 3
    assert (failure.model, failure.tokens_in, failure.tokens_out) == ("scripted-model", 30, 15)


async def test_a_wrong_shape_is_billed_three_times_at_most(llm: LlmKind, model: OfflineModel) -> None:
    model.switches = Switches(wrong_shape=1)
    failure = await _failure(llm)
    assert failure.error_class == "schema"
    assert model.stats.by_status == {200: 3}
    assert (failure.tokens_in, failure.tokens_out) == (model.stats.tokens_in, model.stats.tokens_out)


async def test_a_failure_during_corrections_keeps_the_tokens_spent(
    scripted: LlmKind, provider: ScriptedProvider
) -> None:
    provider.script = [Script(completion("oops")), Script(_error("slow down"), 429, {"Retry-After": "4"})]
    failure = await _failure(scripted)
    assert failure == Failure("rate_limited", "HTTP 429: slow down", 4.0, "scripted-model", 10, 5, cost=None)


def _error(message: str, **more: object) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None, **more}}


@pytest.mark.parametrize(
    ("status", "body", "error_class"),
    [
        (429, _error("Rate limit reached"), "rate_limited"),
        (429, _error("You exceeded your current quota", code="insufficient_quota"), "quota"),
        (429, _error("You exceeded your current quota", type="insufficient_quota"), "quota"),
        (429, _error("Request too large for gpt-5-mini: Limit 30000, Requested 40000"), "too_long"),
        (402, _error("Insufficient balance"), "quota"),
        (401, _error("Incorrect API key provided: sk-abcdefghijkl"), "auth"),
        (403, _error("Country not supported"), "auth"),
        (403, _error("Project has no access to model", code="model_not_found"), "model_missing"),
        (404, _error("The model 'gpt-9' does not exist", code="model_not_found"), "model_missing"),
        (404, b"<html>Not Found</html>", "model_missing"),
        (400, _error("Too many tokens", code="context_length_exceeded"), "too_long"),
        (400, _error("This model's maximum context length is 8192 tokens", code=400), "too_long"),
        (413, b"Payload Too Large", "too_long"),
        (400, _error("Filtered", code="content_filter"), "refused"),
        (400, _error("Unsupported parameter: 'temperature'", code="unsupported_parameter"), "bad_input"),
        (422, _error("Unprocessable"), "bad_input"),
        (408, _error("Timeout"), "transient"),
        (409, _error("Conflict"), "transient"),
        (500, _error("Server error"), "transient"),
        (502, b"<html>Bad Gateway</html>", "transient"),
        (503, _error("Overloaded"), "transient"),
        (529, b"", "transient"),
    ],
)
async def test_each_status_has_its_class(
    scripted: LlmKind, provider: ScriptedProvider, status: int, body: object, error_class: str
) -> None:
    provider.script = [Script(body, status)]
    failure = await _failure(scripted)
    assert failure.error_class == error_class
    assert f"HTTP {status}" in failure.message
    if isinstance(body, dict):
        assert body["error"]["message"].split(":")[0] in failure.message
    assert "sk-abc" not in failure.message
    assert len(provider.requests) == 1, "the client must not retry by itself"


@pytest.mark.parametrize(
    ("body", "error_class"),
    [
        (completion(None, refusal="I cannot help with that."), "refused"),
        (completion("", finish_reason="content_filter"), "refused"),
        (completion('{"value": "cut o', finish_reason="length"), "truncated"),
        ({**completion("x"), "choices": []}, "transient"),
        ({"error": {"message": "Upstream overloaded", "code": 429}}, "rate_limited"),
        ({"error": {"message": "Upstream broke"}}, "transient"),
        (b"<html>sign in to the wifi</html>", "transient"),
        (b'{"id": "chatcmpl-1", "choi', "transient"),
        (b"[]", "transient"),
        (b"", "transient"),
    ],
)
async def test_answers_with_status_200_that_are_none(
    scripted: LlmKind, provider: ScriptedProvider, body: object, error_class: str
) -> None:
    provider.script = [Script(body)]
    failure = await _failure(scripted)
    assert failure.error_class == error_class
    assert failure.message
    assert len(provider.requests) == 1


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None, "completion_tokens": None}])
async def test_a_server_may_keep_its_usage_to_itself(
    scripted: LlmKind, provider: ScriptedProvider, usage: object
) -> None:
    provider.script = [Script({**completion('{"value": "x"}'), "usage": usage})]
    assert await scripted.compute(call(llm_column(), SENTENCE)) == Answer("x", "scripted-model", cost=None)


@pytest.mark.parametrize(
    ("details", "cached", "reasoning", "cost"),
    [
        ({}, 0, 0, 5_000 * 250 + 5_000 * 2_000),
        (
            {
                "prompt_tokens_details": {"cached_tokens": 4_000},
                "completion_tokens_details": {"reasoning_tokens": 4_096},
            },
            4_000,
            4_096,
            1_000 * 250 + 4_000 * 25 + 5_000 * 2_000,
        ),
        ({"prompt_tokens_details": None, "completion_tokens_details": "none"}, 0, 0, 5_000 * 250 + 5_000 * 2_000),
        ({"prompt_tokens_details": {"cached_tokens": "many"}}, 0, 0, 5_000 * 250 + 5_000 * 2_000),
    ],
)
async def test_cached_and_reasoning_tokens_are_kept_apart_and_priced(
    scripted: LlmKind, provider: ScriptedProvider, details: dict[str, Any], cached: int, reasoning: int, cost: int
) -> None:
    usage = {"prompt_tokens": 5_000, "completion_tokens": 5_000, **details}
    body = {**completion('{"value": "x"}'), "usage": usage, "model": "gpt-5-mini-2025-08-07"}
    provider.script = [Script(body)]
    outcome = await scripted.compute(call(llm_column(), SENTENCE))
    assert outcome == Answer("x", "gpt-5-mini-2025-08-07", 5_000, 5_000, cached, reasoning, cost)


async def test_every_try_is_priced_also_of_a_call_that_fails(scripted: LlmKind, provider: ScriptedProvider) -> None:
    usage = {"prompt_tokens": 1_000, "completion_tokens": 100}
    provider.script = [Script({**completion("oops"), "usage": usage, "model": "gpt-5-mini"})]
    failure = await _failure(scripted)
    assert (failure.error_class, failure.cost) == ("schema", 3 * (1_000 * 250 + 100 * 2_000))


async def test_a_call_that_reached_no_model_costs_nothing(scripted: LlmKind, provider: ScriptedProvider) -> None:
    provider.script = [Script(_error("slow down"), 429)]
    failure = await _failure(scripted)
    assert (failure.model, failure.cost) == (None, 0)


async def test_a_cut_answer_counts_its_tokens_and_says_what_to_do(llm: LlmKind, model: OfflineModel) -> None:
    outcome = await llm.compute(call(llm_column(max_tokens=2), SENTENCE))
    assert isinstance(outcome, Failure)
    assert outcome.error_class == "truncated"
    assert "after 2 tokens" in outcome.message
    assert "llm.max_tokens" in outcome.message
    assert (outcome.model, outcome.tokens_out) == (MODEL_NAME, 2)


async def test_a_rate_limit_brings_its_retry_after(llm: LlmKind, model: OfflineModel) -> None:
    model.switches = Switches(rate_limited=1, retry_after=2.5)
    failure = await _failure(llm)
    assert (failure.error_class, failure.retry_after) == ("rate_limited", 2.5)
    assert model.stats.by_status == {429: 1}


@pytest.mark.parametrize(
    ("fault", "error_class", "said", "calls", "billed"),
    [
        ("connection_reset", "transient", "reset by peer", 1, 0),
        ("truncated", "truncated", "was cut off after", 1, 1),
        ("invalid_json", "schema", "not JSON", 1 + CORRECTIONS, 1 + CORRECTIONS),
    ],
)
async def test_each_fault_of_the_offline_model_has_its_class(
    llm: LlmKind, model: OfflineModel, fault: Fault, error_class: str, said: str, calls: int, billed: int
) -> None:
    assert isinstance(await llm.compute(call(llm_column(), SENTENCE)), Answer)  # the connection is pooled from here on
    model.reset_stats()
    model.switches = Switches.model_validate({fault: 1})
    failure = await _failure(llm)
    assert failure.error_class == error_class
    assert said in failure.message
    assert model.stats.by_fate == {fault: calls}
    assert model.stats.billed.total() == billed
    assert (failure.tokens_in, failure.tokens_out) == (model.stats.tokens_in, model.stats.tokens_out)
    model.switches = Switches()
    assert isinstance(await llm.compute(call(llm_column(), SENTENCE)), Answer)


async def test_an_exhausted_quota_lasts_until_it_is_filled_up(llm: LlmKind, model: OfflineModel) -> None:
    model.switches = Switches(quota_exhausted_from=2)
    assert isinstance(await llm.compute(call(llm_column(), SENTENCE)), Answer)
    for _ in range(2):
        failure = await _failure(llm)
        assert (failure.error_class, failure.retry_after, failure.tokens_in) == ("quota", None, 0)
        assert "You exceeded your current quota" in failure.message
    model.switches = Switches()
    assert isinstance(await llm.compute(call(llm_column(), SENTENCE)), Answer)
    assert model.stats.by_fate == {"answered": 2, "quota_exhausted": 2}


async def test_an_invalid_answer_is_corrected_by_a_call_that_draws_anew(llm: LlmKind, model: OfflineModel) -> None:
    model.switches = Switches(invalid_json=0.3)
    texts = [f"It is thing {at}." for at in range(60)]
    outcomes = await asyncio.gather(*(llm.compute(call(llm_column(), text)) for text in texts))
    failed = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    assert {failure.error_class for failure in failed} <= {"schema"}
    fates = model.stats.by_fate
    assert fates["answered"] == len(texts) - len(failed) > 40
    assert fates["invalid_json"] > (1 + CORRECTIONS) * len(failed), "some were corrected"


async def test_an_overloaded_server_may_name_a_time_too(scripted: LlmKind, provider: ScriptedProvider) -> None:
    provider.script = [Script(_error("Overloaded"), 503, {"Retry-After": "7"})]
    assert (await _failure(scripted)).retry_after == 7


def test_retry_after_in_all_its_spellings() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert retry_after({"retry-after": "20"}) == 20
    assert retry_after({"retry-after": " 0.5 "}) == 0.5
    assert retry_after({"retry-after-ms": "1500", "retry-after": "2"}) == 1.5
    assert 55 < (retry_after({"retry-after": soon}) or 0) <= 60
    assert retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0
    for unusable in ({}, {"retry-after": "soon"}, {"retry-after": "-1"}, {"retry-after": "inf"}, {"retry-after": ""}):
        assert retry_after(unusable) is None


async def test_a_deadline_is_transient(llm: LlmKind, model: OfflineModel) -> None:
    model.switches = Switches(latency=30)
    started = time.monotonic()
    outcome = await llm.compute(call(llm_column(), SENTENCE, deadline=0.2))
    assert time.monotonic() - started < 5
    assert outcome == Failure("transient", "The model gave no answer within 0.2 s.")


async def test_a_deadline_covers_all_tries_together(llm: LlmKind, model: OfflineModel) -> None:
    assert isinstance(await llm.compute(call(llm_column(), SENTENCE)), Answer)  # to connect takes its own time
    model.switches = Switches(latency=0.3, wrong_shape=1)
    outcome = await llm.compute(call(llm_column(), SENTENCE, deadline=0.5))
    assert isinstance(outcome, Failure)
    assert outcome.error_class == "transient"
    assert outcome.tokens_out > 0, "the first try was paid for"


async def test_a_server_that_is_down_is_transient(model: OfflineModel, llm: LlmKind) -> None:
    await model.stop()
    failure = await _failure(llm)
    assert failure.error_class == "transient"
    assert "cannot be reached" in failure.message
    assert "127.0.0.1" in failure.message


async def test_a_connection_that_breaks_is_transient() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(next(replies))
        writer.close()

    replies = iter([b"", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", b"nonsense\r\n\r\n"])
    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    kind = LlmKind(base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", api_key="unused")
    for _ in range(3):
        assert (await _failure(kind)).error_class == "transient"
    await kind.close()
    server.close()


@pytest.mark.parametrize("packed", [False, True])
async def test_an_answer_without_an_end_is_read_no_further_than_the_bound(
    monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    monkeypatch.setattr(llm_client, "MOST_BYTES", 1_000_000)
    sent = 0

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        packer = zlib.compressobj(wbits=31)
        coding = b"Content-Encoding: gzip\r\n" if packed else b""
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + coding + b"\r\n")
        with suppress(ConnectionError):
            for _ in range(40):
                part = b"x" * 1_000_000
                data = packer.compress(part) + packer.flush(zlib.Z_SYNC_FLUSH) if packed else part
                writer.write(data)
                await writer.drain()
                await asyncio.sleep(0)
                sent += len(part)
            await reader.read()  # it ends with the connection, and not before
        writer.close()

    server = await asyncio.start_server(endless, "127.0.0.1", 0)
    kind = LlmKind(base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", api_key="unused")
    failure = await _failure(kind)
    assert failure.error_class == "transient"
    assert "its answer has more than 1,000,000 bytes" in failure.message
    assert packed or sent < 40_000_000
    await kind.close()
    server.close()


async def test_500_calls_at_once(llm: LlmKind, model: OfflineModel) -> None:
    model.switches = Switches(latency=1.5)
    outcomes = await asyncio.gather(*(llm.compute(call(llm_column(), f"It is thing {at}.")) for at in range(500)))
    assert all(isinstance(outcome, Answer) for outcome in outcomes)
    assert model.stats.most_in_flight == 500, "the client's pool must not be the limit"


async def test_a_proxy_of_the_environment_is_not_used_for_loopback(
    llm: LlmKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert isinstance(await llm.compute(call(llm_column(), SENTENCE)), Answer)


async def test_the_client_reads_its_environment(model: OfflineModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", model.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    kind = LlmKind()
    kind.check(llm_column())
    assert isinstance(await kind.compute(call(llm_column(), SENTENCE)), Answer)
    await kind.close()


async def test_a_missing_key_is_told_at_start_and_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    kind = LlmKind()
    with pytest.raises(AutofillError, match=r"Column 'answer' .* set OPENAI_API_KEY"):
        kind.check(llm_column())
    failure = await _failure(kind)
    assert failure.error_class == "auth"
    assert "OPENAI_API_KEY" in failure.message


@pytest.mark.parametrize("key", ["sk-secretsecretsecret\n", "sk-sécretsecretsecret"])
async def test_a_key_that_is_none_is_told_without_showing_it(key: str) -> None:
    kind = LlmKind(api_key=key)
    with pytest.raises(AutofillError, match="OPENAI_API_KEY holds") as told:
        kind.check(llm_column())
    assert "cret" not in str(told.value)
    assert (await _failure(kind)).error_class == "auth"


@pytest.mark.parametrize("address", ["localhost:8000/v1", "http://", "http://[::1/v1", "http://host:99999/v1"])
async def test_an_address_that_is_none_is_told(address: str) -> None:
    kind = LlmKind(base_url=address, api_key="unused")
    with pytest.raises(AutofillError, match="OPENAI_BASE_URL is no address"):
        kind.check(llm_column())
    assert (await _failure(kind)).error_class == "model_missing"


async def test_a_wrong_path_names_the_setting(model: OfflineModel) -> None:
    kind = LlmKind(base_url=f"{model.base_url}/wrong", api_key="unused")
    failure = await _failure(kind)
    await kind.close()
    assert failure == Failure("model_missing", "HTTP 404: Not Found. Check the column's llm.model and OPENAI_BASE_URL.")
