"""A web site on loopback, in a thread of its own: it answers conditional requests, and counts what it was asked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from types import TracebackType

from aiohttp import web

from cell_engine.stack.ports import LOOPBACK

_PATIENCE = 10.0


@dataclass
class Website:
    """Serves ``pages`` (path → body) at ``port`` while it is entered. ``bodies`` were sent, ``spared`` answered as
    unchanged."""

    port: int
    content_type: str
    pages: dict[str, str] = field(default_factory=dict)
    bodies: int = 0
    spared: int = 0

    @property
    def origin(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def put(self, pages: Mapping[str, str]) -> None:
        """Serve these from now on, and count afresh."""
        self.pages = dict(pages)
        self.bodies = self.spared = 0

    def __enter__(self) -> Website:
        """Raises OSError when the port is taken."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="website", daemon=True)
        self._thread.start()
        try:
            self._runner = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(_PATIENCE)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result(_PATIENCE)
        self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE)
        self._loop.close()

    async def _start(self) -> web.AppRunner:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        runner = web.AppRunner(app, shutdown_timeout=1.0)
        await runner.setup()
        await web.TCPSite(runner, LOOPBACK, self.port).start()
        return runner

    async def _answer(self, request: web.Request) -> web.Response:
        body = self.pages.get(request.path)
        if body is None:
            return web.Response(status=404)
        etag = f'"{sha256(body.encode()).hexdigest()[:16]}"'
        if request.headers.get("If-None-Match") == etag:
            self.spared += 1
            return web.Response(status=304, headers={"ETag": etag})
        self.bodies += 1
        return web.Response(text=body, content_type=self.content_type, headers={"ETag": etag})
