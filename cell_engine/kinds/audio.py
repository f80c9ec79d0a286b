"""What an audio file is, by its first bytes, and how long a WAV lasts. No name is trusted, nothing is decoded."""

from __future__ import annotations

import io
import wave

_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"ID3", "mp3"),
    (0, b"fLaC", "flac"),
    (0, b"OggS", "ogg"),
    (0, b"\x1a\x45\xdf\xa3", "webm"),
    (4, b"ftyp", "m4a"),  # of which mp4 is one
    (8, b"WAVE", "wav"),
)


def audio_format(data: bytes) -> str | None:
    """The ending by which the API knows the format: mp3, flac, ogg, webm, m4a or wav; None for everything else."""
    for at, magic, name in _MAGIC:
        if data[at : at + len(magic)] == magic and (name != "wav" or data[:4] == b"RIFF"):
            return name
    # An MPEG audio frame without a tag in front: eleven bits set, layer II or III, a bit rate. UTF-16 begins with FFFE,
    # which would be layer I.
    if len(data) > 2 and data[0] == 0xFF and data[1] & 0xE6 in (0xE2, 0xE4) and data[2] & 0xF0 != 0xF0:
        return "mp3"
    return None


def wav_seconds(data: bytes) -> float | None:
    """How long a WAV lasts; None for what is none that can be told."""
    try:
        with wave.open(io.BytesIO(data)) as file:
            return float(file.getnframes() / file.getframerate())
    except (wave.Error, EOFError, ZeroDivisionError):
        return None
