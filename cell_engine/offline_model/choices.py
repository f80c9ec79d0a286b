"""How the offline model picks one of a schema's choices: by what names a licence, or by words in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from cell_engine.offline_model.extract import HEAD_CHARACTERS, singular, words
from cell_engine.offline_model.wordlists import (
    FALLBACKS,
    FAMILY_SPELLINGS,
    LICENCE_FAMILIES,
    PROPRIETARY,
    TOPIC_WORDS,
)

_NOUN_WEIGHT = 3  # the last word of a choice, "scientists"; the words before it, "data", are in many a text
_ADJECTIVE_WEIGHT = 1
_TOPIC_WORD_WEIGHT = 2
_LAST_TOPIC_WORD_WEIGHT = 1  # developers: nearly every text about software uses those words
_MOST_PER_WORD = 3  # a word repeated all over a page says little more than one said three times


def best_choice(choices: Sequence[str], text: str) -> str:
    """The choice that ``text`` speaks for most; the one that means "unknown" or "other" if none."""
    families = _licence_families(tuple(choices))
    if families:
        return _licence_choice(families, text)
    return max(_scored(choices, text).items(), key=lambda scored: scored[1], default=("", 0))[0]


def all_choices(choices: Sequence[str], text: str) -> list[str]:
    """Every choice that ``text`` speaks for, in the schema's order; at least the best one."""
    if _licence_families(tuple(choices)):
        return [best_choice(choices, text)]
    spoken_for = [choice for choice, score in _scored(choices, text).items() if score > 1]
    return spoken_for or [best_choice(choices, text)]


def speaking_words(choice: str) -> list[str]:
    """The words of a text that speak for ``choice``."""
    return list(_word_weights(choice))


def named_licence(choices: Sequence[str], text: str) -> int | None:
    """Where the head of ``text`` first names a licence, if these are choices between licence families."""
    named = LICENCE_FAMILIES.search(text[:HEAD_CHARACTERS]) if _licence_families(tuple(choices)) else None
    return named.start() if named else None


@lru_cache(maxsize=64)
def _licence_families(choices: tuple[str, ...]) -> Mapping[str, str] | None:
    """Family → choice, if these are choices between licence families at all."""
    by_letters = {_letters(choice): choice for choice in reversed(choices)}
    families = {}
    for family, spellings in FAMILY_SPELLINGS.items():
        spelt = next((spelling for spelling in spellings if spelling in by_letters), None)
        if spelt is not None:
            families[family] = by_letters[spelt]
    return families if "permissive" in families and len(set(families.values())) > 1 else None


def _licence_choice(families: Mapping[str, str], text: str) -> str:
    text = text[:HEAD_CHARACTERS]
    named = LICENCE_FAMILIES.search(text)
    family = named.lastgroup if named else None
    if family is not None and family in families:
        return families[family]
    if family is None and "proprietary" in families and PROPRIETARY.search(text):
        return families["proprietary"]
    return families.get("unknown") or families["permissive"]


def _scored(choices: Sequence[str], text: str) -> dict[str, float]:
    """Choice → score; a fraction of one point decides between choices that no word speaks for."""
    counts = Counter(words(text))
    scores: dict[str, float] = {}
    for choice in choices:
        score: float = 0
        for word, weight in _word_weights(choice).items():
            score += weight * min(counts[word], _MOST_PER_WORD)
        if _letters(choice) in FALLBACKS:
            score += 0.5 - FALLBACKS.index(_letters(choice)) / 100
        scores[choice] = score
    return scores


@lru_cache(maxsize=1024)
def _word_weights(choice: str) -> Mapping[str, int]:
    own = words(choice)
    weights: dict[str, int] = {}
    overlap, topic = max(
        ((len(names.intersection(own)), -at) for at, (names, _) in enumerate(TOPIC_WORDS)),
        default=(0, 0),
    )
    if overlap:
        last = -topic == len(TOPIC_WORDS) - 1
        weight = _LAST_TOPIC_WORD_WEIGHT if last else _TOPIC_WORD_WEIGHT
        weights.update((singular(word), weight) for word in TOPIC_WORDS[-topic][1])
    for word in own[:-1]:
        weights.setdefault(word, _ADJECTIVE_WEIGHT)
    weights.update(dict.fromkeys(own[-1:], _NOUN_WEIGHT))
    return weights


def _letters(choice: str) -> str:
    return "".join(filter(str.isalnum, choice.lower()))
