"""Plain sentences and words out of READMEs: markup, badges and code are skipped, nothing is rephrased."""

from __future__ import annotations

import re
from collections import Counter

from cell_engine.offline_model.wordlists import STOP_WORDS

HEAD_CHARACTERS = 16_000
"""How much of a text is read: what a text is about stands at its start, and a call must stay cheap."""

_SHORT_HEAD_CHARACTERS = 1_500

SUMMARY_CHARACTERS = 280
_ENOUGH_SUMMARY_CHARACTERS = 60  # a first sentence shorter than this is followed by the next one
_LEAST_SENTENCE_WORDS = 4
_SAYS_SOMETHING = re.compile(r"[.!?]$|\b(?:is|are|has|provides?|allows?|implements?|supports?)\b")

_LINE_WORDS = 12  # who asks for so few wants a line and no sentence
_MOST_WORDS = re.compile(r"\bat most (\d{1,3}) words\b")

_FENCED_CODE = re.compile(r"^[ \t]*(`{3,5}|~{3,5})[^\n]*\n.*?^[ \t]*\1[`~]*[ \t]*$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*\.\.[ \t][^\n]*(?:\n[ \t]+[^\n]*)*", re.MULTILINE)
_TABLE_OR_RULE = re.compile(r"^[ \t]*(?:\|.*|[+|][-=+|].*|([-=~^\"'*#+`:.])\1{2,}[ \t]*)$", re.MULTILINE)
_UNDERLINED_HEADING = re.compile(r"^[^\n]+\n([-=~^\"'*#+`:.])\1{2,}[ \t]*$", re.MULTILINE)
_HEADING = re.compile(r"^[ \t]*#{1,6}[ \t].*$", re.MULTILINE)
_HTML_HEADING = re.compile(r"<(h[1-6])\b[^<>]*>.*?(?:</\1>|\n\n|\Z)", re.DOTALL | re.IGNORECASE)
_IMAGE = re.compile(r"!\[[^\[\]\n]*\](?:\([^()\n]*\)|\[[^\[\]\n]*\])|\|[\w .-]+\|_?")
_LINK_TARGET = re.compile(r"^[ \t]*\[[^\]\n]+\]:.*$", re.MULTILINE)
_CONTENTS = re.compile(r"^[ \t]*(?:\*\*)?table of contents.*$", re.MULTILINE | re.IGNORECASE)
_LINK = re.compile(r"\[([^\[\]]{0,300})\](?:\([^()]{0,500}\)|\[[^\[\]\n]*\])")
_RST_LINK = re.compile(r"`([^`<\n]*?)\s*<[^>`\n]*>`__?")
_RST_ROLE = re.compile(r":[a-zA-Z:-]+:`([^`\n]*)`")
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_URL = re.compile(r"https?://[^\s<>\"')\]]+")
_EMPHASIS = re.compile(r"(?<!\w)[*_]{1,3}(?=\S)|(?<=\S)[*_]{1,3}(?!\w)|`+")
_FIELD_OR_PROMPT = re.compile(r"^[ \t]*(?::[\w -]+:|>>>|\$ |>\s).*$", re.MULTILINE)
_PARAGRAPH_END = re.compile(r"\n[ \t]*\n+|\n(?=[ \t]*(?:[-*+•]|\d+[.)])[ \t])")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]?[^\Wa-z_])")
_WORD = re.compile(r"[^\W\d_][\w'+-]*")


def plain(text: str) -> str:
    """``text`` without markup; paragraphs stay apart by an empty line."""
    text = text.replace("\r\n", "\n")
    for noise in (
        _COMMENT,
        _FENCED_CODE,
        _DIRECTIVE,
        _HTML_HEADING,
        _UNDERLINED_HEADING,
        _HEADING,
        _TABLE_OR_RULE,
        _FIELD_OR_PROMPT,
        _LINK_TARGET,
        _CONTENTS,
    ):
        text = noise.sub("\n", text)
    text = _IMAGE.sub(" ", text)
    for marked in (_LINK, _RST_LINK, _RST_ROLE):
        text = marked.sub(r"\1", text)
    for noise in (_TAG, _URL, _EMPHASIS):
        text = noise.sub("", text)
    return text


def summary(text: str) -> str:
    """The first one or two meaningful sentences of ``text``; "" if it has no words at all."""
    sentences = _first_sentences(text)
    chosen: list[str] = []
    for sentence in list(filter(_SAYS_SOMETHING.search, sentences)) or sentences:  # rather than titles, rows of links
        if chosen and len(" ".join(chosen)) + len(sentence) >= SUMMARY_CHARACTERS:
            break
        chosen.append(sentence)
        if len(" ".join(chosen)) >= _ENOUGH_SUMMARY_CHARACTERS:
            break
    head = text[:HEAD_CHARACTERS]
    return _shortened(" ".join(chosen) or " ".join(_readable(plain(head)).split()) or " ".join(head.split()))


def line(instruction: str, text: str) -> str:
    """The beginning of ``text`` where the instruction asks for a line of so few words; else all of it."""
    asked = _MOST_WORDS.search(instruction)
    most = int(asked[1]) if asked else 0
    found = text.split()
    if not 0 < most <= _LINE_WORDS or len(found) <= most:
        return text
    return " ".join(found[:most]).rstrip(" ,;:-") + " …"


def first_url(text: str) -> str | None:
    """The first http(s) address in ``text``."""
    found = _URL.search(text)
    return found.group().rstrip(".,;:") if found else None


def words(text: str) -> list[str]:
    """The words of the head of ``text`` that carry a topic, in order: lower case, singular."""
    return [singular(word) for word in _WORD.findall(text[:HEAD_CHARACTERS].lower()) if word not in STOP_WORDS]


def keywords(text: str, most: int) -> list[str]:
    """The ``most`` most frequent words of ``text``; of equally frequent ones those that come first."""
    counts = Counter(word for word in words(_URL.sub(" ", text[:HEAD_CHARACTERS])) if len(word) > 3)
    return [word for word, _ in counts.most_common(most)]


def singular(word: str) -> str:
    """A crude singular: enough to let ``scientists`` meet ``scientist``."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def _first_sentences(text: str) -> list[str]:
    """The sentences of a short head of ``text``; of a longer one only if too little is said there."""
    for characters in (_SHORT_HEAD_CHARACTERS, HEAD_CHARACTERS):
        sentences = _sentences(plain(text[:characters]))
        if len(text) <= characters:
            return sentences
        del sentences[-1:]  # cut in the middle, as likely as not
        if sum(bool(_SAYS_SOMETHING.search(sentence)) for sentence in sentences) > 1:
            return sentences
    return sentences


def _sentences(text: str) -> list[str]:
    found = []
    for paragraph in _PARAGRAPH_END.split(text):
        flowing = " ".join(_readable(paragraph).split())
        for sentence in _SENTENCE_END.split(flowing):
            if _is_sentence(sentence):
                found.append(sentence)
    return found


def _readable(paragraph: str) -> str:
    return paragraph.strip(" \t\n-*+•>|:")


def _is_sentence(text: str) -> bool:
    """Whether ``text`` reads as prose: some words, and mostly letters."""
    letters = sum(map(str.isalpha, text))
    return len(text.split()) >= _LEAST_SENTENCE_WORDS and letters >= 0.6 * len(text)


def _shortened(text: str) -> str:
    if len(text) <= SUMMARY_CHARACTERS:
        return text
    return text[:SUMMARY_CHARACTERS].rsplit(" ", 1)[0].rstrip(" ,;:-") + " …"
