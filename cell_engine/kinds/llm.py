"""The ``llm`` kind: one chat completion per cell through the OpenAI client, held to the column's type."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, cast
from urllib.parse import urlsplit

import aiohttp
import httpx2
import openai
from pydantic import BaseModel, Field, ValidationError

from cell_engine.errors import AutofillError, BadValueError
from cell_engine.kinds.base import Answer, Call, Failure, Outcome
from cell_engine.kinds.limits import note_limits
from cell_engine.kinds.provider_errors import class_of, failure_of
from cell_engine.prices import prices
from cell_engine.shares import ProviderKey
from cell_engine.specs import prompt
from cell_engine.specs.text import Json, shorten
from cell_engine.specs.types import ColumnType
from cell_engine.specs.version import Column

CORRECTIONS = 2
"""How often an answer of the wrong shape is sent back before the cell fails: every try is billed."""

# The older max_tokens is refused by OpenAI's reasoning models.
_PARAMETERS = {"temperature": "temperature", "max_tokens": "max_completion_tokens", "seed": "seed"}

_CONNECT_SECONDS = 15.0
_NO_LIMIT = 0  # to aiohttp; None would mean its default of 100. Caps and slots bound the calls, the pool must not.
_OPENAI = "https://api.openai.com/v1"  # the client's own, where nothing else is set
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_TRANSPORT_ERRORS = (openai.OpenAIError, httpx2.HTTPError, aiohttp.ClientError, OSError)

Message: TypeAlias = dict[str, str]
"""One message of a conversation: its role and its content."""


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


class _Completion(BaseModel):
    """What is read of a response."""

    model: str | None = None
    choices: list[_Choice] = Field(default_factory=list)
    usage: _Usage | None = None
    error: _ProviderError | None = None


class _Spent:
    """The model, the tokens and the cost of all tries of one call, also of those that failed."""

    def __init__(self, asked: str) -> None:
        self.model: str | None = None
        self._asked = asked
        self.tokens_in = 0
        self.tokens_out = 0
        self.tokens_cached = 0
        self.tokens_reasoning = 0
        self.cost: int | None = 0

    def add(self, completion: _Completion) -> None:
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
        return replace(
            outcome,
            model=self.model,
            tokens_in=self.tokens_in,
            tokens_out=self.tokens_out,
            tokens_cached=self.tokens_cached,
            tokens_reasoning=self.tokens_reasoning,
            cost=self.cost,
        )


def _count(details: object, name: str) -> int:
    count = details.get(name) if isinstance(details, dict) else None
    return count if isinstance(count, int) and count > 0 else 0


class LlmKind:
    """Chat completions with a strict JSON schema. One client, and so one pool of connections, for all calls."""

    name = "llm"

    def __init__(self, *, base_url: str | None = None, api_key: str | None = None) -> None:
        """Without arguments the client reads ``OPENAI_BASE_URL`` and ``OPENAI_API_KEY`` itself, at first use."""
        self._base_url = base_url
        self._api_key = api_key
        self._opened: openai.AsyncOpenAI | None = None
        prices()  # a file of the user's that cannot be read is told at the start, not by the first call
        self._endpoint: str | None = None

    def check(self, column: Column) -> None:
        """Raises AutofillError if there is no key, or no usable address, to compute ``column`` with."""
        trouble = self._trouble()
        if trouble is not None:
            raise AutofillError(f"Column {column.name!r} is computed by an LLM. {trouble.message}")

    def at_once(self, call: Call) -> None:
        """Never: a model is far away."""

    def provider(self, column: Column) -> ProviderKey:
        """The base URL as the client calls it, and the column's model: limits belong to both."""
        if self._endpoint is None:
            self._endpoint = shown_address(self._address() or _OPENAI)
        return ProviderKey(self._endpoint, cast(str, column.settings["model"]))

    async def compute(self, call: Call) -> Outcome:
        """Ask the model, and at most ``CORRECTIONS`` times again if its answer does not fit the column's type."""
        trouble = self._trouble() if self._opened is None else None
        if trouble is not None:
            return trouble
        spent = _Spent(str(call.column.settings["model"]))
        try:
            async with asyncio.timeout(call.deadline):
                outcome = await self._converse(call, spent)
        except TimeoutError:
            outcome = Failure("transient", f"The model gave no answer within {call.deadline:g} s.")
        return spent.on(outcome)

    async def close(self) -> None:
        """Close all connections."""
        if self._opened is not None:
            opened, self._opened = self._opened, None
            await opened.close()

    def _trouble(self) -> Failure | None:
        """Why no request can be sent at all, told before the client would in words of its own."""
        key = self._api_key or os.environ.get("OPENAI_API_KEY")
        if not key:
            return Failure(
                "auth",
                "This process has no key: set OPENAI_API_KEY "
                "(any text, if the server at OPENAI_BASE_URL asks for none).",
            )
        if not key.isascii() or not key.isprintable():
            return Failure(
                "auth", "OPENAI_API_KEY holds a line break or another character that no key has: set it anew."
            )
        address = self._address()
        if address is not None and not _is_http(address):
            return Failure(
                "model_missing",
                f"OPENAI_BASE_URL is no address: {shorten(address)}. Set it to one such as https://host/v1.",
            )
        return None

    def _address(self) -> str | None:
        """The base URL; None leaves it to the client, which knows OpenAI's."""
        return self._base_url or os.environ.get("OPENAI_BASE_URL") or None

    @property
    def _client(self) -> openai.AsyncOpenAI:
        if self._opened is None:
            address = self._address()
            timeout = openai.Timeout(None, connect=_CONNECT_SECONDS)  # the call's deadline covers the rest
            self._opened = openai.AsyncOpenAI(
                base_url=address or openai.not_given,
                api_key=self._api_key,
                # The engine retries: it alone knows the attempts left and what the whole lane was told to wait.
                max_retries=0,
                timeout=timeout,
                http_client=openai.DefaultAioHttpClient(
                    timeout=timeout,
                    limits=httpx2.Limits(max_connections=_NO_LIMIT),
                    # The proxy of the environment is for the world outside, never for a server on this machine.
                    trust_env=address is None or urlsplit(address).hostname not in _LOOPBACK,
                ),
            )
        return self._opened

    async def _converse(self, call: Call, spent: _Spent) -> Outcome:
        messages = _messages(call)
        for _ in range(CORRECTIONS + 1):
            try:
                completion = await self._complete(call, messages)
            except _TRANSPORT_ERRORS as error:
                if call.traffic is not None and isinstance(error, openai.APIStatusError):
                    note_limits(call.traffic, error.response.headers)
                return failure_of(error)
            except ValidationError as error:
                return Failure("transient", f"The model's server sent no chat completion: {_first_problem(error)}")
            spent.add(completion)
            content = _content(completion)
            if isinstance(content, Failure):
                return content
            try:
                value = _value(content, call.column.type)
            except BadValueError as error:
                problem = str(error)
                messages += _correction(content, problem)
            else:
                return Answer(value)
        return Failure("schema", f"The model's answer does not fit, after {CORRECTIONS} corrections: {problem}")

    async def _complete(self, call: Call, messages: Sequence[Message]) -> _Completion:
        if call.traffic is not None:
            call.traffic.requests += 1
        # Not client.chat.completions: it walks the body along its type hints, which doubles the CPU of a call,
        # and takes any JSON for a completion. Retries, errors and the transport are the client's all the same.
        response = await self._client.post(
            "/chat/completions", cast_to=httpx2.Response, body={**_request(call.column), "messages": messages}
        )
        if call.traffic is not None:
            note_limits(call.traffic, response.headers)
        return _Completion.model_validate_json(response.content)


def _request(column: Column) -> dict[str, Any]:
    """The request's body but for the messages: settings left out are not sent."""
    settings = cast(Mapping[str, Any], column.settings)
    body: dict[str, Any] = {
        "model": settings["model"],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "cell", "strict": True, "schema": _schema(column.type)},
        },
    }
    for setting, parameter in _PARAMETERS.items():
        if settings.get(setting) is not None:
            body[parameter] = settings[setting]
    return body


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


def _is_http(address: str) -> bool:
    try:
        parts = urlsplit(address)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _messages(call: Call) -> list[Message]:
    system, user = prompt.conversation(call.column.settings, call.inputs, call.names)
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def _correction(content: str, problem: str) -> list[Message]:
    return [
        {"role": "assistant", "content": content},
        {"role": "user", "content": f"That answer does not fit: {problem}\nAnswer again, as the schema demands."},
    ]


def _schema(column_type: ColumnType) -> dict[str, object]:
    """The column's type as strict mode takes it: always an object, closed, every key required."""
    return {
        "type": "object",
        "properties": {"value": column_type.json_schema()},
        "required": ["value"],
        "additionalProperties": False,
    }


def _content(completion: _Completion) -> str | Failure:
    """The text of the answer, or why there is none that could be used."""
    if completion.error is not None:  # gateways report an upstream's error with status 200
        status = completion.error.code if isinstance(completion.error.code, int) else 500
        return Failure(
            class_of(status, {str(completion.error.code)}, completion.error.message),
            f"The model's server failed: {completion.error.message}",
        )
    if not completion.choices:
        return Failure("transient", "The model's server sent an answer without choices.")
    choice = completion.choices[0]
    if choice.finish_reason == "length":
        return Failure(
            "truncated",
            f"The model's answer was cut off after {completion.usage.completion_tokens if completion.usage else '?'} "
            "tokens. Raise the column's llm.max_tokens, or leave it out.",
        )
    if choice.finish_reason == "content_filter":
        return Failure("refused", "The provider's content filter held the answer back.")
    if choice.message.refusal:
        return Failure("refused", f"The model refused: {choice.message.refusal}")
    return choice.message.content or ""


def _value(content: str, column_type: ColumnType) -> Json:
    """The cell's value out of ``{"value": …}``; raises BadValueError for everything else."""
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadValueError(f"not JSON: {error}: {shorten(content)}") from None
    if not isinstance(answer, dict) or answer.keys() != {"value"}:
        raise BadValueError(f'expected an object with the single key "value", not {shorten(content)}')
    return column_type.accept_answer(answer["value"])


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, problem['loc'])) or 'body'}: {problem['msg']}"
