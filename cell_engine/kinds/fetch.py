"""The ``fetch`` kind: the text of the page that a URL names, asked for politely and only if it has changed."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import blake2b, sha256
from typing import Any, cast

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from cell_engine.errors import BadValueError
from cell_engine.kinds.base import Answer, Call, Failure, Outcome, Previous
from cell_engine.kinds.provider_errors import retry_after
from cell_engine.kinds.web.budget import Budget
from cell_engine.kinds.web.failing import FetchError, TooManyRedirectsError
from cell_engine.kinds.web.guard import Guard
from cell_engine.kinds.web.lines import Lines
from cell_engine.kinds.web.reading import Readers, Text
from cell_engine.kinds.web.robots import Robots
from cell_engine.kinds.web.transfer import Reply, get, media_type, open_session
from cell_engine.log import redact_text
from cell_engine.settings import PROJECT_NAME, Settings, get_settings
from cell_engine.specs.text import Json, clean_text
from cell_engine.specs.version import Column

MOST_BYTES = 10_000_000
"""Of a page, unless the column says otherwise."""

MOST_REDIRECTS = 5
READABLE = frozenset({"text/html", "application/xhtml+xml", "text/plain", "text/markdown", "text/x-markdown"})

_HEADERS = {
    "Accept": "text/html, application/xhtml+xml, text/markdown, text/plain;q=0.9, */*;q=0.1",
    "Accept-Encoding": "gzip, deflate",
}
_AGAIN = frozenset({408, 425})  # of the client errors, those that say: once more


class FetchKind:
    """Pages over HTTP. One session, one line before each host and two readers for all calls of a worker."""

    name = "fetch"

    def __init__(self, settings: Settings | None = None, resolver: AbstractResolver | None = None) -> None:
        """Without ``settings``, those of the environment; without ``resolver``, the system's names.

        Raises BadValueError for a setting that cannot be used.
        """
        settings = settings or get_settings()
        self._guard = Guard.of(settings.fetch_allow)
        self._lines = Lines(settings.fetch_per_host, settings.fetch_delay)
        self._robots = Robots(PROJECT_NAME, self._load_robots)
        self._readers = Readers()
        self._headers = _HEADERS | {"User-Agent": user_agent()}
        self._resolver = resolver
        self._opened: aiohttp.ClientSession | None = None

    def check(self, column: Column) -> None:
        """Nothing is missing anywhere: what a fetch needs comes with the worker."""

    def at_once(self, call: Call) -> None:
        """Never: a page is far away."""

    def provider(self, column: Column) -> None:
        """Each host has its own line, and no limits that workers share."""

    async def compute(self, call: Call) -> Outcome:
        """Fetch the page, or find that it is the one there was."""
        try:
            return await self._fetch(call)
        except FetchError as error:
            return error.failure

    async def close(self) -> None:
        await self._readers.close()
        if self._opened is not None:
            await self._opened.close()

    async def _fetch(self, call: Call) -> Answer | Failure:
        (given,) = call.inputs.values()
        if not isinstance(given, str):
            raise FetchError("bad_input", f"A URL is text; the cell holds {type(given).__name__}.")
        url = self._guard.check(given)
        recipe = _recipe(call.column)
        known = _known(call.previous, recipe)
        reply = await self._page(url, known, call)
        details: dict[str, Json] = {
            "url": _kept(url),
            "final_url": _kept(reply.url),
            "fetched_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "status": reply.status,
            "recipe": recipe,
        }
        if reply.status == 304:
            if known is None or known.details.get("final_url") != details["final_url"]:
                raise FetchError("transient", f"{reply.url.host} says that a page is unchanged that was not asked for.")
            return Answer(known.value, details={**known.details, **details, **_validators(reply.headers)})
        content_type = reply.headers.get("Content-Type")
        details |= {
            "content_type": media_type(content_type),
            "bytes": len(reply.body),
            "sha256": sha256(reply.body).hexdigest(),
            **_validators(reply.headers),
        }
        same = ("sha256", "content_type", "final_url")
        if known is not None and all(known.details.get(name) == details[name] for name in same):
            charset, title = known.details.get("charset"), known.details.get("title")
            return Answer(known.value, details=details | {"charset": charset, "title": title})
        read = await self._readers.read(reply.body, media_type(content_type), _charset(content_type))
        details |= {"charset": read.charset, "title": read.title}
        try:
            return Answer(call.column.type.accept(_value(call.column, details, read)), details=details)
        except BadValueError as error:
            return Failure("schema", f"The page's text does not fit: {error}")

    async def _page(self, url: URL, known: Previous | None, call: Call) -> Reply:
        """The page, or a 304 for one that is ``known``. Raises FetchError for every other status."""
        settings = cast(Mapping[str, Any], call.column.settings)
        most = settings.get("max_bytes") or MOST_BYTES
        budget = Budget(call.deadline)
        who = f"{call.collection}:{call.row_id}:{call.column.id}"
        for _ in range(MOST_REDIRECTS + 1):
            host = url.host or ""
            rules = await self._robots.rules(url)
            if not rules.allows(url):
                raise FetchError("refused", f"The robots.txt of {host} lets no robot fetch this page.")
            async with self._lines.place(host, who, rules.delay), budget.spending(host):
                headers = self._headers | _conditions(url, known)
                reply = await get(self._session, url, headers, most, readable=READABLE)
            if reply.location is None:
                self._check_status(reply, host)
                return reply
            url = self._next(reply)
        raise TooManyRedirectsError(MOST_REDIRECTS)

    async def _load_robots(self, url: URL, most: int) -> Reply:
        for _ in range(MOST_REDIRECTS + 1):
            reply = await get(self._session, self._guard.check(str(url)), self._headers, most, readable=None)
            if reply.location is None:
                return reply
            url = self._next(reply)
        raise TooManyRedirectsError(MOST_REDIRECTS)

    def _next(self, reply: Reply) -> URL:
        """Where a redirect leads: judged like a URL from a cell."""
        try:
            target = reply.url.join(URL(reply.location or ""))
        except ValueError:
            raise FetchError("bad_input", f"{reply.url.host} redirects to what is no URL.") from None
        return self._guard.check(str(target))

    def _check_status(self, reply: Reply, host: str) -> None:
        status, said = reply.status, f"{host} answers with HTTP {reply.status}"
        waits = retry_after(cast(Any, reply.headers))
        if status == 429 or (status == 503 and waits is not None):
            raise FetchError("rate_limited", f"{said}: later.", self._lines.refused(host, waits))
        if status >= 500 or status in _AGAIN:
            raise FetchError("transient", f"{said}.", waits)
        self._lines.answered(host)
        if status not in (200, 203, 304):
            raise FetchError("bad_input", f"{said}{_meaning(status)}.")

    @property
    def _session(self) -> aiohttp.ClientSession:
        if self._opened is None:
            self._opened = open_session(self._guard, self._resolver)
        return self._opened


def user_agent() -> str:
    try:
        version = importlib.metadata.version(PROJECT_NAME)
    except importlib.metadata.PackageNotFoundError:
        version = "0"
    return f"{PROJECT_NAME}/{version}"


def _recipe(column: Column) -> str:
    """What makes a value of a page, beside the page: under another one it is read again, changed or not."""
    reader = f"1:{importlib.metadata.version('trafilatura')}"
    return blake2b(column.hash + reader.encode(), digest_size=8).hexdigest()


def _known(previous: Previous | None, recipe: str) -> Previous | None:
    """The last answer, if a page that has not changed would give it again."""
    if previous is None or previous.value is None or previous.details.get("recipe") != recipe:
        return None
    return previous


def _conditions(url: URL, known: Previous | None) -> dict[str, str]:
    """What makes the server say 304: of the very page that was read, and of no other on the way to it."""
    if known is None or known.details.get("final_url") != _kept(url):
        return {}
    conditions = {"If-None-Match": known.details.get("etag"), "If-Modified-Since": known.details.get("last_modified")}
    return {name: value for name, value in conditions.items() if isinstance(value, str)}


def _validators(headers: Mapping[str, str]) -> dict[str, Json]:
    found = {"etag": headers.get("ETag"), "last_modified": headers.get("Last-Modified")}
    return {name: clean_text(value) for name, value in found.items() if value}


def _kept(url: URL) -> str:
    """A URL as it is stored: a redirect may lead to one that holds a key."""
    return redact_text(clean_text(str(url)))


def _charset(content_type: str | None) -> str | None:
    for parameter in (content_type or "").split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip():
            return value.strip(" \t\"'")
    return None


def _value(column: Column, details: Mapping[str, Json], read: Text) -> Json:
    """The text; of a json column what else the page itself decides, and nothing that each fetch changes."""
    if column.type.name == "text":
        return read.text
    return {
        "url": details["final_url"],
        "title": read.title,
        "content_type": details["content_type"],
        "text": read.text,
    }


def _meaning(status: int) -> str:
    meanings = {
        401: "it asks for a login",
        403: "it lets us not see it",
        404: "there is no such page",
        410: "it is gone",
    }
    return f": {meanings[status]}" if status in meanings else ""
