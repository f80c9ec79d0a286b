"""The function that a killed backfill's columns call: what is held is in flight until it is let go."""

import asyncio
import os
from pathlib import Path

from tests.soak.calls import LOG, finished, made

HELD = "held"
"""What begins so."""


async def call(idempotency_key: str, **inputs: str) -> str:
    """Logged as those of a kill round. Comes back once the file LOG.go exists, if an input is HELD."""
    answer = made(idempotency_key, inputs)
    while any(value.startswith(HELD) for value in inputs.values()) and not gate(os.environ[LOG]).exists():  # noqa: ASYNC110 (made by the test)
        await asyncio.sleep(0.05)
    finished(answer)
    return answer


def gate(log: str | Path) -> Path:
    return Path(f"{log}.go")
