"""The server: OpenAI's protocol and error shapes, the switches, the statistics, the process."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import aiohttp
import openai
import pytest

from cell_engine.offline_model import MODEL_NAME, OfflineModel, Switches

pytestmark = pytest.mark.anyio


def _body(text: str = "It is a thing that works.") -> dict[str, Any]:
    return {"model": "gpt-5-mini", "messages": [{"role": "user", "content": text}]}


async def _call(http: aiohttp.ClientSession, text: str = "It is a thing that works.") -> aiohttp.ClientResponse:
    async with http.post("/v1/chat/completions", json=_body(text)) as response:
        await response.read()
        return response


async def _stats(http: aiohttp.ClientSession, **query: str) -> Any:
    async with http.get("/stats", params=query) as response:
        return await response.json()


async def test_the_openai_client_understands_it(model: OfflineModel) -> None:
    async with openai.AsyncOpenAI(base_url=model.base_url, api_key="none", max_retries=0) as client:
        assert [each.id async for each in client.models.list()] == [MODEL_NAME]
        completion = await client.chat.completions.create(
            model="gpt-5-mini", messages=[{"role": "user", "content": "It is a thing that works."}]
        )
        with pytest.raises(openai.NotFoundError) as missing:
            await client.models.retrieve("gpt-5-mini")
    assert completion.model == MODEL_NAME
    assert completion.choices[0].message.content == "It is a thing that works."
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (7, 7)
    assert completion.usage.total_tokens == 14
    assert missing.value.code == "model_not_found"


async def test_errors_have_openais_shape(model: OfflineModel) -> None:
    async with openai.AsyncOpenAI(base_url=model.base_url, api_key="none", max_retries=0) as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(model="m", messages=[])
        assert (refused.value.type, refused.value.param) == ("invalid_request_error", "messages")

        model.switches = Switches(rate_limited=1, retry_after=2.5)
        with pytest.raises(openai.RateLimitError) as limited:
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
        assert limited.value.code == "rate_limit_exceeded"
        assert limited.value.response.headers["retry-after"] == "2.5"

        model.switches = Switches(server_error=1)
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])


async def test_a_body_that_is_no_json_is_a_400(http: aiohttp.ClientSession) -> None:
    for body in (b"{", b"[]", b"\xff"):
        async with http.post("/v1/chat/completions", data=body) as response:
            assert response.status == 400
            assert (await response.json())["error"]["type"] == "invalid_request_error"


async def test_it_listens_on_loopback_only(model: OfflineModel) -> None:
    assert model.base_url == f"http://127.0.0.1:{model.port}/v1"


async def test_switches_change_at_run_time_and_keep_the_rest(http: aiohttp.ClientSession) -> None:
    async with http.post("/switches", json={"rate_limited": 1, "retry_after": 3}) as response:
        assert response.status == 200
    async with http.post("/switches", json={"seed": 7}) as response:
        assert await response.json() == Switches(rate_limited=1, retry_after=3, seed=7).model_dump()
    limited = await _call(http)
    assert (limited.status, limited.headers["Retry-After"]) == (429, "3")
    async with http.get("/switches") as response:
        assert (await response.json())["rate_limited"] == 1


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"latncy": 1}, "latncy"),
        ({"latency": -1}, "latency"),
        ({"rate_limited": 0.6, "server_error": 0.6}, "more than"),
        ({"truncated": 0.4, "invalid_json": 0.4, "connection_reset": 0.4}, "more than"),
        ({"quota_exhausted_from": -1}, "quota_exhausted_from"),
    ],
)
async def test_a_wrong_switch_is_refused_by_name_and_changes_nothing(
    model: OfflineModel, http: aiohttp.ClientSession, change: dict[str, float], named: str
) -> None:
    async with http.post("/switches", json=change) as response:
        assert response.status == 400
        assert named in (await response.json())["error"]["message"]
    assert model.switches == Switches()


async def test_latency_delays_answers_and_calls_overlap(model: OfflineModel, http: aiohttp.ClientSession) -> None:
    model.switches = Switches(latency=0.2)
    started = time.monotonic()
    await asyncio.gather(*(_call(http, f"call {at}") for at in range(20)))
    assert 0.2 <= time.monotonic() - started < 2
    assert model.stats.most_in_flight == 20
    assert model.stats.in_flight == 0


async def test_fractions_hit_the_same_calls_in_any_order(model: OfflineModel, http: aiohttp.ClientSession) -> None:
    model.switches = Switches(rate_limited=0.2, server_error=0.1, seed=3)
    texts = [f"text {at}" for at in range(300)]

    async def statuses(order: list[str]) -> dict[str, int]:
        model.reset_stats()
        responses = await asyncio.gather(*(_call(http, text) for text in order))
        return dict(zip(order, (response.status for response in responses), strict=True))

    first = await statuses(texts)
    assert await statuses(texts[::-1]) == first
    counts = {status: list(first.values()).count(status) for status in (200, 429, 500)}
    assert 40 <= counts[429] <= 80
    assert 15 <= counts[500] <= 45
    assert model.stats.by_status == counts
    model.switches = Switches(rate_limited=0.2, server_error=0.1, seed=4)
    assert await statuses(texts) != first


async def test_a_repeated_call_draws_anew(model: OfflineModel, http: aiohttp.ClientSession) -> None:
    model.switches = Switches(server_error=0.5)
    assert {(await _call(http)).status for _ in range(30)} == {200, 500}


async def test_stats_tell_what_was_billed_for_each_body(model: OfflineModel, http: aiohttp.ClientSession) -> None:
    await _call(http, "one")
    await _call(http, "two")
    await _call(http, "two")
    model.switches = Switches(server_error=1)
    await _call(http, "one")
    stats = await _stats(http, bodies="true")
    assert stats["by_status"] == {"200": 3, "500": 1}
    assert (stats["calls"], stats["billed"], stats["distinct_bodies"]) == (4, 3, 2)
    assert stats["most_billed_for_one_body"] == 2
    assert sorted((each["calls"], each["billed"]) for each in stats["bodies"].values()) == [(2, 1), (2, 2)]
    assert "bodies" not in await _stats(http)
    async with http.delete("/stats") as response:
        assert (await response.json())["calls"] == 0


async def test_a_wrong_shape_is_billed_like_any_answer(model: OfflineModel, http: aiohttp.ClientSession) -> None:
    model.switches = Switches(wrong_shape=1)
    async with http.post("/v1/chat/completions", json=_body()) as response:
        content = (await response.json())["choices"][0]["message"]["content"]
    assert json.loads(content) == {"unexpected": True}
    assert model.stats.billed.total() == 1


async def test_a_reset_cuts_the_connection_without_an_answer(
    model: OfflineModel, http: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    model.switches = Switches(connection_reset=1)
    with pytest.raises(aiohttp.ClientOSError) as cut:
        await _call(http)
    assert cut.value.errno == errno.ECONNRESET
    stats = await _stats(http)
    assert (stats["by_fate"], stats["by_status"], stats["billed"]) == ({"connection_reset": 1}, {}, 0)
    assert not caplog.records


async def test_a_truncated_answer_says_so_and_is_billed(model: OfflineModel, http: aiohttp.ClientSession) -> None:
    model.switches = Switches(truncated=1)
    async with http.post("/v1/chat/completions", json=_body()) as response:
        [choice] = (await response.json())["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("It is a thin", "length")
    assert model.stats.billed.total() == 1


async def test_invalid_json_where_json_was_asked_for(model: OfflineModel, http: aiohttp.ClientSession) -> None:
    model.switches = Switches(invalid_json=1)
    body = _body() | {"response_format": {"type": "json_object"}}
    async with http.post("/v1/chat/completions", json=body) as response:
        [choice] = (await response.json())["choices"]
    with pytest.raises(json.JSONDecodeError):
        json.loads(choice["message"]["content"])
    assert choice["finish_reason"] == "stop"
    async with http.post("/v1/chat/completions", json=_body()) as response:
        [choice] = (await response.json())["choices"]
    assert choice["message"]["content"] == "It is a thing that works."
    assert model.stats.by_fate == {"invalid_json": 1, "answered": 1}
    assert model.stats.billed.total() == 2


async def test_the_quota_is_exhausted_from_a_call_on_until_told_otherwise(
    model: OfflineModel, http: aiohttp.ClientSession
) -> None:
    async def statuses(calls: int) -> list[int]:
        return [(await _call(http, f"call {at}")).status for at in range(calls)]

    model.switches = Switches(quota_exhausted_from=3, latency=0.05)
    at_once = await asyncio.gather(*(_call(http, f"call {at}") for at in range(6)))
    assert sorted(response.status for response in at_once) == [200, 200, 429, 429, 429, 429]
    assert model.stats.billed.total() == 2
    assert await statuses(2) == [429, 429]
    assert all("Retry-After" not in response.headers for response in at_once)
    async with http.post("/switches", json={"quota_exhausted_from": 10}) as response:
        assert response.status == 200
    assert await statuses(2) == [200, 429]
    async with http.post("/switches", json={"quota_exhausted_from": 0}) as response:
        assert response.status == 200
    assert await statuses(2) == [200, 200]
    model.switches = Switches(quota_exhausted_from=2, server_error=1)
    model.reset_stats()
    assert await statuses(3) == [500, 429, 429]


async def test_a_quota_changes_no_draw(model: OfflineModel, http: aiohttp.ClientSession) -> None:
    async def statuses(quota_exhausted_from: int) -> list[int]:
        model.switches = Switches(server_error=0.5, quota_exhausted_from=quota_exhausted_from)
        return [(await _call(http)).status for _ in range(20)]

    undisturbed = await statuses(0) + await statuses(0)
    assert {*undisturbed} == {200, 500}
    model.reset_stats()
    before = await statuses(0)
    assert await statuses(1) == [429] * 20
    assert before + await statuses(0) == undisturbed


async def test_every_call_has_one_fate_and_a_seed_repeats_them(
    model: OfflineModel, http: aiohttp.ClientSession
) -> None:
    faults = {"rate_limited": 0.2, "server_error": 0.1, "connection_reset": 0.1, "truncated": 0.1, "invalid_json": 0.1}

    async def fates(seed: int, order: int) -> tuple[dict[str, int], list[str]]:
        model.switches = Switches.model_validate({**faults, "seed": seed, "retry_after": 0})
        model.reset_stats()
        outcomes = await asyncio.gather(*(outcome(f"call {at}") for at in range(200)[::order]))
        return (await _stats(http))["by_fate"], outcomes[::order]

    async def outcome(text: str) -> str:
        body = _body(text) | {"response_format": {"type": "json_object"}}
        try:
            async with http.post("/v1/chat/completions", json=body) as response:
                return (await response.text()).split('"choices"')[-1]
        except aiohttp.ClientError as error:
            return type(error).__name__

    first, outcomes = await fates(3, 1)
    assert first.keys() == {*faults, "answered"}
    assert sum(first.values()) == 200
    assert 20 <= first["rate_limited"] <= 60
    assert all(5 <= first[fault] <= 40 for fault in faults.keys() - {"rate_limited"})
    assert await fates(3, -1) == (first, outcomes)
    assert (await fates(4, 1))[1] != outcomes
    stats = await _stats(http)
    assert stats["calls"] == sum(stats["by_fate"].values()) == 200
    assert stats["billed"] == sum(stats["by_fate"][fate] for fate in ("answered", "truncated", "invalid_json"))
    model.switches = Switches()
    async with http.post("/v1/chat/completions", data=b"{") as response:
        assert response.status == 400
    assert (await _stats(http))["by_fate"]["bad_request"] == 1


async def test_500_calls_at_once(model: OfflineModel, http: aiohttp.ClientSession) -> None:
    model.switches = Switches(latency=0.5)
    async with aiohttp.ClientSession(http._base_url, connector=aiohttp.TCPConnector(limit=0)) as unlimited:
        responses = await asyncio.gather(*(_call(unlimited, f"call {at}") for at in range(500)))
    assert {response.status for response in responses} == {200}
    assert model.stats.most_in_flight == 500


async def test_it_starts_and_stops_again_on_the_same_port(model: OfflineModel) -> None:
    port = model.port
    await model.stop()
    with pytest.raises(RuntimeError, match="not running"):
        _ = model.base_url
    async with OfflineModel(port=port) as again:
        assert again.port == port
        with pytest.raises(OSError, match="in use"):
            await OfflineModel(port=port).start()


def _start(folder: Path, *options: str) -> tuple[subprocess.Popen[str], Path]:
    port_file = folder / "port"
    arguments = [sys.executable, "-m", "cell_engine.offline_model", "--port-file", str(port_file), *options]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return process, port_file


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_the_process_writes_its_port_serves_and_ends_cleanly(tmp_path: Path, signum: signal.Signals) -> None:
    process, port_file = _start(tmp_path, "--latency", "30", "--retry-after", "2", "--server-error", "0.25")
    try:
        assert process.stdout is not None
        said = process.stdout.readline()  # it comes once the port file stands
        port = int(port_file.read_text())
        assert f"http://127.0.0.1:{port}/v1" in said
        assert "not an LLM" in said
        with urlopen(f"http://127.0.0.1:{port}/switches", timeout=5) as response:
            assert Switches.model_validate_json(response.read()) == Switches(
                latency=30, retry_after=2, server_error=0.25
            )
        os.kill(process.pid, signum)
        out, err = process.communicate(timeout=10)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out, err) == (0, "", "")
    assert not port_file.exists()


@pytest.mark.slow
async def test_the_process_ends_with_calls_in_flight(tmp_path: Path) -> None:
    process, port_file = _start(tmp_path, "--latency", "60")
    try:
        assert process.stdout is not None
        await asyncio.to_thread(process.stdout.readline)
        root = f"http://127.0.0.1:{port_file.read_text().strip()}"
        async with aiohttp.ClientSession(root) as http:
            call = asyncio.create_task(_call(http))
            while not (await _stats(http))["in_flight"]:
                assert not call.done()
            os.kill(process.pid, signal.SIGTERM)
            with pytest.raises(aiohttp.ClientError):
                await call
        await asyncio.to_thread(process.wait, 10)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said"), [(["--rate-limited", "2"], "rate_limited"), (["--latency", "soon"], "--latency")]
)
def test_wrong_options_are_told(tmp_path: Path, options: list[str], said: str) -> None:
    process, _ = _start(tmp_path, *options)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 2
    assert said in err
    assert "Traceback" not in err


@pytest.mark.slow
async def test_a_taken_port_is_told(model: OfflineModel, tmp_path: Path) -> None:
    process, _ = _start(tmp_path, "--port", str(model.port))
    _, err = await asyncio.to_thread(process.communicate, None, 20)
    assert process.returncode == 1
    assert f"127.0.0.1:{model.port}" in err
    assert "Traceback" not in err


async def test_it_enforces_limits_counts_who_breaks_them_and_tells_what_is_left(
    model: OfflineModel, http: aiohttp.ClientSession
) -> None:
    model.switches = Switches(latency=0.2, concurrency=3, retry_after=0.5)
    answers = await asyncio.gather(*(_call(http, f"call {number}") for number in range(5)))
    assert sorted(one.status for one in answers) == [200, 200, 200, 429, 429]
    assert {one.headers.get("Retry-After") for one in answers} == {None, "0.5"}
    assert model.stats.by_fate == {"answered": 3, "over_limit": 2}
    model.switches = Switches(requests_minute=4, limit_headers=True)
    statuses = [(await _call(http)).status for _ in range(6)]
    assert statuses == [200, 200, 200, 200, 429, 429]
    last = await _call(http)
    assert 55 < float(last.headers["Retry-After"]) <= 60
    told = [last.headers[f"x-ratelimit-{what}-requests"] for what in ("limit", "remaining", "reset")]
    assert told == ["4", "0", "60000ms"]


async def test_a_key_can_be_asked_for(model: OfflineModel, http: aiohttp.ClientSession) -> None:
    model.switches = Switches(key="right")
    assert (await _call(http)).status == 401
    async with openai.AsyncOpenAI(base_url=model.base_url, api_key="right", max_retries=0) as client:
        await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "It is a thing."}])
    assert model.stats.by_fate == {"bad_key": 1, "answered": 1}
