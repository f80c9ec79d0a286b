"""The process that reads the text of pages for `Readers`, one after the other, until its standard input ends."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from contextlib import suppress
from typing import Any, BinaryIO

from trafilatura import bare_extraction
from trafilatura.baseline import html2txt
from trafilatura.utils import load_html

from cell_engine.kinds.web.charsets import decoded
from cell_engine.kinds.web.failing import FetchError
from cell_engine.kinds.web.reading import LENGTH
from cell_engine.specs.text import clean_text

HTML = frozenset({"text/html", "application/xhtml+xml"})
_GRACE_SECONDS = 10
_TITLE_CHARACTERS = 1_000


def read(body: bytes, media_type: str, charset: str | None) -> dict[str, str | None]:
    """``text``, ``title`` and ``charset``; or ``refused``, why there are none.

    Of HTML the main text, without what surrounds it on every page of a site; where none is found, as on pages of a line
    or two, all that there is to read.
    """
    is_html = media_type in HTML
    try:
        text, read_as = decoded(body, charset, is_html=is_html)
    except FetchError as error:
        return {"refused": error.failure.message}
    title = None
    if is_html:
        text, title = _of_html(text)
        if not text:
            return {"refused": f"The page's {len(body):,} bytes of HTML hold no text; a script may have to write it."}
    return {"text": clean_text(text), "title": clean_text(title) if title else None, "charset": read_as}


def _of_html(html: str) -> tuple[str, str | None]:
    tree: Any = load_html(html)
    if tree is None:  # a lone paragraph, say, which is taken for no HTML at all
        tree = load_html(f"<html><body>{html}</body></html>")
    if tree is None:
        return "", None
    title = " ".join((tree.findtext(".//title") or "").split())[:_TITLE_CHARACTERS] or None
    found: Any = bare_extraction(tree, include_comments=False)
    return (found.text if found is not None else None) or html2txt(tree), title


def _frame(stream: BinaryIO) -> bytes:
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        os._exit(0)  # nobody asks any more
    return stream.read(LENGTH.unpack(head)[0])


def main() -> None:
    """Serve pages: a head in JSON, a body in; an answer in JSON out. Each with its length in front."""
    asked, answered = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    with suppress(ValueError, OSError):  # not every system keeps to it
        resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]), int(sys.argv[1])))
    answered.write(b"!")
    answered.flush()
    while True:
        head = json.loads(_frame(asked))
        body = _frame(asked)
        # Whoever asked ends this process when the time is over; should nobody be left to do so, the system does.
        signal.alarm(int(head["seconds"]) + _GRACE_SECONDS)
        try:
            answer = read(body, head["media_type"], head["charset"])
        except (Exception, MemoryError) as error:  # noqa: BLE001 - whatever a page does to a parser is that page's error
            answer = {"refused": f"The page cannot be read: {type(error).__name__}"}
        signal.alarm(0)
        content = json.dumps(answer).encode()
        answered.write(LENGTH.pack(len(content)) + content)
        answered.flush()


if __name__ == "__main__":
    main()
