"""A long text in parts that overlap: nothing of it is left out, and each is cut where the text pauses, if it does."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PAGE_BREAK = "\f"
# The best place to cut first: between pages, paragraphs, lines, sentences, words.
_PAUSES = tuple(map(re.compile, (_PAGE_BREAK, r"\n[ \t]*\n", r"\n", r"(?<=[.!?;])\s", r"\s")))
_LOOKED_AT = 0.25  # of a part, at its end, for a place to cut


@dataclass(frozen=True)
class Part:
    """One of ``count``, the first of which has number 1. ``pages`` count from 1; None for a text that has none."""

    number: int
    count: int
    text: str
    pages: tuple[int, int] | None

    @property
    def name(self) -> str:
        if self.pages is None:
            return f"Part {self.number} of {self.count}"
        first, last = self.pages
        pages = f"page {first}" if first == last else f"pages {first}-{last}"
        return f"Part {self.number} of {self.count} ({pages})"


def parts(text: str, size: int, overlap: int) -> list[Part]:
    """Parts of at most ``size`` characters, each of which begins with the last ``overlap`` of the one before, or a few
    less, so that it begins with a word."""
    places: list[tuple[int, int]] = []
    start = 0
    while True:
        end = (
            len(text) if len(text) - start <= size else _cut(text, start + size - int(size * _LOOKED_AT), start + size)
        )
        places.append((start, end))
        if end == len(text):
            break
        start = _word(text, max(end - overlap, start + 1), end)
    has_pages = _PAGE_BREAK in text
    found = []
    for number, (start, end) in enumerate(places, 1):
        first = text.count(_PAGE_BREAK, 0, start) + 1
        # A part that ends with a page break, or begins with one, has nothing of the page behind or before it.
        inner = text[start:end].strip()
        first += text[start:end].partition(inner[:1])[0].count(_PAGE_BREAK) if inner else 0
        pages = (first, first + inner.count(_PAGE_BREAK)) if has_pages else None
        found.append(Part(number, len(places), text[start:end], pages))
    return found


def _cut(text: str, least: int, most: int) -> int:
    """Where a part ends that must end between the two."""
    for pause in _PAUSES:
        last = None
        for last in pause.finditer(text, least, most):  # noqa: B007 (the last one is wanted)
            pass
        if last is not None:
            return last.end()
    return most


def _word(text: str, start: int, end: int) -> int:
    """The beginning of the first word from ``start`` on; ``start`` itself if none begins before ``end``."""
    if text[start - 1].isspace() or start == end:
        return start
    space = _PAUSES[-1].search(text, start, end)
    return space.end() if space else start
