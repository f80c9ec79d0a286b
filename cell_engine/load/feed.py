"""A feed as a source: fetched only if it has changed, its entries synced by key. Entries that are gone from it stay."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

from aiohttp import ClientSession
from yarl import URL

from cell_engine.errors import BadValueError
from cell_engine.kinds.fetch import MOST_BYTES, MOST_REDIRECTS, user_agent
from cell_engine.kinds.web.failing import FetchError, TooManyRedirectsError
from cell_engine.kinds.web.guard import Guard
from cell_engine.kinds.web.transfer import Reply, get, open_session
from cell_engine.load.errors import LoadError
from cell_engine.load.feed_entries import FIELDS, Entry, read_entries
from cell_engine.load.rows import Record, record, told_of
from cell_engine.load.sync import Synced, sync_rows
from cell_engine.log import redact_text
from cell_engine.settings import get_settings
from cell_engine.specs.text import Json, clean_text
from cell_engine.specs.version import Version
from cell_engine.store.collections import Collection, load_version
from cell_engine.store.database import Connection
from cell_engine.store.feeds import Known, read_feed, write_feed

_SECONDS = 60.0
_HEADERS = {
    "Accept": "application/atom+xml, application/rss+xml, application/xml;q=0.9, text/xml;q=0.9, */*;q=0.1",
    "Accept-Encoding": "gzip, deflate",
}


@dataclass(frozen=True, slots=True)
class FeedSynced:
    """`synced` is None when the feed had not changed since it was last synced; `body`: whether one was sent."""

    synced: Synced | None
    body: bool


def sync_feed(
    connection: Connection, collection: Collection, url: str, *, actor: str, guard: Guard | None = None
) -> FeedSynced:
    """Bring the collection's rows up to what the feed at `url` says: new entries go in, those that changed are changed,
    those that are in it no more stay.

    Only addresses that `guard` admits are asked, by default what AUTOFILL_FETCH_ALLOW adds to the public ones. Raises
    LoadError where there is no feed to be had, BadValueError for a collection that takes nothing of one.
    """
    guard = guard if guard is not None else Guard.of(get_settings().fetch_allow)
    version = load_version(connection, collection.id)
    _fields_of(version, collection)
    shown = redact_text(url)
    known = read_feed(connection, collection.id, shown, version.number)
    try:
        reply = asyncio.run(_fetch(guard, url, known))
        if reply.status == 304:
            return FeedSynced(None, body=False)
        digest = sha256(reply.body).digest()
        now = Known(_header(reply, "ETag"), _header(reply, "Last-Modified"), digest)
        synced = None
        if known is None or known.digest != digest:
            entries = read_entries(reply.body, str(reply.url), _charset(reply))
            synced = sync_rows(
                connection,
                collection,
                lambda current: _records(entries, current, collection),
                key=f"feed-{digest.hex()[:16]}",
                source=clean_text(shown),
                actor=actor,
                deletes=False,
            )
    except (LoadError, FetchError) as error:
        raise LoadError(f"{shown}: {redact_text(str(error))}") from None
    # Last: a sync that died half-way finds the feed changed again.
    write_feed(connection, collection.id, shown, version.number, now)
    return FeedSynced(synced, body=True)


async def _fetch(guard: Guard, url: str, known: Known | None) -> Reply:
    """The feed, or a 304. Raises FetchError."""
    headers = _HEADERS | {"User-Agent": user_agent()} | _conditions(known)
    target = guard.check(url)
    try:
        async with asyncio.timeout(_SECONDS), open_session(guard) as session:
            return await _follow(guard, session, target, headers)
    except TimeoutError:
        raise FetchError("transient", f"it did not come within {_SECONDS:g} s") from None


async def _follow(guard: Guard, session: ClientSession, url: URL, headers: dict[str, str]) -> Reply:
    for _ in range(MOST_REDIRECTS + 1):
        reply = await get(session, url, headers, MOST_BYTES, readable=None)
        if reply.location is None:
            if reply.status not in (200, 203, 304):
                raise FetchError("transient", f"{url.host} answers with HTTP {reply.status}")
            return reply
        try:
            url = guard.check(str(reply.url.join(URL(reply.location))))
        except ValueError:
            raise FetchError("bad_input", f"{url.host} redirects to what is no URL") from None
    raise TooManyRedirectsError(MOST_REDIRECTS)


def _conditions(known: Known | None) -> dict[str, str]:
    if known is None:
        return {}
    conditions = {"If-None-Match": known.etag, "If-Modified-Since": known.last_modified}
    return {name: value for name, value in conditions.items() if value}


def _header(reply: Reply, name: str) -> str | None:
    value = reply.headers.get(name)
    return clean_text(value) if value else None


def _charset(reply: Reply) -> str | None:
    for parameter in reply.headers.get("Content-Type", "").split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip():
            return value.strip(" \t\"'")
    return None


def _fields_of(version: Version, collection: Collection) -> dict[str, int]:
    """The columns that take a field of an entry: their ids by name."""
    found = {column.name: column.id for column in version.input_columns if column.name in FIELDS}
    if not found:
        raise BadValueError(
            f"{collection.full_name} has no column that an entry of a feed fills: name some of {', '.join(FIELDS)}"
        )
    return found


def _records(entries: list[Entry], version: Version, collection: Collection) -> Iterator[Record]:
    columns = [version.by_id[column] for column in _fields_of(version, collection).values()]
    for entry in entries:
        row: dict[int, Json] = {}
        faults: list[str] = []
        missing: list[int] = []
        for column in columns:
            value = entry.fields.get(column.name)
            if value is None:
                missing.append(column.id)
                continue
            if column.type.name == "text" and not isinstance(value, str):
                value = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            elif column.type.name == "date" and isinstance(value, str):
                value = value[:10]
            try:
                row[column.id] = column.type.accept(value)
            except BadValueError as error:
                faults.append(f"column {column.name!r}: {error}")
        cells = [(column, entry.fields.get(column.name)) for column in columns]
        yield record(entry.number, row, faults, missing, partial(told_of, cells))
