"""What the stand-in can say of sound and pictures: the words that somebody has written into the file, and no more.

It hears and sees nothing, and says so where no words are there.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

CANNOT_SEE = "(a picture without a description; this stand-in cannot see)"

_PNG = b"\x89PNG\r\n\x1a\n"
_WORDS_OF_SOUND = (b"ICMT", b"ISBJ", b"INAM")
_WORDS_OF_PICTURES = ("Description", "Comment", "Title")
_DATA_URL = re.compile(r"data:image/[a-z+.-]+;base64,(.*)", re.DOTALL)


class Sound(NamedTuple):
    text: str
    seconds: float


def heard(wav: bytes) -> Sound | None:
    """The words in a WAV's INFO list (ICMT, ISBJ or INAM), and how long it lasts; None without them."""
    if wav[:4] != b"RIFF" or wav[8:12] != b"WAVE":
        return None
    words: dict[bytes, str] = {}
    rate, size = 0, 0
    for name, content in _chunks(wav, 12, "<"):
        if name == b"fmt " and len(content) >= 12:
            rate = struct.unpack_from("<I", content, 8)[0]
        elif name == b"data":
            size = len(content)
        elif name == b"LIST" and content[:4] == b"INFO":
            words |= {inner: text.rstrip(b"\0").decode("utf-8", "replace") for inner, text in _chunks(content, 4, "<")}
    text = next((words[name] for name in _WORDS_OF_SOUND if words.get(name)), None)
    return None if text is None else Sound(text, size / rate if rate else 0.0)


def seen(url: object) -> str:
    """The words of a picture given as a data URL: those of a PNG's text chunks. Raises ValueError for what is none."""
    match = _DATA_URL.fullmatch(url) if isinstance(url, str) else None
    if match is None:
        raise ValueError("the offline model takes a picture as data:image/…;base64, only")
    try:
        picture = base64.b64decode(match[1], validate=True)
    except binascii.Error as error:
        raise ValueError(f"the picture is no base64: {error}") from None
    if not picture.startswith(_PNG):
        return CANNOT_SEE
    words = {}
    for name, content in _chunks(picture, len(_PNG), ">"):
        key, _, text = content.partition(b"\0")
        if name == b"tEXt":
            words[key.decode("latin-1")] = text.decode("latin-1")
        elif name == b"iTXt" and text[:1] == b"\0":
            words[key.decode("latin-1")] = text[2:].split(b"\0", 2)[-1].decode("utf-8", "replace")
    return next((words[name] for name in _WORDS_OF_PICTURES if words.get(name)), CANNOT_SEE)


def _chunks(data: bytes, start: int, order: str) -> Iterator[tuple[bytes, bytes]]:
    """RIFF's (order "<": name, size, content, padded) or PNG's (">": size, name, content, checksum)."""
    while start + 8 <= len(data):
        if order == "<":
            name, size = struct.unpack_from("<4sI", data, start)
            after = size + size % 2
        else:
            size, name = struct.unpack_from(">I4s", data, start)
            after = size + 4
        yield name, data[start + 8 : start + 8 + size]
        start += 8 + after
