"""What comes out of visits: answers into cells, and the end of visits, in one durable transaction a batch."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple
from uuid import UUID

from cell_engine.plan import Asked
from cell_engine.specs.text import Json
from cell_engine.store.arrays import binaries, numbers, texts
from cell_engine.store.budgets import Left, enforce
from cell_engine.store.cache import ended_calls, store_answers
from cell_engine.store.claims import Reading, RowKey, Token, read
from cell_engine.store.database import Connection, run

Ending = Literal["done", "delay", "hand_over", "defer", "hand_back"]


@dataclass(slots=True)
class Result:
    """The end of one call, or what a plan found without one.

    `signal` is the demand the visit had planned with when the call started, or a later force that the cell
    remembers. With `call` false and no error the cell is current and only its numbers move (without a version:
    outdated, likewise); with an error class it is blocked. `retry` leaves the cell alone: the failure will be tried
    again. `leaving`: the row's release is in the same batch. `reads`: how many places before it are those results
    of the same batch that it has read, in addition to what `read_change` covers. `cached`: the answer was there,
    and no call was made; `demanded` is the signal of the call that brought it, its tokens are those saved.
    `cache_signal`: what `cache.ask` gave its call; None where none was asked for. `cost` is in billionths of a
    dollar, None where it is not known; `saved_cost`, likewise, what the call had cost whose answer was taken.
    `state`: "proposed" for an answer that is held for review; "waiting" for a cell asked for by name that has an
    input on its way, which leaves it alone but for a force, kept in `demanded`.
    `seconds`: how long the call took, where that was measured.
    """

    key: RowKey
    token: Token
    column_id: int
    signal: int
    dispatch_id: int
    batch_id: int
    version: int | None
    read_change: int
    fingerprint: bytes | None = None
    call: bool = True
    cached: bool = False
    cache_signal: int | None = None
    retry: bool = False
    leaving: bool = False
    value: Json = None
    error_class: str | None = None
    error: str | None = None
    demanded: int = 0
    model: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    reads: tuple[int, ...] = ()
    tokens_cached: int = 0
    tokens_reasoning: int = 0
    cost: int | None = 0
    saved_cost: int | None = 0
    details: Mapping[str, Json] | None = None
    state: Literal["proposed", "waiting"] | None = None
    seconds: float | None = None


@dataclass(slots=True)
class Release:
    """The end of a visit that had planned with `signal`, when demand had come `raised` times.

    `answered` are the columns of this batch's results for it. `seconds`: not before then (delay, hand_over, defer).
    `job_type`: the pool it is handed over to. `awaits`: the fingerprint of the call that the row waits for (delay).
    `owes`: demand may be left that these results do not meet; it has ended as well, and is credited.
    """

    key: RowKey
    token: Token
    signal: int
    raised: int
    ending: Ending
    seconds: float | None = None
    job_type: str | None = None
    answered: tuple[int, ...] = ()
    awaits: bytes | None = None
    owes: bool = True


class Stored(NamedTuple):
    """Whether the result won its compare-and-swap, and the change number its cell now has (0 where it was dropped).
    `moved`: the number came with this result. Of a row that leaves with the batch no number is told."""

    won: bool
    change: int
    moved: bool = False


class Released(NamedTuple):
    """`kept` comes with a fresh reading: there is newer demand, and the visit goes on."""

    outcome: Literal["released", "kept", "lost"]
    reading: Reading | None = None


@dataclass(slots=True)
class Flushed:
    """By position in the batch. `dispatches` are those whose end this may have been; `freed` are slots by collection
    id, for the next claim to give back; `ended` are calls of cached columns, by fingerprint: whether there is an
    answer, for `cache.wake`; `left` is what budgets still allow, None for a batch that cost nothing."""

    stored: list[Stored] = field(default_factory=list)
    released: list[Released] = field(default_factory=list)
    dispatches: set[int] = field(default_factory=set)
    freed: Counter[int] = field(default_factory=Counter)
    ended: dict[bytes, bool] = field(default_factory=dict)
    left: list[Left] | None = None


def flush(
    connection: Connection,
    worker_id: UUID,
    results: Sequence[Result],
    releases: Sequence[Release],
    number: int | None = None,
) -> Flushed:
    """Store a batch of one worker's results and releases: all of it, or, on an error, none.

    With a `number`, higher than that of any batch of this worker before it, the batch may be tried again after an error
    that left open whether it was stored: once stored it is found, and nothing is booked twice.
    """
    flushed = _flush(connection, worker_id, results, releases, number)
    costing = {one.key.collection_id for one in results if one.cost}
    if costing:
        flushed.left = enforce(connection, sorted(costing))
    return flushed


def _flush(
    connection: Connection,
    worker_id: UUID,
    results: Sequence[Result],
    releases: Sequence[Release],
    number: int | None,
) -> Flushed:
    flushed = Flushed()
    with connection.transaction():
        keys = {one.key for one in results} | {one.key for one in releases}
        begun = run(connection, "flush_begin", worker_id=worker_id, number=number, **_keys(list(keys))).fetchone()
        assert begun is not None
        if not begun.is_new:
            return _found(connection, worker_id, results, releases)
        flushed.released = [_RELEASED] * len(releases)
        leaving, others = _divide(results, releases)
        if results:
            others += _store(connection, worker_id, results, releases, leaving, flushed)
        if others:
            _release(connection, worker_id, releases, others, results, flushed)
        called = [one for one in results if one.cache_signal is not None]
        if called:
            flushed.ended = store_answers(connection, worker_id, called)
    return flushed


def _found(connection: Connection, worker_id: UUID, results: Sequence[Result], releases: Sequence[Release]) -> Flushed:
    """What became of a batch that was stored before. The slots it freed are not known: `recover` settles them."""
    keys = list({(one.key, one.token.claim) for one in releases})
    readings = {reading.key: reading for reading in read(connection, worker_id, keys)}
    released = [Released("kept" if one.key in readings else "released", readings.get(one.key)) for one in releases]
    ended = {one.key for one in releases}
    found = run(
        connection,
        "flush_found",
        worker_id=worker_id,
        **_keys([one.key for one in results]),
        claims=numbers([one.token.claim for one in results]),
        columns=numbers([one.column_id for one in results]),
    ).fetchall()
    stored = [
        Stored(one.held or result.key in ended, one.change, one.change > 0)
        for result, one in zip(results, found, strict=True)
    ]
    called = [one for one in results if one.cache_signal is not None]
    return Flushed(stored, released, {one.dispatch_id for one in results}, ended=ended_calls(called))


def owes(asked: Mapping[int, Asked], results: Sequence[Result]) -> bool:
    """Whether a row that leaves with these results was asked for more, by column id, than they meet."""
    met = {one.column_id: one.signal for one in results if not one.retry}
    return True in [one.signal > met.get(column_id, 0) for column_id, one in asked.items()]


def end_dispatches(connection: Connection, dispatches: Sequence[int]) -> list[int]:
    """End those that are over, each exactly once, whoever asks; returns the ones ended here."""
    if not dispatches:
        return []
    return [one.id for one in run(connection, "end_dispatches", dispatches=sorted(dispatches))]


def _divide(results: Sequence[Result], releases: Sequence[Release]) -> tuple[dict[int, int], list[int]]:
    """The releases, by their places, that go with the last result of their visit (by its place), and the others."""
    # One worker's, so that the claim's number stands for the token: with all of it, hashing takes twice as long.
    last = {(one.key, one.token.claim): place for place, one in enumerate(results) if one.leaving} if releases else {}
    leaving: dict[int, int] = {}
    others: list[int] = []
    for place, one in enumerate(releases):
        at = last.get((one.key, one.token.claim)) if one.ending == "done" and not one.owes else None
        if at is None:
            others.append(place)
        else:
            leaving[at] = place
    return leaving, others


def _store(
    connection: Connection,
    worker_id: UUID,
    results: Sequence[Result],
    releases: Sequence[Release],
    leaving: Mapping[int, int],
    flushed: Flushed,
) -> list[int]:
    """Returns the releases, of those `leaving` with a result, that more demand or another worker has kept from it."""
    # Functions have no model, no tokens and no cost: then nothing of it is sent, and nothing stored.
    metered = results if any(one.model is not None or one.tokens_in for one in results) else ()
    flushed.stored = stored = [_LEFT] * len(results)
    stay = []
    for one in run(
        connection,
        "finalize_cells",
        worker_id=worker_id,
        **_keys([one.key for one in results]),
        claims=numbers([one.token.claim for one in results]),
        columns=numbers([one.column_id for one in results]),
        signals=numbers([one.signal for one in results]),
        calls=numbers([one.call for one in results]),
        # What hardly any has is null: an array of nulls costs next to nothing.
        cached=numbers([one.cached or None for one in results]),
        retries=numbers([one.retry or None for one in results]),
        leavings=numbers([one.leaving for one in results]),
        strings=texts([one.value if isinstance(one.value, str) else None for one in results]),
        jsons=texts([None if isinstance(one.value, str) else _json(one.value) for one in results]),
        error_classes=texts([one.error_class for one in results]),
        errors=texts([one.error for one in results]),
        fingerprints=binaries([one.fingerprint for one in results]),
        read_changes=numbers([one.read_change for one in results]),
        demanded=numbers([one.demanded or None for one in results]),
        versions=numbers([one.version for one in results]),
        models=texts([one.model for one in metered]),
        tokens_in=numbers([one.tokens_in for one in metered]),
        tokens_out=numbers([one.tokens_out for one in metered]),
        tokens_cached=numbers([one.tokens_cached for one in metered]),
        tokens_reasoning=numbers([one.tokens_reasoning for one in metered]),
        costs=numbers([one.saved_cost if one.cached else one.cost for one in metered]),
        dispatches=numbers([one.dispatch_id for one in results]),
        batches=numbers([one.batch_id for one in results]),
        back=numbers([one.reads[0] if len(one.reads) == 1 else None for one in results]),
        backs=texts([numbers(one.reads) if len(one.reads) > 1 else None for one in results]),
        details=texts([_json(one.details) for one in results]),
        states=texts([one.state for one in results]),
        seconds=numbers([one.seconds for one in results]),
        leaves=numbers(
            [releases[leaving[place]].raised if place in leaving else None for place in range(len(results))]
        ),
    ):
        if one.number is None:
            flushed.freed[one.collection_id] += one.slots
            flushed.dispatches.update(one.dispatches)
            continue
        if one.stays:
            stay.append(leaving[one.number - 1])
        stored[one.number - 1] = Stored(one.won, one.change or 0, one.moved)
        if one.met is not None:
            flushed.dispatches.add(one.met)
        if one.remembers:
            waits = results[one.number - 1]
            run(connection, "cell_remember", **waits.key._asdict(), column_id=waits.column_id, forced=one.remembers)
    return stay


def _release(
    connection: Connection,
    worker_id: UUID,
    releases: Sequence[Release],
    places: Sequence[int],
    results: Sequence[Result],
    flushed: Flushed,
) -> None:
    kept: list[int] = []
    chosen = [releases[place] for place in places]
    for one in run(connection, "release", worker_id=worker_id, **_release_columns(chosen, results)):
        flushed.dispatches.update(one.dispatches)
        flushed.freed[one.collection_id] += one.slots
        if one.outcome != "released":
            at = [places[number - 1] for number in one.numbers]
            for place in at:
                flushed.released[place] = Released(one.outcome)
            if one.outcome == "kept":
                kept += at
    visits = [(releases[place].key, releases[place].token.claim) for place in kept]
    fresh = {reading.key: reading for reading in read(connection, worker_id, visits)}
    for place, (key, _) in zip(kept, visits, strict=True):
        flushed.released[place] = Released("kept", fresh.get(key))


def _release_columns(releases: Sequence[Release], results: Sequence[Result]) -> dict[str, str]:
    # An answer meets the demand that its call had planned with, which may be less than the visit's last.
    signals = {
        (one.key, one.column_id): f"[{one.signal},{one.demanded}]" if one.cached else f"[{one.signal}]"
        for one in results
    }
    answered = [
        ",".join([f'"{column}":{signals.get((one.key, column), "[0]")}' for column in one.answered]) for one in releases
    ]
    return {
        **_keys([one.key for one in releases]),
        "claims": numbers([one.token.claim for one in releases]),
        "signals": numbers([one.signal for one in releases]),
        "raised": numbers([one.raised for one in releases]),
        "ends": texts([one.ending for one in releases]),
        "seconds": numbers([one.seconds for one in releases]),
        "job_types": texts([one.job_type for one in releases]),
        "awaits": binaries([one.awaits for one in releases]),
        "owing": numbers([one.owes for one in releases]),
        "answered": texts([f"{{{columns}}}" for columns in answered]),
    }


def _keys(keys: Sequence[RowKey]) -> dict[str, str]:
    return {"collections": numbers([key[0] for key in keys]), "rows": numbers([key[1] for key in keys])}


def _json(value: object) -> str | None:
    return None if value is None else _ENCODER.encode(value)


_LEFT = Stored(True, 0)
_RELEASED = Released("released")
_ENCODER = json.JSONEncoder(ensure_ascii=False)  # one for all: `json.dumps` makes one for each value
