"""The time of one call: what it waits for, of its own. Standing in a host's line is not counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cell_engine.kinds.web.failing import FetchError


class Budget:
    """Starts with ``seconds``; what is done within ``spending`` uses them up."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._left = seconds

    @asynccontextmanager
    async def spending(self, host: str) -> AsyncIterator[None]:
        """Raises FetchError when the time is over; ``host`` is who took it."""
        clock = asyncio.get_running_loop().time
        begun = clock()
        try:
            async with asyncio.timeout(self._left):
                yield
        except TimeoutError:
            raise FetchError(
                "transient",
                f"{host} did not send the page within {self._seconds:g} s. Raise the column's timeout if it needs "
                "longer.",
            ) from None
        finally:
            self._left = max(0.0, self._left - (clock() - begun))
