"""Columns and calls without a database, and a provider that answers by script."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from cell_engine.kinds.base import Call
from cell_engine.specs.text import Json
from cell_engine.specs.types import ColumnType
from cell_engine.specs.version import Column, Dependency

TEXT = ColumnType("text")
INTEGER = ColumnType("integer")


def column(kind: str, column_type: ColumnType, settings: Mapping[str, Json], deps: int = 1) -> Column:
    """A computed column that reads the columns 1, 2, …"""
    return Column(
        id=100,
        key="answer",
        name="answer",
        type=column_type,
        kind=kind,
        mode="on_change",
        deps=tuple(Dependency(dep, optional=False) for dep in range(1, deps + 1)),
        timeout=30,
        attempts=4,
        settings=settings,
        hash=bytes(16),
    )


def llm_column(column_type: ColumnType = TEXT, **settings: Json) -> Column:
    prompt: list[Json] = ["Summarise.\n", {"column": 1}]
    return column("llm", column_type, {"model": "gpt-5-mini", "prompt": prompt, **settings})


def function_column(name: str, column_type: ColumnType = INTEGER, deps: int = 1) -> Column:
    return column("function", column_type, {"name": f"tests.kinds.functions:{name}"}, deps)


def call(column: Column, *inputs: Json, deadline: float = 10) -> Call:
    """A call with these inputs, of columns named ``a``, ``b``, …"""
    return Call(
        column=column,
        inputs=dict(enumerate(inputs, 1)),
        names={number: "abcdefgh"[number - 1] for number in range(1, len(inputs) + 1)},
        collection="demo/packages",
        row_id=1,
        identity=("key-1",),
        deadline=deadline,
    )


@dataclass
class Script:
    """One scripted response. A ``body`` that is bytes is sent as it is, everything else as JSON."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def completion(content: str | None, *, finish_reason: str = "stop", refusal: str | None = None) -> dict[str, Any]:
    """A chat completion that cost 10 tokens in and 5 out."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "scripted-model",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish_reason,
                "message": {"role": "assistant", "content": content, "refusal": refusal},
            }
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }


class ScriptedProvider:
    """Answers one scripted response after the other, the last one again and again; keeps the requests' bodies."""

    def __init__(self) -> None:
        self.script: list[Script] = []
        self.requests: list[dict[str, Any]] = []
        self.authorizations: list[str] = []
        self.base_url = ""

    async def __aenter__(self) -> ScriptedProvider:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.base_url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        self.requests.append(await request.json())
        self.authorizations.append(request.headers.get("Authorization", ""))
        scripted = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        body = scripted.body if isinstance(scripted.body, bytes) else json.dumps(scripted.body).encode()
        headers = {"Content-Type": "application/json", **scripted.headers}
        return web.Response(body=body, status=scripted.status, headers=headers)
