"""Bytes to text by the charset declared, else by detection; what stays unreadable is refused, never garbled."""

from __future__ import annotations

import codecs
import re

from charset_normalizer import CharsetMatch, from_bytes

from cell_engine.kinds.web.failing import FetchError

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_META = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([A-Za-z0-9_:.-]{1,40})""", re.IGNORECASE)
_META_BYTES = 4096
_DETECTED_BYTES = 200_000
_SHOWN = 40
# Two readings of the same bytes are both likely if they are about as free of mess and as much like a language.
_MESS = 0.1
_COHERENCE = 0.2

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
    if label is None and is_html:
        label = declared_in(body)
    tried = [label or "utf-8"]
    if _SINGLE_BYTE.fullmatch(tried[0]):
        tried.insert(0, "utf-8")
    for charset in tried:
        try:
            return body.decode(charset), charset
        except UnicodeDecodeError:
            continue
    found = detected(body)
    if len(found) > 1:
        raise FetchError("bad_input", f"The page's charset cannot be told: {', '.join(found)} read different texts.")
    if found and found[0] not in tried:
        return _strictly(body, found[0], declared)
    raise _unreadable(declared)


def declared_in(html: bytes) -> str | None:
    """What the ``<meta>`` of a page says, if that can be."""
    found = _META.search(html[:_META_BYTES])
    label = _codec(found[1].decode("ascii")) if found else None
    # It was found as ASCII: it cannot be UTF-16.
    return "utf-8" if label is not None and label.startswith("utf-16") else label


def detected(body: bytes) -> list[str]:
    """The charset of bytes that declare none; none at all for what is no text, and several where they read the bytes
    as different texts that are as likely: French in Windows-1252 is as good a text in Windows-1250."""
    found = list(from_bytes(body[:_DETECTED_BYTES]))
    return [match.encoding for match in found if match is found[0] or _is_rival(found[0], match)]


def _is_rival(best: CharsetMatch, other: CharsetMatch) -> bool:
    likely = other.chaos <= best.chaos + _MESS and other.coherence >= best.coherence - _COHERENCE
    return likely and str(other) != str(best)


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
