"""The fetch kind over real HTTP, against a site on loopback that misbehaves on demand."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from aiohttp import web

from cell_engine.kinds.base import Answer, Call, Failure, Previous
from cell_engine.kinds.fetch import FetchKind
from cell_engine.settings import Settings
from cell_engine.specs.text import Json
from cell_engine.specs.types import ColumnType
from tests.kinds.helpers import TEXT, call, column
from tests.kinds.site import Site, html

pytestmark = pytest.mark.anyio

SENTENCE = "The library has moved to the old harbour, and opens at nine."


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site() as site:
        yield site


@pytest.fixture
async def fetch() -> AsyncIterator[FetchKind]:
    kind = FetchKind(Settings(fetch_allow=("127.0.0.1",), fetch_per_host=4, fetch_delay=0))
    yield kind
    await kind.close()


def fetching(url: Json, *, column_type: ColumnType = TEXT, deadline: float = 20, **settings: Json) -> Call:
    return call(column("fetch", column_type, settings), url, deadline=deadline)


async def answer(kind: FetchKind, url: str, **options: Any) -> Answer:
    outcome = await kind.compute(fetching(url, **options))
    assert isinstance(outcome, Answer), outcome
    return outcome


async def failure(kind: FetchKind, url: Json, **options: Any) -> Failure:
    outcome = await kind.compute(fetching(url, **options))
    assert isinstance(outcome, Failure), outcome
    return outcome


def again(first: Answer, url: str, **options: Any) -> Call:
    assert first.details is not None
    return replace(fetching(url, **options), previous=Previous(first.value, first.details))


async def test_a_page_gives_its_main_text_and_where_it_came_from_beside_it(fetch: FetchKind, site: Site) -> None:
    page = f"""<html><head><title> The
        library </title></head><body><nav><a href="/">Home</a> <a href="/about">About us</a></nav>
        <article><h1>News</h1><p>{SENTENCE}</p><p>{SENTENCE} {SENTENCE} {SENTENCE}</p></article>
        <footer>Copyright, imprint, cookies</footer></body></html>"""
    url = site.put("/news", page, etag='"1"', last_modified="Mon, 30 Nov 2026 04:00:00 GMT")
    found = await answer(fetch, url + "#part")
    assert str(found.value).splitlines()[:2] == ["News", SENTENCE]
    assert "Copyright" not in str(found.value)
    details = dict(found.details or {})
    assert datetime.fromisoformat(str(details.pop("fetched_at"))).utcoffset() is not None
    assert len(str(details.pop("sha256"))) == 64
    assert details.pop("recipe")
    assert details == {
        "url": url, "final_url": url, "status": 200, "content_type": "text/html", "charset": "utf-8",
        "bytes": len(page.encode()), "title": "The library", "etag": '"1"',
        "last_modified": "Mon, 30 Nov 2026 04:00:00 GMT",
    }  # fmt: skip
    headers = site.asked[-1].headers
    assert headers["User-Agent"].startswith("collection-autofill/")
    assert "Cookie" not in headers


async def test_a_page_of_a_line_gives_that_line(fetch: FetchKind, site: Site) -> None:
    assert (await answer(fetch, site.put("/", html("Closed today.")))).value == "Closed today."


async def test_a_json_column_gets_what_the_page_decides_and_nothing_that_changes_by_itself(
    fetch: FetchKind, site: Site
) -> None:
    url = site.put("/", html(SENTENCE))
    found = await answer(fetch, url, column_type=ColumnType("json"))
    assert found.value == {"url": url, "title": "A page", "content_type": "text/html", "text": SENTENCE}


@pytest.mark.parametrize("content_type", ["text/plain", "text/markdown; charset=UTF-8", "TEXT/X-Markdown"])
async def test_plain_text_and_markdown_stay_as_they_are(fetch: FetchKind, site: Site, content_type: str) -> None:
    text = "# Title\n\n  <b>not</b> HTML & more\n\x00end\n"
    found = await answer(fetch, site.put("/", text, content_type=content_type))
    assert found.value == text.replace("\x00", "")


@pytest.mark.parametrize("content_type", ["application/pdf", "image/png", "application/json", "text/csv"])
async def test_other_content_types_are_refused_by_name_and_not_read(
    fetch: FetchKind, site: Site, content_type: str
) -> None:
    found = await failure(fetch, site.put("/", b"%PDF", content_type=content_type))
    assert found.error_class == "bad_input"
    assert content_type in found.message


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("x-gzip", lambda body: gzip.compress(body[:50]) + gzip.compress(body[50:]) + b"\0\0"),
        ("deflate", zlib.compress),
        ("deflate", lambda body: zlib.compress(body)[2:-4]),
        ("identity", lambda body: body),
    ],
    ids=["gzip", "gzip members", "zlib", "raw deflate", "identity"],
)
async def test_packed_bodies_are_unpacked(fetch: FetchKind, site: Site, encoding: str, pack: Any) -> None:
    url = site.put("/", pack(html(SENTENCE).encode()), content_encoding=encoding)
    assert (await answer(fetch, url)).value == SENTENCE


async def test_a_body_over_the_size_is_too_long_with_the_numbers(fetch: FetchKind, site: Site) -> None:
    found = await failure(fetch, site.put("/", b"x" * 2_000_000, content_type="text/plain"), max_bytes=1_000_000)
    assert found.error_class == "too_long"
    assert "2,000,000 bytes, and 1,000,000 are read at most" in found.message


async def test_a_body_whose_size_is_not_announced_is_read_no_further_than_the_size(
    fetch: FetchKind, site: Site
) -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        while True:
            await response.write(b"x" * 10_000)
            sent += 10_000

    site.pages["/"] = endless
    found = await failure(fetch, site.origin + "/", max_bytes=100_000)
    assert (found.error_class, "more than 100,000 bytes" in found.message) == ("too_long", True)
    assert sent < 20_000_000


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress], ids=["gzip", "deflate"])
async def test_a_bomb_counts_by_what_it_unpacks_to(fetch: FetchKind, site: Site, pack: Any) -> None:
    bomb = pack(b"\0" * 300_000_000)
    assert len(bomb) < 400_000
    encoding = "gzip" if pack is gzip.compress else "deflate"
    found = await failure(fetch, site.put("/", bomb, content_type="text/plain", content_encoding=encoding))
    assert (found.error_class, "more than 10,000,000 bytes" in found.message) == ("too_long", True)


async def test_a_packed_body_that_breaks_off_or_is_packed_otherwise_is_no_page(fetch: FetchKind, site: Site) -> None:
    half = gzip.compress(html(*[SENTENCE] * 50).encode())[:-20]
    found = await failure(fetch, site.put("/", half, content_encoding="gzip"))
    assert (found.error_class, "broke off" in found.message) == ("transient", True)
    found = await failure(fetch, site.put("/", b"xxxx", content_encoding="br"))
    assert (found.error_class, "'br'" in found.message) == ("bad_input", True)
    found = await failure(fetch, site.put("/", b"xxxx", content_encoding="gzip"))
    assert found.error_class == "transient"


@pytest.mark.parametrize(
    ("status", "error_class"),
    [
        (400, "bad_input"), (401, "bad_input"), (403, "bad_input"), (404, "bad_input"), (410, "bad_input"),
        (204, "bad_input"), (206, "bad_input"), (300, "bad_input"),
        (408, "transient"), (500, "transient"), (502, "transient"), (503, "transient"), (304, "transient"),
        (429, "rate_limited"),
    ],
)  # fmt: skip
async def test_each_status_has_its_class_and_is_named(
    fetch: FetchKind, site: Site, status: int, error_class: str
) -> None:
    found = await failure(fetch, site.put("/", "", status=status))
    assert found.error_class == error_class
    assert str(status) in found.message or status == 304


async def test_a_host_that_asks_to_wait_is_left_alone_by_all_calls(fetch: FetchKind, site: Site) -> None:
    busy, other = site.put("/busy", "", status=503, retry_after="120"), site.put("/other", html(SENTENCE))
    found = await failure(fetch, busy)
    assert (found.error_class, found.retry_after) == ("rate_limited", pytest.approx(120, abs=2))
    found = await failure(fetch, other)
    assert found.error_class == "rate_limited"
    assert found.retry_after == pytest.approx(120, abs=3)
    assert site.times("/other") == []


async def test_a_refusal_without_a_time_makes_pauses_that_double(fetch: FetchKind, site: Site) -> None:
    found = await failure(fetch, site.put("/", "", status=429))
    assert found.retry_after == pytest.approx(5, abs=0.5)


async def test_a_connection_that_breaks_is_transient(fetch: FetchKind, site: Site) -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/html", "Content-Length": "1000"})
        await response.prepare(request)
        await response.write(b"<html>")
        assert request.transport is not None
        request.transport.abort()
        return response

    site.pages["/"] = broken
    assert (await failure(fetch, site.origin + "/")).error_class == "transient"


async def test_nobody_listening_and_no_such_host_are_told_apart(fetch: FetchKind, unused_port: int) -> None:
    found = await failure(fetch, f"http://127.0.0.1:{unused_port}/")
    assert (found.error_class, "127.0.0.1" in found.message) == ("transient", True)


async def test_a_page_that_does_not_come_in_time_is_transient(fetch: FetchKind, site: Site) -> None:
    await answer(fetch, site.put("/quick", html(SENTENCE)))
    found = await failure(fetch, site.put("/", html(SENTENCE), seconds=5), deadline=0.3)
    assert (found.error_class, "within 0.3 s" in found.message) == ("transient", True)


async def test_a_server_that_trickles_does_not_outlive_the_deadline(fetch: FetchKind, site: Site) -> None:
    async def trickling(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        while True:
            await response.write(b"x")
            await asyncio.sleep(0.02)

    site.pages["/"] = trickling
    assert (await failure(fetch, site.origin + "/", deadline=0.5)).error_class == "transient"


async def test_tls_that_is_none_and_a_certificate_that_nobody_vouches_for_are_named(
    fetch: FetchKind, site: Site, tls_port: int
) -> None:
    found = await failure(fetch, site.origin.replace("http:", "https:"))
    assert (found.error_class, "TLS" in found.message) == ("transient", True)
    found = await failure(fetch, f"https://127.0.0.1:{tls_port}/")
    assert found.error_class == "bad_input"
    assert "certificate" in found.message


# ---- redirects


async def test_redirects_are_followed_and_the_end_is_kept(fetch: FetchKind, site: Site) -> None:
    end = site.put("/c", html(SENTENCE))
    site.redirect("/b", end, 308)
    found = await answer(fetch, site.redirect("/a", "b?x=1#y", 301))
    assert found.value == SENTENCE
    assert found.details is not None
    assert (found.details["url"], found.details["final_url"]) == (site.origin + "/a", end)


async def test_a_circle_of_redirects_ends(fetch: FetchKind, site: Site) -> None:
    found = await failure(fetch, site.redirect("/a", "/a"))
    assert (found.error_class, "More than 5 redirects" in found.message) == ("bad_input", True)
    assert len(site.times("/a")) == 6


@pytest.mark.parametrize(
    ("to", "words"),
    [
        ("file:///etc/passwd", "not file:"),
        ("ftp://example.org/", "not ftp:"),
        ("http://[::1]:1/", "loopback"),
        ("http://[::ffff:127.0.0.1]:1/", "mapped into IPv6"),
        ("http://me:hunter2@127.0.0.1:1/", "credentials"),
    ],
)
async def test_each_hop_is_judged(fetch: FetchKind, site: Site, to: str, words: str) -> None:
    found = await failure(fetch, site.redirect("/", to))
    assert found.error_class == "bad_input"
    assert words in found.message
    assert "hunter2" not in found.message


# ---- what is known already


async def test_an_unchanged_page_costs_no_body_and_gives_the_same_answer(fetch: FetchKind, site: Site) -> None:
    url = site.put("/", html(SENTENCE), etag='"1"')
    first = await answer(fetch, url)
    second = await fetch.compute(again(first, url))
    assert isinstance(second, Answer)
    assert (second.value, site.bodies, len(site.times("/"))) == (first.value, 1, 2)
    assert first.details is not None
    assert second.details is not None
    assert second.details["status"] == 304
    assert second.details["title"] == "A page"
    assert second.details["sha256"] == first.details["sha256"]
    third = await fetch.compute(again(second, url))
    assert isinstance(third, Answer)
    assert site.bodies == 1


async def test_a_date_of_change_is_enough(fetch: FetchKind, site: Site) -> None:
    url = site.put("/", html(SENTENCE), last_modified="Mon, 30 Nov 2026 04:00:00 GMT")
    await fetch.compute(again(await answer(fetch, url), url))
    assert site.bodies == 1


async def test_a_changed_page_is_read(fetch: FetchKind, site: Site) -> None:
    url = site.put("/", html(SENTENCE), etag='"1"')
    first = await answer(fetch, url)
    site.put("/", html("It is closed."), etag='"2"')
    second = await fetch.compute(again(first, url))
    assert isinstance(second, Answer)
    assert (second.value, site.bodies) == ("It is closed.", 2)


async def test_the_same_bytes_are_not_read_again(fetch: FetchKind, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    url = site.put("/", html(SENTENCE))
    first = await answer(fetch, url)

    async def never(*_: object) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(fetch._readers, "read", never)
    second = await fetch.compute(again(first, url))
    assert isinstance(second, Answer)
    assert (second.value, (second.details or {})["title"]) == (SENTENCE, "A page")


async def test_conditions_are_those_of_the_page_that_was_read_and_of_no_other(fetch: FetchKind, site: Site) -> None:
    one, other = site.put("/1", html(SENTENCE), etag='"same"'), site.put("/2", html("Another."), etag='"same"')
    first = await answer(fetch, one)
    second = await fetch.compute(again(first, other))
    assert isinstance(second, Answer)
    assert second.value == "Another."
    assert "If-None-Match" not in site.asked[-1].headers
    # behind a redirect, only where it leads
    site.redirect("/r", "/1")
    third = await fetch.compute(again(first, site.origin + "/r"))
    assert isinstance(third, Answer)
    assert third.value == SENTENCE
    assert ["If-None-Match" in asked.headers for asked in site.asked[-2:]] == [False, True]


async def test_another_definition_reads_an_unchanged_page_again(fetch: FetchKind, site: Site) -> None:
    url = site.put("/", html(SENTENCE), etag='"1"')
    changed = again(await answer(fetch, url), url, column_type=ColumnType("json"))
    changed = replace(changed, column=replace(changed.column, hash=b"another defined!"))
    second = await fetch.compute(changed)
    assert isinstance(second, Answer)
    assert isinstance(second.value, dict)
    assert site.bodies == 2


# ---- hostile and broken pages


async def test_a_page_without_text_says_so(fetch: FetchKind, site: Site) -> None:
    found = await failure(fetch, site.put("/", "<html><body><div id=root></div><script>go()</script></body></html>"))
    assert (found.error_class, "no text" in found.message) == ("bad_input", True)


async def test_entities_are_not_unfolded_and_deep_nesting_hurts_nobody(fetch: FetchKind, site: Site) -> None:
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
    page = f'<!DOCTYPE html [<!ENTITY l0 "lol">{laughs}]><html><body><p>{SENTENCE} &l11;</p></body></html>'
    found = await answer(fetch, site.put("/laughs", page))
    assert len(str(found.value)) < 10 * len(page)
    deep = "<html><body>" + "<div>" * 100_000 + SENTENCE
    outcome = await fetch.compute(fetching(site.put("/deep", deep)))
    assert isinstance(outcome, Answer) or outcome.error_class == "bad_input"
    assert (await answer(fetch, site.put("/", html(SENTENCE)))).value == SENTENCE


@pytest.mark.parametrize(
    "url", ["", "  ", "example.org", "/path", "http://", "http://exa mple.org/", "x" * 9000, 7, None]
)
async def test_what_is_no_url_is_that_cells_error(fetch: FetchKind, url: Json) -> None:
    assert (await failure(fetch, url)).error_class == "bad_input"


async def test_credentials_in_a_url_are_refused_and_not_repeated(fetch: FetchKind, site: Site) -> None:
    for authority in ("me:hunter2@127.0.0.1", "hunter2@127.0.0.1", ":hunter2@127.0.0.1"):
        found = await failure(fetch, f"http://{authority}:{site.port}/")
        assert found.error_class == "bad_input"
        assert "hunter2" not in found.message
    assert site.asked == []
