"""Functions with annotations, for tests of what these promise."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType

if TYPE_CHECKING:
    from nowhere import Unknown

Name = NewType("Name", str)


def text_to_int(a: str) -> int:
    return len(a)


async def text_to_int_later(a: str) -> int:
    return len(a)


def promises_int(a: str) -> Awaitable[int]:
    return text_to_int_later(a)


def nothing_said(a, b=None):  # type: ignore[no-untyped-def]
    return a


def anything(a: Any, **others: object) -> object:
    return a


def unknown(a: Unknown) -> Unknown:
    return a


def union(a: str | int | None) -> float | str | None:
    return str(a)


def literal(a: Name) -> Literal["low", "HIGH"]:
    return "low"


def other_literal(a: Annotated[str, "text"]) -> Literal["medium"]:
    return "medium"


def number(a: float) -> float:
    return a


def whole(a: int) -> bool:
    return a > 1


def decimal(a: Decimal) -> Decimal:
    return a


def items(a: Sequence[str]) -> list[str]:
    return list(a)


def mapping(a: Mapping[str, str]) -> dict[str, str]:
    return dict(a)


def day(a: date) -> date:
    return a


def moment(a: str) -> datetime:
    return datetime.fromisoformat(a)


def needs_more(a: str, c: str, *, idempotency_key: str) -> str:
    return a + c + idempotency_key


class Lengths:
    def __call__(self, a: str) -> int:
        return len(a)


lengths = Lengths()
