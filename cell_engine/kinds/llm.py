"""The ``llm`` kind: one chat completion per cell through the OpenAI client, held to the column's type."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import cast

from cell_engine.errors import AutofillError, BadValueError
from cell_engine.kinds import llm_request
from cell_engine.kinds.base import Answer, Call, Failure, Outcome
from cell_engine.kinds.evidence import Checked, Claim, check
from cell_engine.kinds.llm_chunks import Remembered, chunked
from cell_engine.kinds.llm_client import Clients, Spent
from cell_engine.kinds.llm_reading import Said, content_of, read
from cell_engine.kinds.llm_request import Message
from cell_engine.prices import prices
from cell_engine.shares import ProviderKey
from cell_engine.specs import answer_shape
from cell_engine.specs.text import Json, shorten
from cell_engine.specs.version import Column

CORRECTIONS = 2
"""How often an answer of the wrong shape is sent back before the cell fails: every try is billed."""

CHECKED_IN_LINE = 100_000
"""Quotes from so many characters are looked up on the worker's loop, which stands still meanwhile: some 50 ms."""


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
        return await self.converse(call, llm_request.messages(call), spent)

    async def converse(self, call: Call, messages: Sequence[Message], spent: Spent) -> Outcome:
        """One answer with its corrections: the conversation goes on from ``messages`` until one fits, and is supported.

        A wrong shape is sent back ``CORRECTIONS`` times at most, and quotes that do not stand in the inputs once: who
        has made one up makes up the next.
        """
        endpoint = self._clients.endpoint(call.column.settings)
        settings = call.column.settings
        messages = list(messages)
        failure = None
        for _ in range(CORRECTIONS + 1):
            completion = await self._clients.complete(endpoint, llm_request.body(call, messages), call.traffic)
            if isinstance(completion, Failure):
                return completion
            spent.add(completion)
            content = content_of(completion)
            if isinstance(content, Failure):
                return content
            try:
                said = read(content, call.column.type, settings)
            except BadValueError as error:
                failure = Failure(
                    "schema", f"The model's answer does not fit, after {CORRECTIONS} corrections: {error}"
                )
                messages += llm_request.correction(content, str(error))
                continue
            if said.not_found is not None:
                return Answer(None, not_found=said.not_found)
            if not answer_shape.needs_evidence(settings):
                return Answer(said.value)
            checked = await _checked(said.claims, llm_request.quotable(call))
            if checked.evidence:
                return Answer(said.value, details=checked.details)
            is_second = failure is not None and failure.error_class == "unsupported"
            failure = Failure("unsupported", _unsupported(said))
            if is_second:
                return failure
            messages += llm_request.correction(content, _not_there(said.claims))
        assert failure is not None
        return failure


async def _checked(claims: Sequence[Claim], inputs: Mapping[str, Json]) -> Checked:
    if sum(len(value) for value in inputs.values() if isinstance(value, str)) < CHECKED_IN_LINE:
        return check(claims, inputs)
    return await asyncio.to_thread(check, claims, inputs)


def _unsupported(said: Said) -> str:
    answer = shorten(said.value)
    if not said.claims:
        return f"The model answered {answer}, and quoted nothing that it rests on."
    quotes = ", ".join(shorten(one.quote, 120) for one in said.claims[:3])
    return f"The model answered {answer}, and none of what it quotes stands in the inputs: {quotes}"


def _not_there(claims: Sequence[Claim]) -> str:
    if not claims:
        return '"evidence" is empty: quote the passages that the answer rests on, or say not found'
    quotes = "; ".join(f"{json.dumps(one.quote, ensure_ascii=False)} of {one.column}" for one in claims)
    return f"none of the quotes stands in the data: {quotes}. Quote word for word, and leave nothing out within a quote"
