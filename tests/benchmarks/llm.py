"""Language-model cells a second, as a ratio to a plain loop: same client, server, concurrency, prompts and rows.

And to one that leaves out, as the worker does, how the client walks an answer along its type hints: half of the loop's
time, and no part of what is compared.
"""

import asyncio
import json
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import httpx2
import openai

from cell_engine.embedded.server import Server
from cell_engine.kinds import llm_request
from cell_engine.kinds.base import Call
from cell_engine.specs.compile import compile_text
from cell_engine.store.applying import apply
from cell_engine.store.database import Connection, connect
from cell_engine.store.demands import RangeScope, dispatch
from tests.benchmarks.bench import ROUNDS, SPAWN, Figure, Sheet, fill, migrated, note, wait_for_end, workers
from tests.benchmarks.endpoint import endpoint

ROWS = 4_000
CONCURRENCY = 500
BATCH = 500
LATENCY = 0.05
SPEC = """
namespace: bench
name: answers
cap: 1000
columns:
  - {name: a, type: text}
  - name: b
    type: text
    kind: llm
    deps: [a]
    llm: {model: offline, prompt: "Summarise in a few words. {{a}}"}
"""
PLAIN = """
create table plain (row_id bigint primary key, value jsonb);
insert into plain select n, 'null' from generate_series(1, %s) as n
"""


def figures(server: Server) -> Iterator[Figure]:
    url = migrated(server, "llm")
    ratios, bare_ratios, rates, plain_rates, bare_rates = [], [], [], [], []
    with (
        connect(url, application="benchmark") as connection,
        endpoint(latency=LATENCY) as served,
        ProcessPoolExecutor(1, mp_context=SPAWN) as pool,
        workers(url, pools=("llm",)),
    ):
        applied = apply(connection, compile_text(SPEC), actor="benchmark")
        sheet = Sheet(applied.collection.id, applied.version)
        fill(connection, sheet, ROWS)
        connection.execute(PLAIN.replace("%s", str(ROWS)).encode())
        bodies = [_body(sheet, row_id) for row_id in range(1, ROWS + 1)]
        _ours(connection, sheet)  # the endpoint is proven, and the cells are there
        for _ in range(ROUNDS):
            plain_rates.append(pool.submit(_plain, url, served.url, bodies, parses=True).result())
            rates.append(_ours(connection, sheet))
            bare_rates.append(pool.submit(_plain, url, served.url, bodies, parses=False).result())
            ratios.append(rates[-1] / plain_rates[-1])
            bare_ratios.append(rates[-1] / bare_rates[-1])
            note(f"plain loop {plain_rates[-1]:.0f} and {bare_rates[-1]:.0f}, worker {rates[-1]:.0f} llm cells/s")
        billed = served.stats()["billed"]
        assert billed == ROWS * (3 * ROUNDS + 1), f"{billed} calls were billed"
    for name, runs, loop in (
        ("llm cells, one worker, to a plain loop", ratios, plain_rates),
        ("llm cells, one worker, to a plain loop without the client's parsing", bare_ratios, bare_rates),
    ):
        more = {"cells/s": [round(rate) for rate in rates], "loop, cells/s": [round(rate) for rate in loop]}
        yield Figure(name, runs, "ratio", 0.85, more=more)


def _body(sheet: Sheet, row_id: int) -> dict[str, Any]:
    """What the worker sends for the row, as a plain loop would have it ready."""
    (column,) = sheet.version.computed
    inputs = {sheet.input: f"value {row_id}"}
    call = Call(column, inputs, sheet.version.keys, "bench/answers", row_id, (), column.timeout)
    return llm_request.body(call, llm_request.messages(call))


def _ours(connection: Connection, sheet: Sheet) -> float:
    started = time.monotonic()
    asked = dispatch(
        connection,
        sheet.id,
        RangeScope(((1, ROWS),)),
        columns=sheet.computed,
        force=True,
        reason="reprocess",
        actor="benchmark",
    )
    wait_for_end(connection, [asked])
    return ROWS / (time.monotonic() - started)


def _plain(url: str, base_url: str, bodies: list[dict[str, Any]], *, parses: bool) -> float:
    return asyncio.run(_loop(url, base_url, bodies, parses))


async def _loop(url: str, base_url: str, bodies: list[dict[str, Any]], parses: bool) -> float:
    """Cells a second of what a careful person writes in an afternoon: one process, batches of 500."""
    gate = asyncio.Semaphore(CONCURRENCY)
    client = openai.AsyncOpenAI(
        base_url=base_url,
        api_key="unused",
        http_client=openai.DefaultAioHttpClient(trust_env=False, limits=openai.DEFAULT_CONNECTION_LIMITS),
    )
    waiting: list[tuple[int, str]] = []
    stores: list[asyncio.Task[None]] = []
    with connect(url, application="benchmark plain") as connection:

        def store(batch: list[tuple[int, str]]) -> None:
            rows, values = [row for row, _ in batch], [value for _, value in batch]
            connection.execute(
                "update plain set value = given.value from unnest(%s::bigint[], %s::jsonb[]) as given (row_id, value) "
                "where plain.row_id = given.row_id",
                (rows, values),
            )

        async def answer(row_id: int, body: dict[str, Any]) -> None:
            async with gate:
                if parses:
                    completion = await client.chat.completions.create(**body)
                    text = completion.choices[0].message.content or ""
                else:
                    response = await client.post("/chat/completions", cast_to=httpx2.Response, body=body)
                    text = json.loads(response.content)["choices"][0]["message"]["content"]
            content = json.loads(text)["value"]
            waiting.append((row_id, json.dumps(content)))
            if len(waiting) >= BATCH:
                batch = waiting[:]
                waiting.clear()
                stores.append(asyncio.create_task(asyncio.to_thread(store, batch)))

        started = time.monotonic()
        await asyncio.gather(*(answer(row_id, body) for row_id, body in enumerate(bodies, 1)))
        await asyncio.gather(*stores)
        if waiting:
            store(waiting)
        seconds = time.monotonic() - started
    await client.close()
    return len(bodies) / seconds
