"""Whether a quote stands in a text, and where. Pure.

Models copy with small differences: line breaks become spaces, hyphenated words are joined, quotation marks and dashes
become plain ones, ligatures and full-width letters ordinary ones. Both sides are folded alike, so that such a copy is
found, and each folded character knows where it came from. Words and numbers are never cut: ``5 million`` does not stand
in ``15 million``, nor ``1`` in ``1.5``.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cell_engine.specs.prompt import show
from cell_engine.specs.text import Json

QUOTE_CHARACTERS = 1000
"""As much of a quote is kept; its place is that of all of it."""

QUOTES = 20
"""So many of an answer's quotes are looked up."""

_PIECE = re.compile(r"(?P<plain>[!-,.-~]+)|(?P<space>\s+)|(?P<other>[^!-,.-~\s]+)")
_SAME = {
    **dict.fromkeys("‐‑‒–—―−﹘﹣－⁃", "-"),
    **dict.fromkeys("‘’‚‛′`´ʼ＇", "'"),
    **dict.fromkeys("“”„‟″«»＂", '"'),
    **dict.fromkeys("\u00ad\u200b\u200c\u200d\u2060\ufeff", ""),  # seen by nobody
}
_LETTER = r"[^\W\d_\u0300-\u036f]|[\u0300-\u036f]"
_IN_WORD = re.compile(rf"(?<={_LETTER})- ?(?={_LETTER})")
_SPACELESS = "\u0e00"  # from here on, scripts that mostly do without spaces between words
_MARKS = "\"' "


class Span(NamedTuple):
    """From the first character to behind the last."""

    start: int
    end: int


class Claim(NamedTuple):
    """What a model says that it has read: the column's key, and the words."""

    column: str
    quote: str


class Checked(NamedTuple):
    """``evidence`` as it is kept: column, quote as in the input, start, end, and page where there are pages."""

    evidence: list[Json]
    missing: list[Claim]

    @property
    def details(self) -> dict[str, Json]:
        """What is kept beside the answer: the evidence, and, where there are some, the quotes that stand nowhere."""
        unverified: list[Json] = [{"column": one.column, "quote": one.quote[:QUOTE_CHARACTERS]} for one in self.missing]
        return {"evidence": self.evidence, **({"unverified": unverified} if unverified else {})}


class Text:
    """A text to look quotes up in, folded at most once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._folded: _Folded | None = None

    def locate(self, quote: str) -> Span | None:
        """Where the quote stands first; None where it does not, or is empty."""
        quote = quote.strip()
        if not quote:
            return None
        exact = _find(quote, self.text, range(len(self.text)))
        if exact is not None:
            return exact
        if self._folded is None:
            self._folded = _fold(self.text)
        folded = _fold(quote).text.strip()
        for wanted in (folded, folded.strip(_MARKS)):  # some put quotation marks of their own around it
            found = _find(wanted, self._folded.text, self._folded.starts) if wanted else None
            if found is not None:
                return Span(self._folded.starts[found.start], self._folded.ends[found.end - 1])
        return None

    def page(self, place: int) -> int | None:
        """The page, from 1, of a text whose pages are joined by form feeds; None for one of a single page."""
        return 1 + self.text.count("\f", 0, place) if "\f" in self.text else None


def check(claims: Sequence[Claim], inputs: Mapping[str, Json]) -> Checked:
    """Look all quotes up: in the column that each names, else in the others. ``inputs`` are values by column key."""
    texts = {key: Text(text_of(value)) for key, value in inputs.items() if value is not None}
    evidence: list[Json] = []
    missing: list[Claim] = []
    for claim in claims[:QUOTES]:
        for key in sorted(texts, key=lambda key: key != claim.column):
            span = texts[key].locate(claim.quote)
            if span is not None:
                evidence.append(_entry(key, texts[key], span))
                break
        else:
            missing.append(claim)
    return Checked(evidence, missing)


def text_of(value: Json) -> str:
    """What a value's quotes are looked up in: a text, a document's among its metadata, else what prompts show."""
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        return str(value["text"])
    return show(value)


def _entry(key: str, text: Text, span: Span) -> dict[str, Json]:
    page = text.page(span.start)
    return {
        "column": key,
        "quote": text.text[span.start : span.end][:QUOTE_CHARACTERS],
        "start": span.start,
        "end": span.end,
        **({} if page is None else {"page": page}),
    }


class _Folded(NamedTuple):
    """Folded text; each of its characters stands for ``[starts, ends)`` of the original."""

    text: str
    starts: list[int]
    ends: list[int]


def _fold(text: str) -> _Folded:
    pieces: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for piece in _PIECE.finditer(text):
        start, end = piece.span()
        if piece.lastgroup == "plain":
            pieces.append(piece.group().lower())
            starts.extend(range(start, end))
            ends.extend(range(start + 1, end + 1))
        elif piece.lastgroup == "space":
            pieces.append(" ")
            starts.append(start)
            ends.append(end)
        else:
            for place, character in enumerate(piece.group(), start):
                plain = _plain(character)
                pieces.append(plain)
                starts.extend([place] * len(plain))
                ends.extend([place + 1] * len(plain))
    return _joined("".join(pieces), starts, ends)


def _plain(character: str) -> str:
    same = _SAME.get(character)
    if same is not None:
        return same
    # Decomposed rather than composed: then each character can be folded by itself, wherever it stands.
    decomposed = unicodedata.normalize("NFKD", character).casefold()
    return "".join(_SAME.get(one, one) for one in unicodedata.normalize("NFKD", decomposed))


def _joined(text: str, starts: list[int], ends: list[int]) -> _Folded:
    """Without the hyphens within words: at the end of a line nobody can tell which of them belong to the word."""
    kept: list[str] = []
    kept_starts: list[int] = []
    kept_ends: list[int] = []
    behind = 0
    for hyphen in _IN_WORD.finditer(text):
        kept.append(text[behind : hyphen.start()])
        kept_starts += starts[behind : hyphen.start()]
        kept_ends += ends[behind : hyphen.start()]
        behind = hyphen.end()
    if not kept:
        return _Folded(text, starts, ends)
    return _Folded("".join((*kept, text[behind:])), kept_starts + starts[behind:], kept_ends + ends[behind:])


def _find(wanted: str, text: str, places: Sequence[int]) -> Span | None:
    """The first place that cuts no word and no number in two. ``places`` are those of the text's characters in the
    original: where one follows another that it did not follow there, a hyphen was."""
    start = text.find(wanted)
    while start >= 0:
        end = start + len(wanted)
        if not (_cuts(text, start, places) or _cuts(text, end, places)):
            return Span(start, end)
        start = text.find(wanted, start + 1)
    return None


def _cuts(text: str, place: int, places: Sequence[int]) -> bool:
    if not 0 < place < len(text) or places[place] > places[place - 1] + 1:
        return False
    after = text[place]
    if unicodedata.combining(after):
        return True
    base = place - 1
    while base > 0 and unicodedata.combining(text[base]):
        base -= 1
    before = text[base]
    if before.isalnum() and after.isalnum():
        return before < _SPACELESS and after < _SPACELESS
    if before in ".," and after.isdigit():
        return base > 0 and text[base - 1].isdigit()
    return before.isdigit() and after in ".," and place + 1 < len(text) and text[place + 1].isdigit()
