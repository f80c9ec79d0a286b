"""The text of a page, read in a process of its own: its bytes come from anybody."""

from __future__ import annotations

from dataclasses import dataclass

from cell_engine.kinds.parsers import PROCESSES, Parsers, ParsingError
from cell_engine.kinds.web.failing import FetchError

READING_SECONDS = 20.0


@dataclass(frozen=True)
class Text:
    """What a page says: its main text, the title it has, the charset it was read as."""

    text: str
    title: str | None
    charset: str


class Readers:
    """At most ``most`` pages are read at a time; further ones wait."""

    def __init__(self, most: int = PROCESSES, seconds: float = READING_SECONDS) -> None:
        self._parsers = Parsers("cell_engine.kinds.web.reader", "page", most)
        self._seconds = seconds

    async def read(self, body: bytes, media_type: str, charset: str | None) -> Text:
        """Raises FetchError if ``body`` holds no text, or none that can be read within ``seconds``."""
        try:
            answer = await self._parsers.ask({"media_type": media_type, "charset": charset}, body, self._seconds)
        except ParsingError as error:
            raise FetchError(error.failure.error_class, error.failure.message) from None
        if "refused" in answer:
            raise FetchError("bad_input", str(answer["refused"]))
        return Text(str(answer["text"]), answer["title"] and str(answer["title"]), str(answer["charset"]))

    async def close(self) -> None:
        """End the processes; the instance is of no use afterwards."""
        await self._parsers.close()
