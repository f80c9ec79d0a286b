"""A parser that was led astray: it writes what it is given into a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def read(head: dict[str, Any], body: bytes) -> dict[str, Any]:
    Path(head["path"]).write_bytes(body)
    return {}
