"""When a column, or what fills a collection, is refreshed: a cron of five fields, in a time zone.

Dagster's scheduler is what keeps the time, so this takes what Dagster takes and both read alike; no more. cronsim
(2.8) was tried: it takes `5L` and `LW`, which Dagster refuses, and reads `*/2 * MON` as "both" where Dagster reads
"either"; croniter (7.0) takes six fields and the 31st of February. Left out of what Dagster takes are ranges that turn
(`22-2`), steps that step over everything, and `@daily`: each is written as well, and read at once, without them.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any
from zoneinfo import available_timezones

from pydantic import AfterValidator, BaseModel, ConfigDict

from cell_engine.specs.explain import suggest
from cell_engine.specs.text import Json, shorten

UTC = "UTC"

_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7))
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_NAMES: Mapping[str, Mapping[str, int]] = {
    "month": {name: number for number, name in enumerate(_MONTHS, 1)},
    "weekday": {name: number for number, name in enumerate(_WEEKDAYS)},
}
_PART = re.compile(r"(?:\*|(?P<first>[0-9a-z]{1,3})(?:-(?P<last>[0-9a-z]{1,3}))?)(?:/(?P<step>[0-9]{1,2}))?", re.ASCII)
_LAST_DAY = "l"
_LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_EXAMPLE = '"0 6 * * *", every day at six'


@dataclass(frozen=True)
class Schedule:
    """`cron` as it is read in `timezone`, a name of IANA's."""

    cron: str
    timezone: str = UTC

    def to_json(self) -> dict[str, Json]:
        return {"cron": self.cron, "timezone": self.timezone}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | None) -> "Schedule | None":
        return None if stored is None else cls(stored["cron"], stored["timezone"])


def check_cron(cron: str) -> str:
    """The cron, one space between its fields. Raises ValueError for one that Dagster would not take, or never keep."""
    fields = cron.split()
    if len(fields) != len(_FIELDS):
        raise ValueError(
            f"{shorten(cron)} has {len(fields)} fields, not five: minute, hour, day, month, weekday, such as {_EXAMPLE}"
        )
    taken = [_values(text, *field) for text, field in zip(fields, _FIELDS, strict=True)]
    days, months = taken[2], taken[3]
    # A weekday beside the day is enough by itself.
    if days and fields[4] == "*" and all(min(days) > _LONGEST[month - 1] for month in months):
        raise ValueError(f"{shorten(cron)} never comes: no such month has a day {min(days)}")
    return " ".join(fields)


def _values(text: str, name: str, least: int, most: int) -> set[int]:
    """What a field stands for; of the last day of a month nothing, since it is there in each. Raises ValueError."""
    found: set[int] = set()
    for part in text.lower().split(","):
        if part == _LAST_DAY and name == "day" and text.lower() == _LAST_DAY:
            return set()
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"{shorten(part)} is no {name} of a cron: {_takes(name, least, most)}")
        first, last = least, most
        if match["first"] is not None:
            first = _number(match["first"], name, least, most)
            last = first if match["step"] is None else most
        if match["last"] is not None:
            last = _number(match["last"], name, least, most)
        if first > last:
            raise ValueError(
                f"{shorten(part)}: the {name} goes backwards; write two ranges, {first}-{most},{least}-{last}"
            )
        step = int(match["step"] or 1)
        if not 1 <= step <= most - least:
            raise ValueError(f"{shorten(part)}: a {name} has steps of 1 to {most - least}")
        found.update(range(first, last + 1, step))
    return found


def _number(word: str, name: str, least: int, most: int) -> int:
    number = _NAMES.get(name, {}).get(word)
    if number is None:
        number = int(word) if word.isdigit() else -1
    if not least <= number <= most:
        raise ValueError(f"{shorten(word)} is no {name} of a cron: {_takes(name, least, most)}")
    return number


def _takes(name: str, least: int, most: int) -> str:
    also = {"day": ", or L for the last of the month", "month": ", or jan to dec", "weekday": ", or sun to sat"}
    return f"it takes *, {least} to {most}{also.get(name, '')}, ranges 1-5, steps */2, and lists of them 1,3"


def check_timezone(name: str) -> str:
    """Raises ValueError for a name that IANA's data base of time zones does not have."""
    known = _known_zones()
    if name not in known:
        raise ValueError(f"{shorten(name)} is no time zone: one such as Europe/Rome or UTC{suggest(name, known)}")
    return name


@lru_cache(maxsize=1)  # reads a folder
def _known_zones() -> frozenset[str]:
    return frozenset(available_timezones()) | {UTC}


Cron = Annotated[str, AfterValidator(check_cron)]
Zone = Annotated[str, AfterValidator(check_timezone)]


class RefreshModel(BaseModel):
    """When what fills a collection is looked at again."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    cron: Cron
    timezone: Zone = UTC


def column_problems(column: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What does not go together of a computed column's keys, as written: (key, message)."""
    mode, cron = column.get("mode"), column.get("cron")
    if mode == "cron" and cron is None:
        yield (
            "mode",
            f"mode: cron needs its schedule: say cron: {_EXAMPLE}, and timezone: Europe/Rome where that is not UTC; "
            "what is computed only when asked for is mode: never",
        )
    elif cron is not None and mode != "cron":
        yield "cron", "cron goes with mode: cron: say that, too, or leave the cron out"
    if column.get("timezone") is not None and cron is None:
        yield "timezone", "timezone is that of a cron, and there is none"
