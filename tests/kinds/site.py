"""A web site on loopback that does what the test says, and remembers what it was asked; names that resolve as told."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

Page = Callable[[web.Request], Awaitable[web.StreamResponse]]


def html(*paragraphs: str, title: str = "A page") -> str:
    body = "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
    return f"<html><head><title>{title}</title></head><body><main>{body}</main></body></html>"


@dataclass(frozen=True)
class Asked:
    """A request that came."""

    path: str
    headers: Mapping[str, str]
    at: float


@dataclass
class Site:
    """``pages`` by path; what is not there is a 404. ``most`` is the most requests it had at the same time."""

    pages: dict[str, Page] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    bodies: int = 0
    running: int = 0
    most: int = 0
    origin: str = ""
    port: int = 0

    async def __aenter__(self) -> Site:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        self.origin = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def put(
        self, path: str, body: str | bytes = b"", *, seconds: float = 0.0, status: int = 200, **headers: str
    ) -> str:
        """Serve ``body`` there, as HTML unless ``content_type`` says otherwise; returns the URL.

        With ``etag`` or ``last_modified`` it answers conditional requests. Headers are written with underscores.
        """
        headers.setdefault("content_type", "text/html; charset=utf-8")
        named = {name.replace("_", "-").title(): value for name, value in headers.items()}

        async def page(request: web.Request) -> web.StreamResponse:
            await asyncio.sleep(seconds)
            asked = (request.headers.get("If-None-Match"), request.headers.get("If-Modified-Since"))
            has = (named.get("Etag"), named.get("Last-Modified"))
            if any(one is not None and one == other for one, other in zip(asked, has, strict=True)):
                return web.Response(status=304, headers={"Etag": named.get("Etag", "")})
            self.bodies += 1
            return web.Response(body=body, status=status, headers=named)

        self.pages[path] = page
        return self.origin + path

    def redirect(self, path: str, to: str, status: int = 302) -> str:
        async def page(_: web.Request) -> web.StreamResponse:
            return web.Response(status=status, headers={"Location": to})

        self.pages[path] = page
        return self.origin + path

    def times(self, path: str) -> list[float]:
        return [one.at for one in self.asked if one.path == path]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(Asked(request.path, dict(request.headers), time.monotonic()))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            page = self.pages.get(request.path)
            return await page(request) if page is not None else web.Response(status=404)
        finally:
            self.running -= 1


class Names(AbstractResolver):
    """Resolves names to the addresses of a table; a list is one answer after the other, the last one for ever."""

    def __init__(self, **addresses: Any) -> None:
        self.addresses = {name.replace("_", "."): value for name, value in addresses.items()}
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        self.asked.append(host)
        if host not in self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        found = self.addresses[host]
        if isinstance(found, list):
            found = found.pop(0) if len(found) > 1 else found[0]
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in found.split(",")
        ]

    async def close(self) -> None:
        return
