"""What a file is, before anything of it is stored: its hash, its format, and that its text is UTF-8.

One pass over the bytes. Text in another encoding is refused here, as a whole: stored, it would be garbled.
"""

import codecs
import hashlib
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias

from cell_engine.load.errors import LoadError
from cell_engine.specs.text import shorten

Format: TypeAlias = Literal["csv", "jsonl", "parquet"]
"""csv: also with tabs."""

Stamp: TypeAlias = tuple[int, int, int, int]

_CHUNK = 2**20
_PARQUET = b"PAR1"
# The longer mark first: UTF-32's begins with UTF-16's.
_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32LE"),
    (codecs.BOM_UTF32_BE, "UTF-32BE"),
    (codecs.BOM_UTF16_LE, "UTF-16LE"),
    (codecs.BOM_UTF16_BE, "UTF-16BE"),
)
_OTHER_FORMATS = (
    (b"\x1f\x8b", "gzip: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "zstd: unpack it first"),
    (b"PK\x03\x04", "a ZIP archive or an Excel workbook: unpack it, or save the sheet as CSV UTF-8"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook: save the sheet as CSV UTF-8"),
    (b"ARROW1", "Arrow IPC: write it as Parquet"),
)
# A pair of surrogates, each written as if it were a character. Alone, a surrogate is cleaned away; a pair is one
# character of CESU-8 (an old Oracle or Java export), which cleaning would lose.
_CESU8 = re.compile(rb"\xed[\xa0-\xaf][\x80-\xbf]\xed[\xb0-\xbf][\x80-\xbf]")
_CESU8_LENGTH = 6


@dataclass(frozen=True, slots=True)
class Content:
    """What `path` held when it was read. `digest` is the SHA-256 of its bytes in hex, whatever it is called."""

    path: Path
    digest: str
    format: Format
    stamp: Stamp

    def check_unchanged(self) -> None:
        """Raises LoadError if the file is no longer the one that was hashed."""
        if _stamp(self.path) != self.stamp:
            raise LoadError(
                f"{self.path}: it changed while it was read: is it still being written? Load it again once it is "
                "complete; what writes it should write under another name and rename it at the end"
            )


def read_content(path: Path) -> Content:
    """Hash and check the file. Raises LoadError where it cannot be read, is empty, changes meanwhile, or is neither
    Parquet nor UTF-8 text."""
    stamp = _stamp(path)
    if stamp[2] == 0:
        raise LoadError(f"{path}: it is empty; a CSV file begins with a line of column names")
    try:
        with path.open("rb") as file:
            head = file.read(8)
            format_ = _format(path, head)
            file.seek(0)
            digest = hashlib.sha256()
            for chunk in _chunks(file) if format_ == "parquet" else _utf8_chunks(path, file):
                digest.update(chunk)
    except OSError as error:
        raise LoadError(f"{path}: cannot be read: {error.strerror}") from error
    content = Content(path, digest.hexdigest(), format_, stamp)
    content.check_unchanged()
    return content


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError as error:
        raise LoadError(f"{path}: cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode):
        raise LoadError(f"{path}: it is not a file")
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _format(path: Path, head: bytes) -> Format:
    if head.startswith(_PARQUET):
        return "parquet"
    if path.suffix.lower() == ".parquet":
        raise LoadError(
            f"{path}: it is named .parquet and is not Parquet, which begins with PAR1: is the file complete? CSV is "
            "loaded under another name"
        )
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            raise LoadError(f"{path}: it is {encoding}, not UTF-8; {_convert(path, encoding)}")
    for magic, what in _OTHER_FORMATS:
        if head.startswith(magic):
            raise LoadError(f"{path}: neither CSV, TSV, JSON Lines nor Parquet: it is {what}")
    return "jsonl" if path.suffix.lower() in (".jsonl", ".ndjson") else "csv"


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk


def _utf8_chunks(path: Path, file: BinaryIO) -> Iterator[bytes]:
    """The chunks of `file`, each checked to be UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogatepass")
    end = 0  # the offset of the chunk's end
    tail = b""
    try:
        for chunk in _chunks(file):
            end += len(chunk)
            decoder.decode(chunk)
            seam = tail + chunk
            pair = _CESU8.search(seam)
            if pair:
                offset = end - len(seam) + pair.start()
                raise LoadError(
                    f"{path}: it is CESU-8, not UTF-8: a surrogate pair at offset {offset:,} "
                    f"(line {_line_of(path, offset):,}); export it again as UTF-8"
                )
            tail = seam[1 - _CESU8_LENGTH :]
            yield chunk
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        # error.object: what the decoder had kept of the chunk before, and the chunk
        offset = end - len(error.object) + error.start
        raise LoadError(_not_utf8(path, offset)) from None


def _not_utf8(path: Path, offset: int) -> str:
    with path.open("rb") as file:
        file.seek(max(0, offset - 20))
        before = file.read(min(20, offset))
        byte, after = file.read(1), file.read(20)
    where = f"byte 0x{byte.hex().upper()} at offset {offset:,} (line {_line_of(path, offset):,})"
    if len(after) < 3 and byte >= b"\xc0" and all(0x80 <= one < 0xC0 for one in after):
        return f"{path}: it ends inside a character, {where}: is the file complete, and is it UTF-8?"
    try:
        as_read = re.split(r"[\r\n]", (byte + after).decode("cp1252"))[0]
    except UnicodeDecodeError:
        return f"{path}: it is not UTF-8: {where}; save it as UTF-8 where it comes from"
    as_read = re.split(r"[\r\n]", before.decode("cp1252", "replace"))[-1] + as_read
    return (
        f"{path}: it is not UTF-8: {where}. As Windows-1252 that would read {shorten(as_read)}; if that is right, "
        + _convert(path, "WINDOWS-1252")
    )


def _convert(path: Path, encoding: str) -> str:
    return f"convert it, for example: iconv -f {encoding} -t UTF-8 {path.name} > utf8-{path.name}"


def _line_of(path: Path, offset: int) -> int:
    """The line, from 1, of a byte: lines end in LF, CRLF or CR."""
    line, left, last = 1, offset, b""
    with path.open("rb") as file:
        while left and (chunk := file.read(min(_CHUNK, left))):
            left -= len(chunk)
            line += chunk.count(b"\n") + chunk.count(b"\r") - (last + chunk).count(b"\r\n")
            last = chunk[-1:]
    return line
