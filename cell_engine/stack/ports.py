"""Loopback ports that are free and stay the same from one start to the next, so that bookmarks keep working."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from pathlib import Path

from cell_engine.errors import AutofillError

LOOPBACK = "127.0.0.1"
# Below the range that systems take for outgoing connections: none of those can sit on a remembered port.
_FIRST, _COUNT = 20_000, 10_000


def remembered_port(home: Path, name: str) -> int:
    """The port of the service `name` of this home: the one it had before if that is free, else a new one."""
    file = home / "ports.json"
    try:
        ports: dict[str, int] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        ports = {}
    known = ports.get(name)
    if isinstance(known, int) and _is_free(known):
        return known
    start = int.from_bytes(hashlib.blake2b(f"{home} {name}".encode(), digest_size=4).digest(), "big")
    taken = set(ports.values())
    for step in range(_COUNT):
        port = _FIRST + (start + step) % _COUNT
        if port not in taken and _is_free(port):
            unfinished = file.with_name(f"{file.name}.{os.getpid()}")
            unfinished.write_text(json.dumps(ports | {name: port}), encoding="utf-8")
            unfinished.replace(file)
            return port
    raise AutofillError(f"No port between {_FIRST} and {_FIRST + _COUNT} is free on {LOOPBACK} for the {name}.")


def accepts(port: int) -> bool:
    """Whether something listens there now."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1):
            return True
    except OSError:
        return False


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what a stopped server left in TIME_WAIT is free
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
