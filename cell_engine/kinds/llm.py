"""The ``llm`` kind: one chat completion per cell through the OpenAI client, held to the column's type."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import cast

from cell_engine.errors import AutofillError, BadValueError
from cell_engine.kinds import llm_request
from cell_engine.kinds.base import Answer, Call, Failure, Outcome
from cell_engine.kinds.llm_chunks import Remembered, chunked
from cell_engine.kinds.llm_client import Clients, Spent
from cell_engine.kinds.llm_reading import content_of, value_of
from cell_engine.kinds.llm_request import Message
from cell_engine.prices import prices
from cell_engine.shares import ProviderKey
from cell_engine.specs.version import Column

CORRECTIONS = 2
"""How often an answer of the wrong shape is sent back before the cell fails: every try is billed."""


class LlmKind:
    """Chat completions with a strict JSON schema."""

    name = "llm"

    def __init__(self, *, base_url: str | None = None, api_key: str | None = None) -> None:
        """Without arguments ``OPENAI_BASE_URL`` and ``OPENAI_API_KEY`` are read at first use, for columns that name no
        address and no key of their own."""
        self._clients = Clients(base_url, api_key)
        self._remembered = Remembered()
        prices()  # a file of the user's that cannot be read is told at the start, not by the first call

    def check(self, column: Column) -> None:
        """Raises AutofillError if there is no key, or no usable address, to compute ``column`` with."""
        trouble = self._clients.trouble(self._clients.endpoint(column.settings))
        if trouble is not None:
            raise AutofillError(f"Column {column.name!r} is computed by an LLM. {trouble.message}")

    def at_once(self, call: Call) -> None:
        """Never: a model is far away."""

    def provider(self, column: Column) -> ProviderKey:
        """The base URL as the client calls it, and the column's model: limits belong to both."""
        return ProviderKey(self._clients.endpoint(column.settings).shown, cast(str, column.settings["model"]))

    async def compute(self, call: Call) -> Outcome:
        """Ask the model, and at most ``CORRECTIONS`` times again if its answer does not fit the column's type."""
        trouble = self._clients.trouble(self._clients.endpoint(call.column.settings))
        if trouble is not None:
            return trouble
        spent = Spent(str(call.column.settings["model"]))
        parts = chunked(call)
        try:
            async with asyncio.timeout(call.deadline):
                if parts is None:
                    outcome = await self._ask(spent, call)
                else:
                    outcome = await parts.compute(partial(self._ask, spent), self._remembered)
        except TimeoutError:
            progress = f" {parts.progress}" if parts is not None else ""
            outcome = Failure("transient", f"The model gave no answer within {call.deadline:g} s.{progress}")
        return spent.on(outcome)

    async def close(self) -> None:
        """Close all connections."""
        await self._clients.close()

    async def _ask(self, spent: Spent, call: Call) -> Outcome:
        return await self._converse(call, llm_request.messages(call), spent)

    async def _converse(self, call: Call, messages: Sequence[Message], spent: Spent) -> Outcome:
        """One call with its corrections: the conversation goes on from ``messages`` until an answer fits."""
        endpoint = self._clients.endpoint(call.column.settings)
        messages = list(messages)
        for _ in range(CORRECTIONS + 1):
            completion = await self._clients.complete(endpoint, llm_request.body(call, messages), call.traffic)
            if isinstance(completion, Failure):
                return completion
            spent.add(completion)
            content = content_of(completion)
            if isinstance(content, Failure):
                return content
            try:
                value = value_of(content, call.column.type)
            except BadValueError as error:
                problem = str(error)
                messages += llm_request.correction(content, problem)
            else:
                return Answer(value)
        return Failure("schema", f"The model's answer does not fit, after {CORRECTIONS} corrections: {problem}")
