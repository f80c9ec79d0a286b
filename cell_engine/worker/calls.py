"""How a call is made: an equal one's answer from the cache, else a place at its endpoint, leave to begin, and the kind.

A call that needs none of these goes straight to its kind. Until it has begun nothing is sent: it may be given up.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from cell_engine.kinds.apart import Apart
from cell_engine.kinds.base import Call, Kind, Outcome, Traffic
from cell_engine.shares import ProviderKey
from cell_engine.specs.text import Json
from cell_engine.store.cache import Ask
from cell_engine.worker.asker import Asker
from cell_engine.worker.holds import FREE, Refused
from cell_engine.worker.provider import Ticket
from cell_engine.worker.providers import Providers
from cell_engine.worker.watch import Watch


class Hit(NamedTuple):
    """An equal call's answer, its signal, and what it took."""

    value: Json
    signal: int
    model: str | None
    tokens_in: int
    tokens_out: int
    cost: int | None
    details: Mapping[str, Json] | None = None


class Awaited(NamedTuple):
    """Another row's call for the same is in flight."""

    fingerprint: bytes


class Called(NamedTuple):
    """What a call came to. `signal` goes with its answer into the cache, None for one that was not asked for there;
    `probed` is the hold that it probed, or FREE."""

    outcome: Outcome
    signal: int | None = None
    probed: int = FREE
    seconds: float | None = None


Settled: TypeAlias = Called | Hit | Awaited | Refused
"""What comes of wanting a call."""

Task: TypeAlias = asyncio.Task[Any]
"""Comes to a Settled, or, straight from a kind, to an Outcome."""


@dataclass(slots=True)
class Order:
    """A call that is wanted. `ask` is None for one that the cache is not asked for; `urgent` ones are ahead in line.

    `begin` gives leave at the last moment: FREE, the hold that the call probes, or why it may not be made now.
    """

    call: Call
    worker_id: UUID
    ask: Ask | None
    urgent: bool
    is_suspect: bool
    begin: Callable[[], int | Refused]


class Calls:
    """The calls of one worker."""

    def __init__(
        self,
        kinds: Mapping[str, Kind],
        apart: Apart,
        asker: Asker,
        providers: Providers,
        watch: Watch | None = None,
    ) -> None:
        self._watch = watch or Watch()
        self._kinds = kinds
        self._apart = apart
        self._asker = asker
        self._providers = providers

    def start(self, order: Order) -> Task | Refused:
        """Its task. Refused at once where nothing is to be waited for."""
        kind = self._kinds[order.call.column.job_type]
        key = kind.provider(order.call.column)
        if key is not None or order.ask is not None:
            return asyncio.get_running_loop().create_task(self._make(order, kind, key))
        begun = order.begin()
        if isinstance(begun, Refused):
            return begun
        return self._send(order, kind)

    def _send(self, order: Order, kind: Kind) -> "asyncio.Task[Outcome]":
        if order.is_suspect:
            return self._apart.start(order.call)
        return asyncio.get_running_loop().create_task(kind.compute(order.call))

    async def _make(self, order: Order, kind: Kind, key: ProviderKey | None) -> Settled:
        signal = None
        if order.ask is not None:
            told = await self._asker.ask(order.worker_id, order.ask)
            if told.state == "hit":
                spared = (told.model, told.tokens_in, told.tokens_out, told.cost)
                return Hit(told.value, told.signal, *spared, told.details)
            if told.state == "wait":
                return Awaited(order.ask.fingerprint)
            signal = told.signal
        if key is None:
            begun = order.begin()
            if isinstance(begun, Refused):
                return begun
            began = time.monotonic()
            return Called(await self._outcome(order, kind), signal, begun, time.monotonic() - began)
        ticket = await self._place(order, key)
        if isinstance(ticket, Refused):
            return ticket
        begun = order.begin()
        if isinstance(begun, Refused):
            ticket.drop()
            return begun
        traffic = order.call.traffic = Traffic()
        outcome = None
        began = time.monotonic()
        try:
            outcome = await self._outcome(order, kind)
        finally:
            # At once, not when the answer is stored: the place is the next call's.
            ticket.end(outcome, traffic)
        return Called(outcome, signal, begun, time.monotonic() - began)

    async def _outcome(self, order: Order, kind: Kind) -> Outcome:
        return await (self._send(order, kind) if order.is_suspect else kind.compute(order.call))

    async def _place(self, order: Order, key: ProviderKey) -> Ticket | Refused:
        """A ticket with a place; waits in line for it."""
        turn = asyncio.Event()
        call = order.call
        began = asyncio.get_running_loop().time()
        ticket = self._providers.of(key).ask(turn, urgent=order.urgent, column=call.column, inputs=call.inputs)
        if isinstance(ticket, Refused):
            return ticket
        try:
            while not ticket.may_go:
                if ticket.refused is not None:
                    return ticket.refused
                await turn.wait()
                turn.clear()
        except asyncio.CancelledError:
            ticket.drop()
            raise
        self._watch.waits[key].add(asyncio.get_running_loop().time() - began)
        return ticket
