"""How the text of a page is read, in the processes of `Readers`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trafilatura import bare_extraction
from trafilatura.baseline import html2txt
from trafilatura.utils import load_html

from cell_engine.kinds.web.charsets import decoded
from cell_engine.kinds.web.failing import FetchError
from cell_engine.specs.text import clean_text

HTML = frozenset({"text/html", "application/xhtml+xml"})
_TITLE_CHARACTERS = 1_000


def read(head: Mapping[str, str | None], body: bytes) -> dict[str, str | None]:
    """``text``, ``title`` and ``charset``; or ``refused``, why there are none. Of ``head``: media_type, charset.

    Of HTML the main text, without what surrounds it on every page of a site; where none is found, as on pages of a line
    or two, all that there is to read.
    """
    is_html = head["media_type"] in HTML
    try:
        text, read_as = decoded(body, head["charset"], is_html=is_html)
    except FetchError as error:
        return {"refused": error.failure.message}
    title = None
    if is_html:
        text, title = text_of_html(text)
        if not text:
            return {"refused": f"The page's {len(body):,} bytes of HTML hold no text; a script may have to write it."}
    return {"text": clean_text(text), "title": clean_text(title) if title else None, "charset": read_as}


def text_of_html(html: str) -> tuple[str, str | None]:
    """The main text, "" if there is none, and the title."""
    tree: Any = load_html(html)
    if tree is None:  # a lone paragraph, say, which is taken for no HTML at all
        tree = load_html(f"<html><body>{html}</body></html>")
    if tree is None:
        return "", None
    title = " ".join((tree.findtext(".//title") or "").split())[:_TITLE_CHARACTERS] or None
    found: Any = bare_extraction(tree, include_comments=False)
    return (found.text if found is not None else None) or html2txt(tree), title
