"""What an answer of the offline model rests on: the sentence in which it was found, word for word, and its column."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cell_engine.offline_model.choices import named_licence, speaking_words
from cell_engine.offline_model.extract import HEAD_CHARACTERS, words
from cell_engine.offline_model.facts import stated_line

QUOTE_CHARACTERS = 300
NUMBER = re.compile(r"(?<![\w.-])-?\d+(?:\.\d+)?(?!\w|[.-]\d)")
DOES_NOT_SAY = "The text does not say."

_WORDS_OF_TEXT = 3  # that find a summary's sentence again, whose markup is gone
_WORD = re.compile(r"[^\W_]+")
_SENTENCE_START = re.compile(r"(?:[.!?][\"')\]]*\s+|[\n\f])\s*(?=\S)")
_SENTENCE_END = re.compile(r"[.!?](?=[\"')\]]*\s)|[\n\f]")
_CURRENCIES = {"€": "EUR", "$": "USD", "£": "GBP", "¥": "JPY"}
_CURRENCY = re.compile(r"[€$£¥]|\b(?:EUR|USD|GBP|JPY|CHF|SEK|DKK|NOK|PLN|CNY|AUD|CAD)\b")


class Cell(NamedTuple):
    """A fenced cell of the prompt."""

    column: str
    text: str


class Ground(NamedTuple):
    column: str
    quote: str


def ground_of(schema: Mapping[str, Any], value: Any, cells: Sequence[Cell], instruction: str) -> Ground | None:
    """Where an answer to ``schema`` was found; None where it was not found, but only filled in."""
    find = _finder(schema, value, instruction)
    for cell in cells:
        place = find(cell.text[:HEAD_CHARACTERS])
        if place is not None:
            return Ground(cell.column, _sentence(cell.text, place))
    return None


def stated_ground(cells: Sequence[Cell], instruction: str) -> Ground | None:
    """The line in which a label that the instruction has in quotes states the answer."""
    for cell in cells:
        line = stated_line(instruction, cell.text)
        if line is not None:
            return Ground(cell.column, line[:QUOTE_CHARACTERS])
    return None


def unit_of(measure: str, other: str, amount: float, data: str) -> str:
    """``measure``, unless the sentence of the amount names another currency, or another unit right behind it."""
    for match in NUMBER.finditer(data[:HEAD_CHARACTERS]):
        if float(match.group()) == amount:
            sentence = _sentence(data, match.start())
            if measure in sentence or measure in {_CURRENCIES.get(sign) for sign in sentence}:
                return measure
            return other if _CURRENCY.search(sentence) else measure
    return measure


def made_up(ground: Ground) -> Ground:
    """A quote that stands nowhere: the words the other way round."""
    return Ground(ground.column, " ".join((*reversed(ground.quote.split()), "indeed", "so")))


def _finder(schema: Mapping[str, Any], value: Any, instruction: str) -> Callable[[str], int | None]:
    if "enum" in schema:
        return lambda text: _licence_or_word(schema["enum"], str(value), text)
    if isinstance(value, bool):
        asked = words(instruction) if value else []  # what is not said stands nowhere
        return lambda text: _first_word(asked, text)
    if isinstance(value, dict) and "amount" in value:
        value = value["amount"]
    if isinstance(value, int | float):
        return lambda text: next((one.start() for one in NUMBER.finditer(text) if float(one.group()) == value), None)
    if isinstance(value, list):
        items = schema.get("items", {})
        finders = [_finder(items, item, instruction) for item in value]
        return lambda text: next((place for find in finders if (place := find(text)) is not None), None)
    text = str(value)[:10] if schema.get("format") == "date-time" else str(value)
    return lambda data: _passage(text, data)


def _licence_or_word(choices: Sequence[str], choice: str, text: str) -> int | None:
    licence = named_licence(choices, text)
    return licence if licence is not None else _first_word(speaking_words(choice), text)


def _first_word(wanted: Sequence[str], text: str) -> int | None:
    folded = text.lower()
    places = (re.search(rf"\b{re.escape(word)}", folded) for word in wanted)
    return min((found.start() for found in places if found), default=None)


def _passage(wanted: str, text: str) -> int | None:
    place = text.find(wanted)
    if place >= 0:
        return place
    head = _WORD.findall(wanted)[:_WORDS_OF_TEXT]
    found = re.search(r"[\W_]+".join(head), text) if head else None
    return None if found is None else found.start()


def _sentence(text: str, place: int) -> str:
    start = max((end for end in _ends(_SENTENCE_START, text, max(0, place - QUOTE_CHARACTERS), place)), default=0)
    start = max(start, place - QUOTE_CHARACTERS // 2)
    end = _SENTENCE_END.search(text, place)
    stop = end.start() + (end.group() in ".!?") if end else len(text)
    return text[start : min(stop, start + QUOTE_CHARACTERS)].strip()


def _ends(pattern: re.Pattern[str], text: str, start: int, stop: int) -> Iterator[int]:
    return (match.end() for match in pattern.finditer(text, start, stop + 1) if match.end() <= stop)
