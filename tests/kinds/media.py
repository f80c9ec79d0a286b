"""Small files of sound and pictures, made here."""

from __future__ import annotations

import struct
import zlib


def wav(text: str | None, seconds: float = 2.0, rate: int = 8_000) -> bytes:
    """A silent WAV, with `text` as its comment."""
    fmt = struct.pack("<HHIIHH", 1, 1, rate, rate, 1, 8)
    chunks = _riff(b"fmt ", fmt)
    if text is not None:
        chunks += _riff(b"LIST", b"INFO" + _riff(b"ISFT", b"test\0") + _riff(b"ICMT", text.encode() + b"\0"))
    chunks += _riff(b"data", b"\x80" * int(seconds * rate))
    return _riff(b"RIFF", b"WAVE" + chunks)


def png(text: str | None = None, size: int = 1) -> bytes:
    """A black square, with `text` as its description."""
    rows = (b"\0" + b"\0" * size) * size
    found = b"\x89PNG\r\n\x1a\n" + _png(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 0, 0, 0, 0))
    if text is not None:
        found += _png(b"iTXt", b"Description\0\0\0\0\0" + text.encode())
    return found + _png(b"IDAT", zlib.compress(rows)) + _png(b"IEND", b"")


def _riff(name: bytes, content: bytes) -> bytes:
    return name + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)


def _png(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
