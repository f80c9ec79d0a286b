"""Paths of files as cells hold them: relative to their collection's root, written in one way only."""

import re
import unicodedata

from cell_engine.errors import BadValueError
from cell_engine.specs.text import shorten

PATH_BYTES = 4096
NAME_BYTES = 255
"""What file systems take: of a path, and of each name in it."""

# A backslash separates on other systems; control characters make two names look like one.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f\u2028\u2029\ud800-\udfff\\\\]")


def check_path(path: str) -> str:
    """``path`` in the one form that it has everywhere, NFC; relative, with ``/`` between its names.

    Raises BadValueError for what could lead elsewhere or be written in two ways; nothing is mended.
    """
    if found := _FORBIDDEN.search(path):
        what = "a backslash: names are separated by /" if found[0] == "\\" else f"the character U+{ord(found[0]):04X}"
        raise BadValueError(f"the path {shorten(path)} holds {what}")
    path = unicodedata.normalize("NFC", path)
    if path.startswith("/"):
        raise BadValueError(f"the path {shorten(path)} is absolute: give it relative to the collection's files")
    for name in path.split("/"):
        if name in ("", ".", ".."):
            what = "an empty name" if not name else f"the name {name!r}, which leads elsewhere"
            raise BadValueError(f"the path {shorten(path)} holds {what}")
        if len(name.encode()) > NAME_BYTES:
            raise BadValueError(f"the path {shorten(path)} holds a name of more than {NAME_BYTES} bytes")
    if len(path.encode()) > PATH_BYTES:
        raise BadValueError(f"the path {shorten(path)} has more than {PATH_BYTES:,} bytes")
    return path
