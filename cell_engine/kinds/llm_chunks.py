"""Texts too long for one request: asked for part by part, then once for all of them.

A column that says ``chunks`` asks as usual while its text fits. Beyond that it asks ``map`` of each part, one after the
other (a cell is one call in flight, whatever it takes), then ``reduce`` exactly once, of what the parts came to. A part
that fails fails the cell, which names it, unless the column says to leave it out; then what ``reduce`` reads and the
cell's details say so. Nothing is cut silently.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, TypeAlias, cast

from cell_engine.kinds.base import PAUSING, Answer, Call, Failure, Outcome
from cell_engine.kinds.chunking import Part, parts
from cell_engine.kinds.evidence import Claim, check
from cell_engine.kinds.pictures import file_columns
from cell_engine.specs import prompt
from cell_engine.specs.text import Json, shorten
from cell_engine.specs.types import ColumnType

MOST_PARTS = 1_000
TRIES = 3
"""Of a part that fails transiently, within the call's deadline."""

_PAUSE_SECONDS = 0.5
_REMEMBERED = 5_000
_OF_PROMPT = ("examples",)
"""Settings that go with ``prompt`` alone."""

Ask: TypeAlias = Callable[[Call], Awaitable[Outcome]]
"""Asks the model a column's prompt over a call's inputs, corrections included."""


class Remembered:
    """What parts came to in calls that did not end: tried again, a call pays for no part twice, in this worker."""

    def __init__(self) -> None:
        self._answers: OrderedDict[bytes, str] = OrderedDict()

    def get(self, key: bytes) -> str | None:
        return self._answers.get(key)

    def keep(self, key: bytes, answer: str) -> None:
        self._answers[key] = answer
        if len(self._answers) > _REMEMBERED:
            self._answers.popitem(last=False)

    def forget(self, key: bytes) -> None:
        self._answers.pop(key, None)


@dataclass
class Chunked:
    """One call in parts. ``answered`` are those that have come so far."""

    call: Call
    column: int
    parts: list[Part]
    answered: int = 0
    _keys: list[bytes] = field(default_factory=list)

    @property
    def progress(self) -> str:
        return (
            f"{self.answered} of {len(self.parts)} parts were answered; they are kept for the next try. Raise the "
            "column's timeout if it needs longer."
        )

    async def compute(self, ask: Ask, remembered: Remembered) -> Outcome:
        """The answer of ``reduce``, with what happened to the parts in its details; or the failure of a part."""
        settings = self._settings
        if len(self.parts) > MOST_PARTS:
            return Failure(
                "too_long", f"It has {len(self.parts):,} parts of {settings['size']:,}; {MOST_PARTS:,} are asked for."
            )
        notes: list[str] = []
        failed: list[Json] = []
        for part in self.parts:
            found = await self._part(part, ask, remembered)
            if isinstance(found, str):
                notes.append(f"{part.name}:\n{found}")
                self.answered += 1
                continue
            if settings.get("failed") != "leave_out" or found.error_class in PAUSING | {"rate_limited"}:
                return replace(found, message=f"{part.name}: {found.message}")
            notes.append(f"{part.name}: it could not be read.")
            failed.append({"part": part.number, "class": found.error_class, "message": found.message})
            if len(failed) == len(self.parts):
                return replace(found, message=f"None of its {len(failed):,} parts could be read: {found.message}")
        outcome = await ask(self._reduce("\n\n".join(notes)))
        if isinstance(outcome, Answer):
            for key in self._keys:
                remembered.forget(key)
            outcome = await self._supported(outcome)
        if isinstance(outcome, Failure):
            return outcome
        chunks: dict[str, Json] = {"count": len(self.parts), "failed": failed}
        return outcome._replace(details={**(outcome.details or {}), "chunks": chunks})

    def requests(self, note: str) -> Iterator[Call]:
        """All that will be asked where no part fails and each comes to ``note``: for a dry run, which sends none."""
        if len(self.parts) <= MOST_PARTS:
            yield from map(self._map, self.parts)
            yield self._reduce("\n\n".join(f"{part.name}:\n{note}" for part in self.parts))

    async def _supported(self, answer: Answer) -> Outcome:
        """The quotes that stand in the text itself: those found so far stand in what the parts came to."""
        quoted = cast(list[dict[str, Any]], (answer.details or {}).get("evidence"))
        if not quoted:
            return answer
        claims = [Claim(one["column"], one["quote"]) for one in quoted]
        shown = [one for one in prompt.referred(self._parts_of("reduce")) if one not in file_columns(self.call)]
        inputs = {self.call.names[column]: self.call.inputs[column] for column in shown}
        checked = await asyncio.to_thread(check, claims, inputs)
        if not checked.evidence:
            said = ", ".join(shorten(claim.quote, 120) for claim in claims[:3])
            return Failure("unsupported", f"The model answered from its parts, and no quote stands in the text: {said}")
        return answer._replace(details={**(answer.details or {}), "evidence": checked.evidence})

    async def _part(self, part: Part, ask: Ask, remembered: Remembered) -> str | Failure:
        call = self._map(part)
        key = blake2b(call.column.hash + json.dumps([part.name, part.text]).encode(), digest_size=16).digest()
        self._keys.append(key)
        known = remembered.get(key)
        if known is not None:
            return known
        tried = 1
        while isinstance(outcome := await ask(call), Failure):
            if outcome.error_class != "transient" or tried == TRIES:
                return outcome
            await asyncio.sleep(outcome.retry_after or _PAUSE_SECONDS * 2**tried)
            tried += 1
        note = _note(outcome)
        remembered.keep(key, note)
        return note

    @property
    def _settings(self) -> Mapping[str, Any]:
        return cast(Mapping[str, Any], self.call.column.settings["chunks"])

    def _map(self, part: Part) -> Call:
        """Asks for text whatever the column's type: a part may have nothing to say of a date."""
        told = f"The text is too long for one reading. This is {part.name}: answer from this part alone."
        return self._asking("map", part.text, told, ColumnType("text"))

    def _reduce(self, notes: str) -> Call:
        told = f"In place of a text too long for one reading stands what its {len(self.parts)} parts came to."
        return self._asking("reduce", notes, told, self.call.column.type)

    def _asking(self, name: str, text: str, told: str, of_type: ColumnType) -> Call:
        column = self.call.column
        settings = {key: value for key, value in column.settings.items() if key not in _OF_PROMPT}
        system = settings.get("system")
        settings |= {"prompt": self._parts_of(name), "system": f"{system}\n\n{told}" if system else told}
        return replace(
            self.call,
            column=replace(column, type=of_type, settings=settings),
            inputs={**self.call.inputs, self.column: text},
        )

    def _parts_of(self, name: str) -> list[Json]:
        return cast(list[Json], self.call.column.settings[name])


def _note(answer: Answer) -> str:
    """What a part came to, with the quotes that stand in it."""
    if answer.not_found is not None:
        return f"Nothing: {answer.not_found}"
    quotes = cast(list[dict[str, Any]], (answer.details or {}).get("evidence") or [])
    return "\n".join([str(answer.value).strip(), *(f"Quote: {one['quote']}" for one in quotes)])


def chunked(call: Call) -> Chunked | None:
    """The call in parts; None for one whose text fits, or whose column does without."""
    settings = cast(Mapping[str, Any] | None, call.column.settings.get("chunks"))
    if settings is None:
        return None
    (cut,) = prompt.referred(cast(list[Json], call.column.settings["map"]))
    text = call.inputs[cut]
    if not isinstance(text, str) or len(text) <= settings["size"]:
        return None
    return Chunked(call, cut, parts(text, settings["size"], settings.get("overlap") or 0))
