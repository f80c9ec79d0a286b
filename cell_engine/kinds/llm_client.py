"""The way to a model: one OpenAI client per endpoint, what is read of its responses, and what they took."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import aiohttp
import httpx2
import openai
from pydantic import BaseModel, Field, ValidationError

from cell_engine.kinds.base import Answer, Failure, Outcome, Traffic
from cell_engine.kinds.limits import note_limits
from cell_engine.kinds.provider_errors import OversizedError, failure_of
from cell_engine.prices import prices
from cell_engine.specs.settings_models import may_hold_key
from cell_engine.specs.text import Json, shorten

_CONNECT_SECONDS = 15.0
_NO_LIMIT = 0  # to aiohttp; None would mean its default of 100. Caps and slots bound the calls, the pool must not.
_OPENAI = "https://api.openai.com/v1"  # the client's own, where nothing else is set
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_NO_KEY = "none"  # the client insists on one
MOST_BYTES = 64 * 2**20
"""Of a response, unpacked; a model's longest answer is a hundredth of that."""

_TRANSPORT_ERRORS = (openai.OpenAIError, httpx2.HTTPError, aiohttp.ClientError, OSError)


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Usage(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    # Many servers send none, some send what is of no use: never a reason to throw a paid answer away.
    prompt_tokens_details: Any = None
    completion_tokens_details: Any = None


class _ProviderError(BaseModel):
    message: str = "no reason given"
    code: int | str | None = None


class Completion(BaseModel):
    """What is read of a response."""

    model: str | None = None
    choices: list[_Choice] = Field(default_factory=list)
    usage: _Usage | None = None
    error: _ProviderError | None = None


class Spent:
    """The model, the tokens and the cost of all tries of one call, also of those that failed."""

    def __init__(self, asked: str) -> None:
        self.model: str | None = None
        self._asked = asked
        self.tokens_in = 0
        self.tokens_out = 0
        self.tokens_cached = 0
        self.tokens_reasoning = 0
        self.cost: int | None = 0

    def add(self, completion: Completion) -> None:
        self.model = completion.model or self.model or self._asked  # some servers do not say
        usage = completion.usage
        if usage is None or usage.prompt_tokens is None:
            self.cost = None
            return
        tokens_out = usage.completion_tokens or 0
        cached = _count(usage.prompt_tokens_details, "cached_tokens")
        self.tokens_in += usage.prompt_tokens
        self.tokens_out += tokens_out
        self.tokens_cached += cached
        self.tokens_reasoning += _count(usage.completion_tokens_details, "reasoning_tokens")
        price = prices().of(self.model)
        if price is None:
            self.cost = None
        elif self.cost is not None:
            self.cost += price.cost(usage.prompt_tokens, cached, tokens_out)

    def on(self, outcome: Outcome) -> Outcome:
        spent: dict[str, Any] = {
            "model": self.model,
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "tokens_cached": self.tokens_cached,
            "tokens_reasoning": self.tokens_reasoning,
            "cost": self.cost,
        }
        return outcome._replace(**spent) if isinstance(outcome, Answer) else replace(outcome, **spent)


def _count(details: object, name: str) -> int:
    count = details.get(name) if isinstance(details, dict) else None
    return count if isinstance(count, int) and count > 0 else 0


class Endpoint(NamedTuple):
    """Where a column's calls go. ``address`` is None for the client's own, ``key`` the name of the environment variable
    that holds the key, None for an address of the column's own that names none."""

    address: str | None
    key: str | None

    @property
    def shown(self) -> str:
        """The address as it may be shown and compared."""
        return shown_address(self.address or _OPENAI)


class Clients:
    """One client, and so one pool of connections, for each endpoint that columns name."""

    def __init__(self, base_url: str | None, api_key: str | None) -> None:
        """What stands in for ``OPENAI_BASE_URL`` and ``OPENAI_API_KEY``; None: they are read at first use."""
        self._base_url = base_url
        self._api_key = api_key
        self._usual: Endpoint | None = None
        self._opened: dict[Endpoint, _Client] = {}

    def endpoint(self, settings: Mapping[str, Json]) -> Endpoint:
        """Of a column. An address of its own never gets the key that was meant for another."""
        address, key = cast(str | None, settings.get("base_url")), cast(str | None, settings.get("key"))
        if address is not None:
            return Endpoint(address, key)
        if self._usual is None:
            self._usual = Endpoint(self._base_url or os.environ.get("OPENAI_BASE_URL") or None, "OPENAI_API_KEY")
        return self._usual if key is None else self._usual._replace(key=key)

    def trouble(self, endpoint: Endpoint) -> Failure | None:
        """Why no request can be sent at all, told before the client would in words of its own."""
        if endpoint in self._opened:
            return None
        key = self._secret(endpoint)
        if not key:
            return Failure(
                "auth",
                f"This process has no key: set {endpoint.key} (any text, if the server at "
                f"{'OPENAI_BASE_URL' if endpoint.key == 'OPENAI_API_KEY' else endpoint.shown} asks for none).",
            )
        if not key.isascii() or not key.isprintable():
            return Failure(
                "auth", f"{endpoint.key} holds a line break or another character that no key has: set it anew."
            )
        if endpoint.address is not None and not is_http(endpoint.address):
            return Failure(
                "model_missing",
                f"OPENAI_BASE_URL is no address: {shorten(endpoint.address)}. Set it to one such as https://host/v1.",
            )
        return None

    async def complete(
        self, endpoint: Endpoint, body: Mapping[str, Any], traffic: Traffic | None
    ) -> Completion | Failure:
        """One request, sent once. No failure has the key in its words."""
        client = self._client(endpoint)
        if traffic is not None:
            traffic.requests += 1
        try:
            # Not client.chat.completions: it walks the body along its type hints, which doubles the CPU of a call,
            # and takes any JSON for a completion. Retries, errors and the transport are the client's all the same.
            response = await client.openai.post("/chat/completions", cast_to=httpx2.Response, body=dict(body))
        except _TRANSPORT_ERRORS as error:
            if traffic is not None and isinstance(error, openai.APIStatusError):
                note_limits(traffic, error.response.headers)
            return failure_of(error, endpoint.key, client.hide)
        if traffic is not None:
            note_limits(traffic, response.headers)
        try:
            completion = Completion.model_validate_json(response.content)
        except ValidationError as error:
            return Failure("transient", f"The model's server sent no chat completion: {_first_problem(error)}")
        if completion.error is not None:
            completion.error.message = client.hide(completion.error.message)
        return completion

    async def send_form(
        self,
        endpoint: Endpoint,
        path: str,
        fields: Mapping[str, Any],
        file: tuple[str, bytes],
        traffic: Traffic | None,
    ) -> bytes | Failure:
        """One request as a form with one file, (name, content), sent once; the body of its response."""
        client = self._client(endpoint)
        if traffic is not None:
            traffic.requests += 1
        try:
            response = await client.openai.post(
                path,
                cast_to=httpx2.Response,
                body=dict(fields),
                files=[("file", file)],
                options={"headers": {"Content-Type": "multipart/form-data"}},
            )
        except _TRANSPORT_ERRORS as error:
            if traffic is not None and isinstance(error, openai.APIStatusError):
                note_limits(traffic, error.response.headers)
            return failure_of(error, endpoint.key, client.hide)
        if traffic is not None:
            note_limits(traffic, response.headers)
        return response.content

    async def close(self) -> None:
        """Close all connections."""
        opened, self._opened = self._opened, {}
        for client in opened.values():
            await client.openai.close()

    def _secret(self, endpoint: Endpoint) -> str | None:
        if endpoint.key is None:
            return _NO_KEY
        if endpoint.key == "OPENAI_API_KEY" and self._api_key:
            return self._api_key
        return os.environ.get(endpoint.key) if may_hold_key(endpoint.key) else None

    def _client(self, endpoint: Endpoint) -> _Client:
        client = self._opened.get(endpoint)
        if client is None:
            client = self._opened[endpoint] = _open(endpoint, self._secret(endpoint) or "")
        return client


class _Client(NamedTuple):
    openai: openai.AsyncOpenAI
    secret: str

    def hide(self, words: str) -> str:
        """`words` without the key: not all look like one, so that no pattern would find it."""
        return words.replace(self.secret, "***") if self.secret != _NO_KEY else words


def _open(endpoint: Endpoint, secret: str) -> _Client:
    address = endpoint.address
    timeout = openai.Timeout(None, connect=_CONNECT_SECONDS)  # the call's deadline covers the rest
    client = openai.AsyncOpenAI(
        base_url=address or openai.not_given,
        api_key=secret,
        # The engine retries: it alone knows the attempts left and what the whole lane was told to wait.
        max_retries=0,
        timeout=timeout,
        http_client=openai.DefaultAioHttpClient(
            timeout=timeout,
            limits=httpx2.Limits(max_connections=_NO_LIMIT),
            event_hooks={"response": [_read_bounded]},
            # The proxy of the environment is for the world outside, never for a server on this machine.
            trust_env=address is None or urlsplit(address).hostname not in _LOOPBACK,
        ),
    )
    return _Client(client, secret)


async def _read_bounded(response: httpx2.Response) -> None:
    """Read the body here, counted as it comes and is unpacked: read whole by the client, it could take all memory."""
    parts: list[bytes] = []
    size = 0
    async with aclosing(response.aiter_bytes()) as stream:
        async for part in stream:
            size += len(part)
            if size > MOST_BYTES:
                # Hung up below the client, which would wait for the rest (as it does if its insides are others).
                inside = getattr(getattr(response.stream, "_stream", None), "_aiohttp_response", None)
                if inside is not None:
                    inside.close()
                raise OversizedError(f"its answer has more than {MOST_BYTES:,} bytes.")
            parts.append(part)
    response._content = b"".join(parts)  # where the response itself keeps what it has read


@lru_cache(maxsize=256)  # asked before every call
def shown_address(address: str) -> str:
    """A base URL that may be shown and compared: no user, no password, no query, one slash at its end."""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
        host = f"[{host}]" if ":" in host else host
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return "no address"
    return f"{parts.scheme.lower()}://{host}{port}{parts.path.rstrip('/')}/"


def is_http(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, problem['loc'])) or 'body'}: {problem['msg']}"
