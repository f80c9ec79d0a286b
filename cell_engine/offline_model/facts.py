"""Facts that a text states under a label, for instructions that put the label in quotes.

"… stated as "Start date" or "Effective date"" is answered by what stands behind one of these at the start of a line.
"""

from __future__ import annotations

import re
from calendar import month_name
from collections.abc import Iterator
from datetime import date

_QUOTED = re.compile(r"[\"“]([^\"“”\n]{1,60})[\"”]")
_MARKUP = r"[ \t>*_#|\-]*"
_MONTHS = {month_name[number].lower(): number for number in range(1, 13)}
_ISO = re.compile(r"(?<!\d)(\d{4})-(\d{2})-(\d{2})(?!\d)")
_DAY_FIRST = re.compile(r"(?<!\d)(\d{1,2})\.? ([A-Za-z]+),? (\d{4})(?!\d)")
_MONTH_FIRST = re.compile(r"([A-Za-z]+) (\d{1,2}), (\d{4})(?!\d)")
_AMOUNT = re.compile(r"(?<![\w.,])-?\d{1,3}(?:[, ]\d{3})+(?:\.\d+)?(?![\w,])|(?<![\w.,])-?\d+(?:\.\d+)?(?![\w,])")


def stated(instruction: str, text: str) -> str | None:
    """What ``text`` has behind the first label of those in quotes that begins a line there; None without one."""
    found = _stated(instruction, text)
    return found[1].strip(" \t*_|") if found else None


def stated_line(instruction: str, text: str) -> str | None:
    """All of the line that `stated` found it in."""
    found = _stated(instruction, text)
    return found[0].strip() if found else None


def _stated(instruction: str, text: str) -> re.Match[str] | None:
    for label in _labels(instruction):
        found = re.search(
            rf"^{_MARKUP}{re.escape(label)}[ \t*_|]*[:\t|][ \t*_]*(\S[^\n\f]*)", text, re.MULTILINE | re.IGNORECASE
        )
        if found:
            return found
    return None


def first_date(text: str) -> date | None:
    """The first day that is written out, by year, month and day or with the month's name."""
    found = sorted(_dates(text))
    return found[0][1] if found else None


def first_amount(text: str) -> float | None:
    """The first number, its thousands apart by commas or spaces."""
    found = _AMOUNT.search(text)
    return float(re.sub(r"[, ]", "", found.group())) if found else None


def _labels(instruction: str) -> list[str]:
    return [label.strip() for label in _QUOTED.findall(instruction) if label.strip()]


def _dates(text: str) -> Iterator[tuple[int, date]]:
    for match in _ISO.finditer(text):
        yield from _day(match, match[1], match[2], match[3])
    for match in _DAY_FIRST.finditer(text):
        yield from _day(match, match[3], match[2], match[1])
    for match in _MONTH_FIRST.finditer(text):
        yield from _day(match, match[3], match[1], match[2])


def _day(match: re.Match[str], year: str, month: str, day: str) -> Iterator[tuple[int, date]]:
    number = int(month) if month.isdigit() else _MONTHS.get(month.lower())
    if number is not None:
        try:
            yield match.start(), date(int(year), number, int(day))
        except ValueError:
            return
