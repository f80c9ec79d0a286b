"""Text files: bytes to text, exactly or not at all."""

from __future__ import annotations

import codecs
import re

from cell_engine.kinds.documents.document import DocumentError
from cell_engine.kinds.web.charsets import detected

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16's, with which it begins
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_NAMED = 4
_BINARY = re.compile("[\x00-\x06\x0e-\x1a\x1c-\x1f]")
_MOST_BINARY = 0.001


def decoded(data: bytes, charset: str | None) -> tuple[str, str]:
    """The text and the charset it was read as: by its byte order mark, else as UTF-8, else as ``charset``, what the
    column says of files that are neither; else by detection.

    Raises DocumentError for what is no text, and for what is one in several charsets: it names them.
    """
    for mark, marked in _BOMS:
        if data.startswith(mark):
            return _checked(_strictly(data[len(mark) :], marked), marked)
    try:
        return _checked(data.decode("utf-8"), "utf-8")
    except UnicodeDecodeError:
        pass
    name = charset or _detected(data)
    return _checked(_strictly(data, name), name)


def _strictly(data: bytes, charset: str) -> str:
    try:
        return data.decode(charset)
    except (UnicodeDecodeError, LookupError):
        raise DocumentError(f"It is no text in UTF-8, nor in {charset}.") from None


def _checked(text: str, charset: str) -> tuple[str, str]:
    if len(_BINARY.findall(text)) > len(text) * _MOST_BINARY:
        raise DocumentError("It is no text, but binary data of a kind that is not known here.")
    return text, charset


def _detected(data: bytes) -> str:
    found = detected(data)
    if not found or (b"\x00" in data and not found[0].startswith("utf_")):
        raise DocumentError("It is no text in UTF-8, nor in any charset that could be detected.")
    if len(found) > 1:
        names = ", ".join(name.replace("_", "-") for name in found[:_NAMED])
        raise DocumentError(
            f"It is no UTF-8, and its charset cannot be told: it reads as different text in {names}. Say which in the "
            "column's extract.charset, or save the file as UTF-8."
        )
    return found[0]
