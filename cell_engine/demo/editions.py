"""How often a demo's world has changed: remembered from one run to the next, so that what comes is always news."""

from __future__ import annotations

from pathlib import Path

_FILE = "edition"


def current(folder: Path) -> int:
    """0 before the first change."""
    try:
        return int((folder / _FILE).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0


def next_after(folder: Path, edition: int) -> int:
    """The one after `edition`, which is the current one from now on."""
    (folder / _FILE).write_text(str(edition + 1), encoding="ascii")
    return edition + 1
