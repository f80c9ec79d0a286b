"""What is read of a file, how much of it at most, and why nothing is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Metadata: TypeAlias = Mapping[str, str]
"""What a document says of itself, whatever its format: title, author, created, modified, as far as it says so."""

METADATA_CHARACTERS = 1_000

PAGE_BREAK = "\f"
"""Between two pages of one text, and in no page: the page of a place is found by counting them before it."""


@dataclass(frozen=True)
class Limits:
    """How much a document may be. ``members``, ``unpacked`` (bytes) and ``ratio`` (bytes unpacked for one packed, of a
    member of a megabyte and more) are of what comes as an archive: DOCX and XLSX."""

    pages: int = 10_000
    characters: int = 10_000_000
    members: int = 10_000
    unpacked: int = 200_000_000
    ratio: int = 250


@dataclass(frozen=True)
class Document:
    """The text of each page; a document that has none is one page. A page break stands in no page.

    ``media_type`` is what the content is, whatever the name says. ``remarks`` are what a reader should know: a name
    that says something else, pages without text, the charset that was detected.
    """

    pages: list[str]
    media_type: str
    metadata: Metadata = field(default_factory=dict)
    remarks: Mapping[str, str] = field(default_factory=dict)


class DocumentError(Exception):
    """Nothing of this file is given. ``bad_input``: it will not do; ``too_long``: it is beyond a limit."""

    def __init__(self, message: str, error_class: Literal["bad_input", "too_long"] = "bad_input") -> None:
        super().__init__(message)
        self.error_class = error_class


class Pages:
    """Pages as they come, within the limits: what is beyond them is never made, and never cut off."""

    def __init__(self, limits: Limits, what: str = "pages") -> None:
        self._limits = limits
        self._what = what
        self._characters = 0
        self.texts: list[str] = []

    def expect(self, pages: int) -> None:
        """Raises DocumentError if so many pages are too many."""
        if pages > self._limits.pages:
            raise DocumentError(f"It has {pages:,} {self._what}; {self._limits.pages:,} are read at most.", "too_long")

    def count(self, characters: int) -> None:
        """Raises DocumentError if so many more characters are too many."""
        self._characters += characters
        if self._characters > self._limits.characters:
            raise DocumentError(
                f"Its text has more than {self._limits.characters:,} characters, which is what is read at most.",
                "too_long",
            )

    def add(self, text: str) -> None:
        """One more page, whose characters have been counted."""
        self.expect(len(self.texts) + 1)
        self.texts.append(text.replace("\r\n", "\n").replace("\r", "\n").replace(PAGE_BREAK, "\n").strip("\n"))


def shortened(value: str) -> str:
    """One field of the metadata: one line, not without end."""
    return " ".join(value.split())[:METADATA_CHARACTERS]
