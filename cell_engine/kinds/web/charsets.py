"""Bytes to text by the charset declared, else by detection; what stays unreadable is refused, never garbled."""

from __future__ import annotations

import codecs
import re

from charset_normalizer import from_bytes

from cell_engine.kinds.web.failing import FetchError

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_META = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([A-Za-z0-9_:.-]{1,40})""", re.IGNORECASE)
_META_BYTES = 4096
_DETECTED_BYTES = 200_000
_SHOWN = 40

# What browsers read these labels as: pages that say latin-1 are written on machines that mean Windows' variant.
_MEANT = {
    "ascii": "cp1252", "iso8859-1": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874", "tis-620": "cp874",
    "gb2312": "gb18030", "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949",
}  # fmt: skip
_KNOWN = re.compile(
    r"utf-8|utf-16(?:-[bl]e)?|cp\d+|iso8859-\d+|koi8-[rut]|mac-\w+|gb18030|hz|big5(?:hkscs)?|euc_(?:jp|kr)|shift_jis"
    r"|iso2022_(?:jp|kr)|tis-620|ptcp154|kz1048"
)
_SINGLE_BYTE = re.compile(r"cp(?!932|949|950|936)\d+|iso8859-\d+|koi8-[rut]|mac-\w+|ptcp154|kz1048")


def decoded(body: bytes, declared: str | None, *, is_html: bool) -> tuple[str, str]:
    """The text of ``body`` and the charset it was read as.

    ``declared`` is the Content-Type's charset. A byte order mark goes before it; a page's own ``<meta>`` comes after.
    Bytes beyond ASCII that are UTF-8 are read as that where a single-byte charset is declared: no text in one of those
    looks like it by chance, and servers add a default charset to everything. Raises FetchError for bytes that are no
    text in any of them.
    """
    for mark, charset in _BOMS:
        if body.startswith(mark):
            return _strictly(body[len(mark) :], charset, declared)
    label = _codec(declared) if declared else None
    if label is None and is_html and (found := _META.search(body[:_META_BYTES])):
        label = _codec(found[1].decode("ascii"))
        if label is not None and label.startswith("utf-16"):
            label = "utf-8"  # it was found as ASCII: it cannot be what it says
    tried = [label or "utf-8"]
    if _SINGLE_BYTE.fullmatch(tried[0]):
        tried.insert(0, "utf-8")
    for charset in tried:
        try:
            return body.decode(charset), charset
        except UnicodeDecodeError:
            continue
    best = from_bytes(body[:_DETECTED_BYTES]).best()
    if best is not None and best.encoding not in tried:
        return _strictly(body, best.encoding, declared)
    raise _unreadable(declared)


def _strictly(body: bytes, charset: str, declared: str | None) -> tuple[str, str]:
    try:
        return body.decode(charset), charset
    except (UnicodeDecodeError, LookupError):
        raise _unreadable(declared) from None


def _unreadable(declared: str | None) -> FetchError:
    said = f"the charset it declares ({declared[:_SHOWN]})" if declared else "UTF-8"
    return FetchError("bad_input", f"The page is no text in {said}, nor in any charset that could be detected.")


def _codec(label: str) -> str | None:
    """Python's name for what a charset's label means; None for one that is unknown, or no charset."""
    try:
        name = codecs.lookup(label.strip("\"' ")).name
    except (LookupError, ValueError):
        return None
    return _MEANT.get(name, name) if _KNOWN.fullmatch(name) or name in _MEANT else None
