"""Pictures in prompts: a reference to a column of type ``file`` whose file is a picture becomes a picture.

What is one is decided by the content; a file whose name says that it is something else (``.pdf``) is not opened, and
stands in the prompt by its path.
"""

from __future__ import annotations

import base64
import mimetypes
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from cell_engine.kinds.base import Call, Failure
from cell_engine.kinds.files import FileReader
from cell_engine.specs.text import Json

MOST_BYTES = 20 * 2**20
"""Of one picture."""

Pictures: TypeAlias = Mapping[int, Mapping[str, str]]
"""By column and path, as data URLs."""

_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
)
# No text of a cell or a spec has U+0000: it is taken out on the way in.
_PLACE = re.compile("\0([0-9]+)\0")


def holds_pictures(settings: Mapping[str, Json]) -> bool:
    """Whether the prompt of such a column refers to files at all."""
    return bool(settings.get("files"))


def file_columns(call: Call) -> list[int]:
    """The inputs that the prompt refers to and that are files."""
    keys = cast(Sequence[str], call.column.settings.get("files") or ())
    return [column for column in call.inputs if call.names[column] in keys]


async def read_pictures(reader: FileReader, call: Call) -> Pictures | Failure:
    """All pictures of a call, or what is wrong with the first that will not do."""
    found: dict[int, dict[str, str]] = {}
    for column in file_columns(call):
        value = call.inputs[column]
        for path in value if isinstance(value, list) else [] if value is None else [value]:
            named = mimetypes.guess_type(str(path))[0]
            if named is not None and not named.startswith("image/"):
                continue
            file = await reader.read(call, path, MOST_BYTES)
            if isinstance(file, Failure):
                return file
            media_type = picture_type(file.data)
            if media_type is not None:
                data = base64.b64encode(file.data).decode("ascii")
                found.setdefault(column, {})[str(path)] = f"data:{media_type};base64,{data}"
            elif named is not None:
                return Failure("bad_input", f"{path} is no picture that a model takes: PNG, JPEG, WebP or GIF.")
    return found


def picture_type(data: bytes) -> str | None:
    """The media type of a picture by its first bytes; None for what is none."""
    for at, magic, name in _MAGIC:
        if data[at : at + len(magic)] == magic and (name != "image/webp" or data[:4] == b"RIFF"):
            return name
    return None


def with_places(inputs: Mapping[int, Json], pictures: Pictures) -> tuple[dict[int, Json], list[tuple[str, str]]]:
    """The inputs with a place for each picture in its column's text, and (path, data URL) by the place's number."""
    placed: dict[int, Json] = dict(inputs)
    urls: list[tuple[str, str]] = []
    for column, found in pictures.items():
        if column not in inputs:  # of a text in parts, each has the inputs that its own prompt refers to
            continue
        value = inputs[column]
        texts = []
        for path in value if isinstance(value, list) else [value]:
            url = found.get(str(path))
            texts.append(str(path) if url is None else f"\0{len(urls)}\0")
            if url is not None:
                urls.append((str(path), url))
        placed[column] = "\n".join(texts)
    return placed, urls


def content(text: str, urls: Sequence[tuple[str, str]]) -> str | list[dict[str, Any]]:
    """A message's content: `text`, its places filled. What is referred to again stands there by its path."""
    parts: list[dict[str, Any]] = []
    shown: set[int] = set()
    said = ""
    for at, piece in enumerate(_PLACE.split(text)):  # text, number, text, number, …, text
        if at % 2 == 0:
            said += piece
            continue
        number = int(piece)
        path, url = urls[number]
        if number in shown:
            said += path
            continue
        shown.add(number)
        parts += [{"type": "text", "text": said}, {"type": "image_url", "image_url": {"url": url}}]
        said = ""
    return [*parts, {"type": "text", "text": said}] if parts else said
