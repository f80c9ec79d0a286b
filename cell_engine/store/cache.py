"""Answers by content: who asks, what is there, whose call it is, and who waits for it.

    ask → hit: take the answer · owner: make the call · wait: another row is making it; ask again when it has ended

The key is the fingerprint of `plan`: a column's definition and shown inputs. A call that has ended gives its key back
in the transaction that stores its answer; one that never ends keeps it for its lease, or until its visit has ended.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from cell_engine.specs.spec import KEPT_DAYS
from cell_engine.specs.text import Json
from cell_engine.store.arrays import binaries, numbers, texts
from cell_engine.store.database import Connection, run

if TYPE_CHECKING:
    from cell_engine.store.claims import RowKey
    from cell_engine.store.results import Result

WAKE_ROWS = 1000
TRIM_ENTRIES = 1000


@dataclass(frozen=True, slots=True)
class Ask:
    """A call that is due. `forced`: no answer that is older than this signal; `ttl`: nor one of more seconds (None:
    any). `lease`: seconds after which the call is anybody's, should it be given to this one."""

    key: "RowKey"
    claim: int
    column_id: int
    fingerprint: bytes
    forced: int
    ttl: float | None
    lease: float


@dataclass(frozen=True, slots=True)
class Told:
    """What became of an ask. For an owner, `signal` goes with the answer; a hit's is that of the call that brought
    it, as are the model, the tokens, the cost (billionths of a dollar, None if it is not known), and what is kept
    beside the value."""

    state: Literal["hit", "owner", "wait"]
    signal: int = 0
    value: Json = None
    model: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    cost: int | None = None
    details: Mapping[str, Json] | None = None


def ask(connection: Connection, worker_id: UUID, asks: Sequence[Ask]) -> list[Told]:
    """What becomes of each, in order. Safe to repeat where the answer was lost: an owner stays the owner."""
    columns = _columns(asks)
    with connection.transaction():
        run(connection, "transaction_asynchronous")  # what is lost in a crash is only a key given out twice
        leases = numbers([one.lease for one in asks])
        found = run(connection, "cache_ask", worker_id=worker_id, **columns, leases=leases).fetchall()
        told = [
            Told(
                one.told,
                one.signal or 0,
                one.value,
                one.model,
                one.tokens_in or 0,
                one.tokens_out or 0,
                one.cost,
                one.details,
            )
            for one in found
        ]
        owned = [number for number, one in enumerate(told) if one.state == "owner"]
        if owned:
            again = run(connection, "cache_recheck", **_columns([asks[number] for number in owned]))
            for number, *entry in again:
                told[owned[number - 1]] = Told("hit", *entry)
    return told


def store_answers(connection: Connection, worker_id: UUID, called: Sequence["Result"]) -> dict[bytes, bool]:
    """Calls have ended, won or lost: their keys are given back, and what answered is kept. In the caller's transaction,
    last in it. Returns `ended_calls`."""
    run(
        connection,
        "cache_store",
        worker_id=worker_id,
        collections=numbers([one.key.collection_id for one in called]),
        rows=numbers([one.key.row_id for one in called]),
        claims=numbers([one.token.claim for one in called]),
        columns=numbers([one.column_id for one in called]),
        fingerprints=binaries([one.fingerprint for one in called]),
        answered=numbers([one.error_class is None for one in called]),
        values=texts([None if one.value is None else _ENCODER.encode(one.value) for one in called]),
        signals=numbers([one.cache_signal for one in called]),
        models=texts([one.model for one in called]),
        tokens_in=numbers([one.tokens_in for one in called]),
        tokens_out=numbers([one.tokens_out for one in called]),
        costs=numbers([one.cost for one in called]),
        details=texts([None if one.details is None else _ENCODER.encode(one.details) for one in called]),
    )
    return ended_calls(called)


def ended_calls(called: Sequence["Result"]) -> dict[bytes, bool]:
    """By fingerprint, whether there is an answer."""
    ended: dict[bytes, bool] = {}
    for one in called:
        if one.fingerprint is not None:
            ended[one.fingerprint] = ended.get(one.fingerprint, False) or one.error_class is None
    return ended


def wake(connection: Connection, ended: Mapping[bytes, bool]) -> int:
    """After the commit that ended them: rows that wait for these calls are due, all of them where there is an answer,
    else one for each. Returns how many. What it misses comes by itself when its delay is over."""
    woken = 0
    left = list(ended.items())
    while left:
        most = numbers([WAKE_ROWS if answered else 1 for _, answered in left])
        with connection.transaction():
            run(connection, "transaction_asynchronous")
            fingerprints = binaries([fingerprint for fingerprint, _ in left])
            found = run(connection, "cache_wake", fingerprints=fingerprints, most=most).fetchall()
        woken += sum(one.rows for one in found)
        left = [left[one.number - 1] for one in found if one.rows == WAKE_ROWS]
    return woken


def trim(connection: Connection) -> int:
    """Forget answers that are older than KEPT_DAYS, some at a time; returns how many. Waits for nobody."""
    run(connection, "cache_owner_trim", limit=TRIM_ENTRIES)
    trimmed = 0
    while True:
        found: Any = run(connection, "cache_trim", days=KEPT_DAYS, limit=TRIM_ENTRIES).fetchone()
        entries: int = found.entries
        trimmed += entries
        if entries < TRIM_ENTRIES:
            return trimmed


def _columns(asks: Sequence[Ask]) -> dict[str, str]:
    return {
        "collections": numbers([one.key.collection_id for one in asks]),
        "rows": numbers([one.key.row_id for one in asks]),
        "claims": numbers([one.claim for one in asks]),
        "columns": numbers([one.column_id for one in asks]),
        "fingerprints": binaries([one.fingerprint for one in asks]),
        "forced": numbers([one.forced for one in asks]),
        "ttls": numbers([one.ttl for one in asks]),
    }


_ENCODER = json.JSONEncoder(ensure_ascii=False)
