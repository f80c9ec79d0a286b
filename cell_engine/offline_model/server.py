"""The offline model's HTTP server: OpenAI's chat-completions protocol on loopback."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from aiohttp import web
from pydantic import ValidationError

from cell_engine.offline_model.answers import BadRequestError, Completion, complete
from cell_engine.offline_model.limits import Limits
from cell_engine.offline_model.media import heard
from cell_engine.offline_model.switches import Fault, Switches

MODEL_NAME = "offline-model"
"""The ``model`` of every answer, whatever was asked for: this is not an LLM and does not pass for one."""

_LOOPBACK = "127.0.0.1"
_MAX_BODY_BYTES = 64 * 1024 * 1024
_BACKLOG = 4096  # hundreds of clients connect at once; a full backlog costs each of them a second
_STOP_GRACE_SECONDS = 1.0
_CHARACTERS_PER_TOKEN = 4
_NO_LINGER = struct.pack("ii", 1, 0)  # to SO_LINGER: closing resets the connection

Fate: TypeAlias = Fault | Literal["answered", "bad_request", "bad_key", "over_limit"]
"""What became of a call. ``wrong_shape``, ``truncated`` and ``invalid_json`` are billed as ``answered`` is."""


_Answerer: TypeAlias = Callable[[str, bytes, Fault | None], tuple[Fate, web.Response]]
"""From the key of a call, its body and the fault it is to have to its fate and response; raises BadRequestError."""


@dataclass
class Stats:
    """What the server has served since its start or the last reset.

    ``arrived`` counts calls as they come, ``by_fate`` as they end, ``by_status`` by HTTP status (a connection that was
    reset has none), ``bodies`` by hash of the request's body, ``billed`` the same for the calls that were answered
    with a completion, which is what a provider would bill, ``unpaid`` for those turned away for the quota.
    """

    arrived: int = 0
    by_fate: Counter[Fate] = field(default_factory=Counter)
    by_status: Counter[int] = field(default_factory=Counter)
    bodies: Counter[str] = field(default_factory=Counter)
    billed: Counter[str] = field(default_factory=Counter)
    unpaid: Counter[str] = field(default_factory=Counter)
    tokens_in: int = 0
    tokens_out: int = 0
    in_flight: int = 0
    most_in_flight: int = 0

    def as_json(self, *, with_bodies: bool) -> dict[str, Any]:
        """The statistics as ``GET /stats`` shows them; the bodies, one entry each, only on request."""
        shown: dict[str, Any] = {
            "calls": self.by_fate.total(),
            "by_fate": dict(sorted(self.by_fate.items())),
            "by_status": {str(status): count for status, count in sorted(self.by_status.items())},
            "billed": self.billed.total(),
            "distinct_bodies": len(self.bodies),
            "most_billed_for_one_body": max(self.billed.values(), default=0),
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "in_flight": self.in_flight,
            "most_in_flight": self.most_in_flight,
        }
        if with_bodies:
            shown["bodies"] = {
                body: {"calls": count, "billed": self.billed[body]} for body, count in self.bodies.items()
            }
        return shown


class OfflineModel:
    """The server, to be started and stopped inside an event loop.

    It listens on loopback only, needs no key and keeps nothing but its statistics.
    """

    def __init__(self, switches: Switches | None = None, *, port: int = 0) -> None:
        """``port`` 0 takes a free one."""
        self.switches = switches or Switches()
        self.stats = Stats()
        self._limits = Limits()
        self._port = port
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        """The port listened on; raises RuntimeError before ``start``."""
        if self._runner is None or not self._runner.addresses:
            raise RuntimeError("the offline model is not running: call start() first")
        return int(self._runner.addresses[0][1])

    @property
    def base_url(self) -> str:
        """What goes into ``OPENAI_BASE_URL``."""
        return f"http://{_LOOPBACK}:{self.port}/v1"

    async def start(self) -> OfflineModel:
        """Listen; raises OSError if the port is taken."""
        app = web.Application(client_max_size=_MAX_BODY_BYTES)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/audio/transcriptions", self._transcription)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/v1/models/{model}", self._model)
        app.router.add_get("/stats", self._get_stats)
        app.router.add_delete("/stats", self._reset_stats)
        app.router.add_get("/switches", self._get_switches)
        app.router.add_post("/switches", self._set_switches)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_STOP_GRACE_SECONDS)
        await runner.setup()
        try:
            await web.TCPSite(runner, _LOOPBACK, self._port, backlog=_BACKLOG).start()
        except OSError:
            await runner.cleanup()
            raise
        self._runner = runner
        return self

    async def stop(self) -> None:
        """Stop listening; calls in flight get a second, then their connections are closed."""
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()

    async def __aenter__(self) -> OfflineModel:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def reset_stats(self) -> None:
        """Forget what was served, so that the faults of the switches start over too."""
        in_flight = self.stats.in_flight
        self.stats = Stats(in_flight=in_flight, most_in_flight=in_flight)

    async def _chat(self, request: web.Request) -> web.Response:
        return await self._serve(request, request.read(), self._completed)

    async def _transcription(self, request: web.Request) -> web.Response:
        return await self._serve(request, _form(request), self._transcribed)

    async def _serve(self, request: web.Request, read: Awaitable[bytes], answer: _Answerer) -> web.Response:
        """A call of what bills: counted, within the limits, and with the faults of the switches."""
        self.stats.in_flight += 1
        self.stats.most_in_flight = max(self.stats.most_in_flight, self.stats.in_flight)
        try:
            fate, response = await self._let_in(request.headers.get("Authorization", ""), await read, answer)
        finally:
            self.stats.in_flight -= 1
        if response is not None:
            response.headers.update(self._limits.headers(self.switches))
        self.stats.by_fate[fate] += 1
        if response is None:
            _reset(request)
            return web.Response()  # aiohttp wants one and drops it; an exception it would log with its traceback
        self.stats.by_status[response.status] += 1
        return response

    async def _let_in(self, authorization: str, body: bytes, answer: _Answerer) -> tuple[Fate, web.Response | None]:
        """`_answer`, to those with the right key and within the limits."""
        if self.switches.key not in ("", authorization.removeprefix("Bearer ")):
            self.stats.arrived += 1
            return "bad_key", _error(401, "Incorrect API key provided.", code="invalid_api_key")
        seconds = self._limits.refusal(self.switches, time.monotonic())
        if seconds is not None:
            self.stats.arrived += 1
            return "over_limit", _rate_limited(seconds)
        try:
            return await self._answer(body, answer)
        finally:
            self._limits.leave()

    async def _answer(self, body: bytes, answer: _Answerer) -> tuple[Fate, web.Response | None]:
        """The call's fate and its response; None for a connection to be reset."""
        switches = self.switches
        body_hash = hashlib.blake2b(body, digest_size=16)
        key = body_hash.hexdigest()
        self.stats.arrived += 1
        self.stats.bodies[key] += 1
        occurrence = self.stats.bodies[key] - self.stats.unpaid[key]
        fault = switches.fault(body_hash.digest(), occurrence, self.stats.arrived)
        if fault == "quota_exhausted":
            self.stats.unpaid[key] += 1
            return fault, _error(
                429,
                "You exceeded your current quota, please check your plan and billing details.",
                code="insufficient_quota",
                error_type="insufficient_quota",
            )
        if fault == "rate_limited":
            return fault, _rate_limited(switches.retry_after)
        if switches.latency:
            await asyncio.sleep(switches.latency)
        if fault == "connection_reset":
            return fault, None
        if fault == "server_error":
            message = "The server had an error while processing your request."
            return fault, _error(500, message, error_type="server_error")
        try:
            return answer(key, body, fault)
        except BadRequestError as error:
            return "bad_request", _error(400, str(error), param=error.param)

    def _completed(self, key: str, body: bytes, fault: Fault | None) -> tuple[Fate, web.Response]:
        completion = complete(_json_object(body), flaw=fault)
        return completion.flaw or "answered", self._billed(key, completion)

    def _transcribed(self, key: str, body: bytes, fault: Fault | None) -> tuple[Fate, web.Response]:
        """What a WAV says in words of its own. A ``fault`` of answers is one of chats, and none here."""
        fields, file = body.split(b"\n", 1)
        asked = _json_object(fields)
        if not asked.get("model"):
            raise BadRequestError("you must provide a model parameter", "model")
        sound = heard(file)
        if sound is None:
            raise BadRequestError(
                "The offline model hears nothing: it reads the words in a WAV's INFO list (ICMT), and here are none.",
                "file",
            )
        self.stats.billed[key] += 1
        transcription: dict[str, Any] = {"text": sound.text}
        if asked.get("response_format") == "verbose_json":
            transcription |= {"duration": sound.seconds, "language": asked.get("language", "en")}
        return "answered", _json(transcription | {"usage": {"type": "duration", "seconds": sound.seconds}})

    def _billed(self, key: str, completion: Completion) -> web.Response:
        tokens_in = tokens(completion.prompt_characters)
        tokens_out = tokens(len(completion.content))
        self.stats.billed[key] += 1
        self.stats.tokens_in += tokens_in
        self.stats.tokens_out += tokens_out
        return _json(
            {
                "id": f"chatcmpl-{key}",
                "object": "chat.completion",
                "created": int(time.time()),
                "model": MODEL_NAME,
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": completion.content, "refusal": None},
                        "logprobs": None,
                        "finish_reason": completion.finish_reason,
                    }
                ],
                "usage": {
                    "prompt_tokens": tokens_in,
                    "completion_tokens": tokens_out,
                    "total_tokens": tokens_in + tokens_out,
                },
            }
        )

    async def _models(self, _: web.Request) -> web.Response:
        return _json({"object": "list", "data": [_MODEL]})

    async def _model(self, request: web.Request) -> web.Response:
        asked = request.match_info["model"]
        if asked != MODEL_NAME:
            return _error(404, f"The model '{asked}' does not exist.", code="model_not_found", param="model")
        return _json(_MODEL)

    async def _get_stats(self, request: web.Request) -> web.Response:
        return _json(self.stats.as_json(with_bodies=request.query.get("bodies") == "true"))

    async def _reset_stats(self, _: web.Request) -> web.Response:
        self.reset_stats()
        return _json(self.stats.as_json(with_bodies=False))

    async def _get_switches(self, _: web.Request) -> web.Response:
        return _json(self.switches.model_dump())

    async def _set_switches(self, request: web.Request) -> web.Response:
        """Change the switches named in the body, keep the others."""
        try:
            changes = _json_object(await request.read())
            self.switches = Switches.model_validate(self.switches.model_dump() | changes)
        except BadRequestError as error:
            return _error(400, str(error), param=error.param)
        except ValidationError as error:
            problems = (f"{'.'.join(map(str, each['loc'])) or 'switches'}: {each['msg']}" for each in error.errors())
            return _error(400, "; ".join(problems))
        return _json(self.switches.model_dump())


_MODEL = {"id": MODEL_NAME, "object": "model", "created": 0, "owned_by": "collection-autofill"}


async def _form(request: web.Request) -> bytes:
    """The fields of a form as a line of JSON, and its file behind it: equal forms are equal bytes, whatever separates
    their parts."""
    form = await request.post()
    fields = {name: value for name, value in form.items() if isinstance(value, str)}
    file = form.get("file")
    content = file.file.read() if isinstance(file, web.FileField) else b""
    return json.dumps(fields, sort_keys=True).encode() + b"\n" + content


def tokens(characters: int) -> int:
    """A deterministic stand-in for a tokenizer: one token for each four characters begun."""
    return -(-characters // _CHARACTERS_PER_TOKEN)


def _reset(request: web.Request) -> None:
    """Cut the call's connection with a TCP reset, not the orderly end that closing it would send."""
    if request.transport is not None:
        connection: socket.socket = request.transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        request.transport.abort()


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(body)
    except ValueError as error:
        raise BadRequestError(f"We could not parse the JSON body of your request: {error}") from None
    if not isinstance(parsed, dict):
        raise BadRequestError("The body of the request must be a JSON object.")
    return parsed


def _json(payload: Mapping[str, Any], *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(
        body=json.dumps(payload, separators=(",", ":")).encode(),
        status=status,
        headers=headers,
        content_type="application/json",
    )


def _rate_limited(seconds: float) -> web.Response:
    return _error(
        429,
        f"Rate limit reached for {MODEL_NAME}. Please try again in {seconds:g}s.",
        code="rate_limit_exceeded",
        error_type="requests",
        headers={"Retry-After": f"{seconds:g}"},
    )


def _error(
    status: int,
    message: str,
    *,
    error_type: str = "invalid_request_error",
    code: str | None = None,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    error = {"message": message, "type": error_type, "param": param, "code": code}
    return _json({"error": error}, status=status, headers=headers)
