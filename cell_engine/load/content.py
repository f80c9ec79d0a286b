"""What a file is, before anything of it is stored: its hash, its format, and the encoding of its text.

One pass over the bytes. Text is UTF-8, or what a byte order mark or the person who loads it says; what is not that is
refused here, as a whole: stored, it would be garbled.
"""

import codecs
import hashlib
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, TextIO, TypeAlias

from cell_engine.kinds.web.charsets import detected
from cell_engine.load.errors import LoadError
from cell_engine.specs.text import shorten

Format: TypeAlias = Literal["csv", "jsonl", "parquet", "xlsx"]
"""csv: also with tabs. xlsx: a workbook, as Excel writes them since 2007."""

UTF8 = "utf-8-sig"

Stamp: TypeAlias = tuple[int, int, int, int]

_CHUNK = 2**20
_PARQUET = b"PAR1"
_ZIP = b"PK\x03\x04"
# The longer mark first: UTF-32's begins with UTF-16's.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_SAMPLE = 100_000
_OTHER_FORMATS = (
    (b"\x1f\x8b", "gzip: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "zstd: unpack it first"),
    (_ZIP, "a ZIP archive: unpack it; a workbook is named .xlsx"),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook: save it as .xlsx"),
    (b"ARROW1", "Arrow IPC: write it as Parquet"),
)
# A pair of surrogates, each written as if it were a character. Alone, a surrogate is cleaned away; a pair is one
# character of CESU-8 (an old Oracle or Java export), which cleaning would lose.
_CESU8 = re.compile(rb"\xed[\xa0-\xaf][\x80-\xbf]\xed[\xb0-\xbf][\x80-\xbf]")
_CESU8_LENGTH = 6


@dataclass(frozen=True, slots=True)
class Content:
    """What `path` held when it was read. `digest` is the SHA-256 in hex of its bytes, whatever it is called, and of the
    encoding that it was said to have. `encoding` is that of its text."""

    path: Path
    digest: str
    format: Format
    stamp: Stamp
    encoding: str = UTF8

    def open(self, newline: str) -> TextIO:
        """Its text."""
        errors = "surrogatepass" if self.encoding == UTF8 else "strict"
        return self.path.open(encoding=self.encoding, errors=errors, newline=newline)

    def check_unchanged(self) -> None:
        """Raises LoadError if the file is no longer the one that was hashed."""
        if _stamp(self.path) != self.stamp:
            raise LoadError(
                f"{self.path}: it changed while it was read: is it still being written? Load it again once it is "
                "complete; what writes it should write under another name and rename it at the end"
            )


def read_content(path: Path, encoding: str | None = None) -> Content:
    """Hash and check the file; `encoding` is what its text is said to be in.

    Raises LoadError where it cannot be read, is empty, changes meanwhile, or is neither Parquet nor a workbook nor text
    in that encoding (without one: in that of its byte order mark, else UTF-8).
    """
    stamp = _stamp(path)
    if stamp[2] == 0:
        raise LoadError(f"{path}: it is empty; a CSV file begins with a line of column names")
    declared = None if encoding is None else _codec(encoding)
    try:
        with path.open("rb") as file:
            head = file.read(8)
            format_ = _format(path, head)
            file.seek(0)
            digest = hashlib.sha256()
            is_text = format_ in ("csv", "jsonl")
            codec = (declared or _marked(head)) if is_text else UTF8
            if declared not in (None, UTF8):
                digest.update(f"{declared}\n".encode())
            if not is_text:
                chunks = _chunks(file)
            else:
                chunks = _utf8_chunks(path, file) if codec == UTF8 else _other_chunks(path, file, codec)
            for chunk in chunks:
                digest.update(chunk)
    except OSError as error:
        raise LoadError(f"{path}: cannot be read: {error.strerror}") from error
    content = Content(path, digest.hexdigest(), format_, stamp, codec)
    content.check_unchanged()
    return content


def _codec(encoding: str) -> str:
    """Python's name of a text encoding. Raises LoadError for what is none."""
    try:
        found = codecs.lookup(encoding)
        if not isinstance("".encode(found.name), bytes):
            raise LookupError
    except (LookupError, ValueError, UnicodeError):
        raise LoadError(
            f"{encoding!r} is no encoding of text; such are utf-8, utf-16, windows-1252, iso-8859-15, cp850, shift_jis"
        ) from None
    return UTF8 if found.name in ("utf-8", "utf-8-sig", "ascii") else found.name


def _marked(head: bytes) -> str:
    """The encoding that a byte order mark says; UTF-8 without one."""
    return next((encoding for mark, encoding in _MARKS if head.startswith(mark)), UTF8)


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
    if head.startswith(_ZIP) and path.suffix.lower() in (".xlsx", ".xlsm"):
        return "xlsx"
    for magic, what in _OTHER_FORMATS:
        if head.startswith(magic):
            raise LoadError(f"{path}: neither CSV, TSV, JSON Lines, Parquet nor .xlsx: it is {what}")
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


def _other_chunks(path: Path, file: BinaryIO, encoding: str) -> Iterator[bytes]:
    """The chunks of `file`, each checked to be text in that encoding."""
    decoder = codecs.getincrementaldecoder(encoding)("strict")
    end = 0
    try:
        for chunk in _chunks(file):
            end += len(chunk)
            decoder.decode(chunk)
            yield chunk
        decoder.decode(b"", final=True)
    except UnicodeError as error:
        # A decoder's own error knows where; of others, that it is in the chunk before `end`.
        offset = (
            end - len(error.object) + error.start if isinstance(error, UnicodeDecodeError) else max(0, end - _CHUNK)
        )
        raise LoadError(
            f"{path}: it is not {encoding}, near offset {offset:,}: {getattr(error, 'reason', error)}; is another "
            "encoding meant (--encoding), and is the file complete?"
        ) from None


def _not_utf8(path: Path, offset: int) -> str:
    with path.open("rb") as file:
        file.seek(max(0, offset - 20))
        before = file.read(min(20, offset))
        byte, after = file.read(1), file.read(20)
        file.seek(max(0, offset - _SAMPLE // 2))
        sample = file.read(_SAMPLE)
    where = f"byte 0x{byte.hex().upper()} at offset {offset:,} (line {_line_of(path, offset):,})"
    if len(after) < 3 and byte >= b"\xc0" and all(0x80 <= one < 0xC0 for one in after):
        return f"{path}: it ends inside a character, {where}: is the file complete, and is it UTF-8?"
    found = detected(sample)
    for encoding in dict.fromkeys(["cp1252", *(found if len(found) == 1 else ())]):
        try:
            sample.decode(encoding)
            as_read = re.split(r"[\r\n]", (before + byte + after).decode(encoding, "ignore"))
        except UnicodeDecodeError:
            continue
        shown = shorten(as_read[min(len(re.split(rb"[\r\n]", before)), len(as_read)) - 1])
        others = [one for one in found if one != encoding]
        hint = f"; it may be {' or '.join(others[:3])} as well" if others else ""
        return (
            f"{path}: it is not UTF-8: {where}. As {encoding} that would read {shown}{hint}. Load it with "
            f"--encoding {encoding} if that is right"
        )
    return f"{path}: it is not UTF-8: {where}; save it as UTF-8 where it comes from, or name its --encoding"


def _line_of(path: Path, offset: int) -> int:
    """The line, from 1, of a byte: lines end in LF, CRLF or CR."""
    line, left, last = 1, offset, b""
    with path.open("rb") as file:
        while left and (chunk := file.read(min(_CHUNK, left))):
            left -= len(chunk)
            line += chunk.count(b"\n") + chunk.count(b"\r") - (last + chunk).count(b"\r\n")
            last = chunk[-1:]
    return line
