"""Feeds: entries by key, from RSS and Atom as they come, fetched under guard and only if they have changed."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cell_engine.errors import BadValueError, SpecError
from cell_engine.kinds.web.guard import Guard
from cell_engine.load import LoadError
from cell_engine.load.feed import sync_feed
from cell_engine.load.feed_entries import read_entries
from cell_engine.specs.compile import compile_text
from cell_engine.store.applying import apply
from cell_engine.store.collections import Collection, find_collection, load_loading
from cell_engine.store.database import Connection
from cell_engine.store.reading import page
from tests.engine import Claimer
from tests.kinds.site import Site

SPEC = """
namespace: demo
name: news
key: id
columns:
  - {name: id, type: text}
  - {name: title, type: text}
  - {name: link, type: url}
  - {name: published, type: datetime}
  - {name: categories, type: list}
  - {name: summary, type: text}
  - {name: b, type: text, kind: function, deps: [title], function: {name: "tests.functions:shape_1"}}
"""
LOOPBACK = Guard.of(["127.0.0.1"])


def rss(*items: str, head: str = "") -> str:
    return (
        f'{head}<rss version="2.0" xmlns:dc="http://purl.org/dc/elements/1.1/"><channel><title>News</title>'
        f"<link>https://news.example/</link>{''.join(f'<item>{item}</item>' for item in items)}</channel></rss>"
    )


def item(number: int, title: str = "") -> str:
    return f"<guid>n{number}</guid><title>{title or f'Title {number}'}</title><link>/{number}</link>"


@contextmanager
def serving() -> Iterator[Site]:
    """A site in a thread of its own: what fetches has its own loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    site = Site()
    try:
        asyncio.run_coroutine_threadsafe(site.__aenter__(), loop).result(10)
        yield site
        asyncio.run_coroutine_threadsafe(site.__aexit__(), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@pytest.fixture
def news(connection: Connection) -> Collection:
    apply(connection, compile_text(SPEC), actor="test")
    return find_collection(connection, "demo/news")


def titles(connection: Connection, news: Collection) -> list[object]:
    inputs, _ = page(connection, news.id, limit=100)
    return [cell.value for cell in inputs if cell.column_id == 2]


def test_new_entries_go_in_updated_ones_change_and_those_that_are_gone_stay(
    connection: Connection, news: Collection
) -> None:
    with serving() as site:
        url = site.put("/feed", rss(item(2), item(1)), content_type="application/rss+xml", etag='"1"')
        sync = lambda: sync_feed(connection, news, url, actor="ann", guard=LOOPBACK)  # noqa: E731
        first = sync().synced
        assert first is not None
        assert (first.inserted, first.deleted) == (2, 0)
        assert Claimer(connection).work_off() == ["b", "b"]
        assert (sync().body, site.bodies) == (False, 1)

        site.put("/feed", rss(item(3), item(2, "Another title")), content_type="application/rss+xml", etag='"2"')
        second = sync().synced
        assert second is not None
        assert (second.inserted, second.updated, second.deleted, second.withheld) == (1, 1, 0, 0)
        assert titles(connection, news) == ["Another title", "Title 1", "Title 3"]
        assert Claimer(connection).work_off() == ["b", "b"]

        # without validators, the same bytes are no news
        site.put("/feed", rss(item(3), item(2, "Another title")), content_type="text/xml")
        again = sync()
        assert (again.body, again.synced, site.bodies) == (True, None, 3)

        # another version may have more columns: its entries are read again
        spec = compile_text(SPEC.replace("  - {name: b,", "  - {name: feed, type: text}\n  - {name: b,"))
        apply(connection, spec, actor="test")
        third = sync().synced
        assert third is not None
        assert (third.updated, third.unchanged) == (2, 0)


def test_what_is_asked_is_guarded_and_bounded(connection: Connection, news: Collection) -> None:
    with serving() as site:
        url = site.put("/feed", rss(item(1)), content_type="text/xml")
        with pytest.raises(LoadError, match=r"/feed: 127.0.0.1 is a loopback address.*AUTOFILL_FETCH_ALLOW"):
            sync_feed(connection, news, url, actor="ann")
        inside = site.redirect("/out", "http://10.0.0.1/feed")
        with pytest.raises(LoadError, match=r"10.0.0.1 is a private address"):
            sync_feed(connection, news, inside, actor="ann", guard=LOOPBACK)
        for path, said, how in (
            ("/large", "more than 10,000,000|10,000,001 bytes", {"body": b"x" * 10_000_001}),
            ("/gone", "HTTP 404", {"body": b"", "status": 404}),
            ("/page", "neither RSS nor Atom but <html>", {"body": "<html><body>x</body></html>"}),
            ("/loop", "redirects", None),
        ):
            target = site.redirect(path, path) if how is None else site.put(path, **how)  # type: ignore[arg-type]
            with pytest.raises(LoadError, match=said):
                sync_feed(connection, news, target, actor="ann", guard=LOOPBACK)
        secret = site.put("/feed", rss(item(1)), content_type="text/xml") + "?password=hunter2"
        assert sync_feed(connection, news, secret, actor="ann", guard=LOOPBACK).synced
        query = "select feed.url, sync.source from autofill.feed cross join autofill.sync"
        kept = connection.execute(query).fetchall()
        assert kept
        assert "hunter2" not in str(kept)


def test_duplicate_and_missing_ids(connection: Connection, news: Collection) -> None:
    with serving() as site:
        others = "<title>No id</title><link>https://a.example/x</link>", "<title>Only</title>"
        body = rss(item(1), item(1, "Again"), *others)
        done = sync_feed(
            connection, news, site.put("/f", body, content_type="text/xml"), actor="ann", guard=LOOPBACK
        ).synced
    assert done is not None
    assert (done.inserted, done.rejected) == (3, [(2, "its key is that of line 1, which is taken")])
    assert titles(connection, news) == ["Title 1", "No id", "Only"]


ATOM = """<?xml version="1.0" encoding="iso-8859-1"?>
<feed xmlns="http://www.w3.org/2005/Atom" xml:base="https://blog.example/a/">
  <title>Blog</title><link rel="self" href="feed.xml"/><link href="./"/>
  <entry xml:base="2026/">
    <id>urn:1</id><title type="html">&lt;b&gt;Caf\xe9&lt;/b&gt; &amp;amp; bar</title>
    <link rel="enclosure" href="x.mp3"/><link href="one.html"/>
    <published>2026-01-02T03:04:05Z</published><updated>2026-01-03T00:00:00+02:00</updated>
    <author><name>Ann</name><email>a@x</email></author>
    <category term="x"/><category term="y"/><category term="x"/>
    <summary type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml">Some <em>words</em></div></summary>
    <content type="text">1 &lt; 2</content>
  </entry>
</feed>""".encode("latin-1")


def test_atom() -> None:
    (entry,) = read_entries(ATOM, "https://elsewhere.example/feed")
    assert entry.fields == {
        "id": "urn:1",
        "title": "Café\n& bar",
        "link": "https://blog.example/a/2026/one.html",
        "published": "2026-01-02T03:04:05+00:00",
        "updated": "2026-01-03T00:00:00+02:00",
        "author": "Ann",
        "summary": "Some words",
        "content": "1 < 2",
        "categories": ["x", "y"],
        "feed": "Blog",
    }


def test_rss_as_it_is_found() -> None:
    entry, guid, dated = read_entries(
        rss(
            "<guid isPermaLink='false'>g</guid><title>A &amp;amp; B</title><link>/x?a=1</link>"
            "<dc:creator>Bo</dc:creator><pubDate>Mon, 02 Feb 2026 10:00:00 EST</pubDate><category>c</category>"
            "<description><![CDATA[<p>One.</p><p>Two &nbsp;&eacute;</p><script>x</script>]]></description>",
            "<guid>https://news.example/perma</guid>",
            "<link>javascript:alert(1)</link><pubDate>2026-02-02 10:00</pubDate><title/>",
        ).encode("utf-16"),
        "https://news.example/feed",
        charset="utf-8",
    )
    assert entry.fields == {
        "id": "g",
        "title": "A & B",
        "link": "https://news.example/x?a=1",
        "published": "2026-02-02T10:00:00-05:00",
        "author": "Bo",
        "categories": ["c"],
        "summary": "One.\nTwo é",
        "feed": "News",
    }
    assert guid.fields["link"] == guid.fields["id"] == "https://news.example/perma"
    assert str(dated.fields["id"]).startswith("sha256:")
    assert (dated.fields["published"], "link" in dated.fields) == ("2026-02-02T10:00:00+00:00", False)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (rss(item(1), head='<!DOCTYPE rss [<!ENTITY a "x"><!ENTITY b "&a;&a;&a;">]>'), "declares entities"),
        (
            rss("<title>&x;</title>", head='<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]>'),
            "declares entities",
        ),
        (rss("<title>&nbsp;</title>"), "no well-formed XML, in line 1"),
        (rss(item(1))[:-20], "no well-formed XML"),
        ('{"version": "https://jsonfeed.org/version/1.1"}', "no well-formed XML"),
        ("", "no well-formed XML"),
        ("<opml/>", "neither RSS nor Atom but <opml>"),
    ],
)
def test_feeds_that_are_refused(body: str, said: str) -> None:
    with pytest.raises(LoadError, match=said):
        read_entries(body.encode(), "https://news.example/feed")


def test_what_a_collection_says_of_feeds(connection: Connection) -> None:
    url = "https://news.example/feed"
    apply(connection, compile_text(SPEC.replace("key: id\n", f"key: id\nfeed: {url}\n")), actor="test")
    news = find_collection(connection, "demo/news")
    assert load_loading(connection, news.id).feed == url
    for wrong, said in {"feed: nowhere\nkey: id": "feed: type url", f"feed: {url}": "declare key"}.items():
        with pytest.raises(SpecError, match=said):
            compile_text(SPEC.replace("key: id", wrong))
    apply(connection, compile_text(SPEC.replace("name: news", "name: other")), actor="test")
    none: Any = compile_text("{namespace: demo, name: bare, key: a, columns: [{name: a, type: text}]}")
    apply(connection, none, actor="test")
    with pytest.raises(BadValueError, match="demo/bare has no column that an entry of a feed fills"):
        sync_feed(connection, find_collection(connection, "demo/bare"), url, actor="ann")
