"""What a kind is: from the inputs of one cell to its outcome, never to a crash of the worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias

from cell_engine.log import redact_text
from cell_engine.shares import ProviderKey
from cell_engine.specs.text import Json, clean_text
from cell_engine.specs.version import Column

ErrorClass: TypeAlias = Literal[
    "rate_limited",
    "transient",
    "waiting",
    "quota",
    "auth",
    "model_missing",
    "too_long",
    "truncated",
    "refused",
    "schema",
    "bad_input",
    "function_error",
    "crashed",
    "unsupported",
]

WAITING: ErrorClass = "waiting"
"""A file is not there yet, or not complete: the engine looks again, until the column's time for it is over."""

RETRYABLE: frozenset[ErrorClass] = frozenset({"rate_limited", "transient"})
"""The engine calls again by itself; rate limits cost no attempt."""

PAUSING: frozenset[ErrorClass] = frozenset({"quota", "auth", "model_missing"})
"""The whole lane waits for a person: the next cell would meet the same."""

MESSAGE_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class Previous:
    """The cell's last answer, and the details that came with it; perhaps of other inputs or another definition."""

    value: Json
    details: Mapping[str, Json]


@dataclass(slots=True)
class Traffic:
    """What a call sends to its endpoint and hears of its limits; noted as it goes, so also of a call broken off.

    ``requests`` counts what was sent; the limits are what the endpoint's headers leave, a minute.
    """

    requests: int = 0
    requests_minute: int | None = None
    tokens_minute: int | None = None


@dataclass(slots=True)
class Call:
    """One cell to compute.

    ``inputs`` are by id of the columns read; one of None is optional and absent. ``names`` is what a prompt and a
    function call columns, by id: their keys, so that a rename changes neither. ``collection`` is
    "namespace/name". ``identity`` is what ``idempotency_key`` is made of. ``deadline`` is the time for all of it, in
    seconds. ``traffic`` is for the kind to fill in, where the call goes to an endpoint. ``previous`` is there where the
    last answer came with details.
    """

    column: Column
    inputs: Mapping[int, Json]
    names: Mapping[int, str]
    collection: str
    row_id: int
    identity: tuple[str | int, ...]
    deadline: float
    traffic: Traffic | None = None
    previous: Previous | None = None

    @property
    def idempotency_key(self) -> str:
        """The same whenever the same demand is computed again, because a call may be repeated after a crash."""
        return ":".join(map(str, self.identity))


class Answer(NamedTuple):
    """A value that fits the column's type, and what it took: tokens of every try, cached ones among those in, reasoning
    ones among those out; ``cost`` in billionths of a dollar, None if unknown (no price, or no usage told).

    ``details`` are kept beside the value, cleaned JSON: nothing that reads the column sees them. ``not_found`` is why
    there is no value, which is then None: an answer too, and neither empty nor an error.
    """

    value: Json
    model: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    tokens_reasoning: int = 0
    cost: int | None = 0
    details: Mapping[str, Json] | None = None
    not_found: str | None = None


@dataclass(frozen=True)
class Failure:
    """Why there is no value. ``message`` is cleaned, redacted and shortened, whoever wrote it.

    ``retry_after``: seconds the other side asked to wait. Tokens were spent all the same.
    """

    error_class: ErrorClass
    message: str
    retry_after: float | None = None
    model: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    tokens_reasoning: int = 0
    cost: int | None = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", _presentable(self.message))


Outcome: TypeAlias = Answer | Failure


class Kind(Protocol):
    """Computes the columns of one job type. One instance serves a whole worker, many calls at a time."""

    @property
    def name(self) -> str:
        """The job type: what columns name as their ``kind``."""
        ...

    def check(self, column: Column) -> None:
        """Whether this process can compute ``column`` at all, asked when it starts.

        Raises AutofillError that names the column, what is missing and what to do.
        """
        ...

    def at_once(self, call: Call) -> Outcome | None:
        """The outcome of a call that waits for nothing, computed here and now on the worker's loop, which stands still
        meanwhile; None: `compute` is to be awaited. It does not raise."""
        ...

    def provider(self, column: Column) -> ProviderKey | None:
        """The endpoint whose limits bound the calls of ``column``; None if it needs nobody outside."""
        ...

    async def compute(self, call: Call) -> Outcome:
        """Compute one cell within ``call.deadline``; what fails is a Failure, not an exception."""
        ...

    async def close(self) -> None:
        """Give connections and threads back. The instance is of no use afterwards."""
        ...


def _presentable(message: str) -> str:
    # Redacted before it is cut: half a secret would no longer look like one.
    message = redact_text(clean_text(message)).strip()
    return message if len(message) <= MESSAGE_CHARACTERS else message[: MESSAGE_CHARACTERS - 1] + "…"
