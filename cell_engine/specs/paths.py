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
    fault = path_fault(path)
    if fault:
        raise BadValueError(f"{shorten(path)}: {fault}")
    return unicodedata.normalize("NFC", path)


def path_fault(path: str) -> str:
    """What keeps ``path`` from being one, for people; empty for a path."""
    if found := _FORBIDDEN.search(path):
        what = (
            "a backslash, and names are separated by /" if found[0] == "\\" else f"the character U+{ord(found[0]):04X}"
        )
        return f"the path holds {what}"
    path = unicodedata.normalize("NFC", path)
    if path.startswith("/"):
        return "the path is absolute; give it relative to the collection's files"
    for name in path.split("/"):
        if name in ("", ".", ".."):
            return f"the path holds {f'the name {name!r}, which leads elsewhere' if name else 'an empty name'}"
        if len(name.encode()) > NAME_BYTES:
            return f"the path holds a name of more than {NAME_BYTES} bytes"
    return f"the path has more than {PATH_BYTES:,} bytes" if len(path.encode()) > PATH_BYTES else ""
