"""Durations as people write them in a spec: a whole number with its unit."""

import re

_DURATION = re.compile(r"([0-9]{1,9})([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def seconds(text: object) -> int | None:
    """Of `90s`, `15m`, `12h` or `3d`; None for everything else."""
    found = _DURATION.fullmatch(text) if isinstance(text, str) else None
    return int(found[1]) * _UNITS[found[2]] if found else None
