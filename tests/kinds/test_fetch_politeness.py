"""How a host is treated: few at a time, apart, as its robots.txt says; counted by the host itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise

import pytest
from aiohttp import web

from cell_engine.kinds.base import Answer, Failure, Outcome
from cell_engine.kinds.fetch import FetchKind
from cell_engine.kinds.web import lines, robots
from cell_engine.kinds.web.failing import FetchError
from cell_engine.kinds.web.lines import Lines
from cell_engine.settings import Settings
from tests.kinds.helpers import TEXT, call, column
from tests.kinds.site import Site, html

pytestmark = pytest.mark.anyio


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site() as site:
        yield site


def kind_with(at_once: int = 4, delay: float = 0.0) -> FetchKind:
    return FetchKind(Settings(fetch_allow=("127.0.0.1",), fetch_per_host=at_once, fetch_delay=delay))


async def fetched(kind: FetchKind, *urls: str, deadline: float = 10) -> list[Outcome]:
    calls = [replace(call(column("fetch", TEXT, {}), url, deadline=deadline), row_id=n) for n, url in enumerate(urls)]
    return list(await asyncio.gather(*(kind.compute(one) for one in calls)))


# ---- lines


async def test_a_host_is_asked_by_few_at_a_time(site: Site) -> None:
    kind = kind_with(at_once=3)
    urls = [site.put(f"/{n}", html("Text."), seconds=0.03) for n in range(20)]
    found = await fetched(kind, *urls)
    await kind.close()
    assert [type(one) for one in found] == [Answer] * 20
    assert site.most == 3


async def test_two_requests_start_apart_however_many_are_asked_for(site: Site) -> None:
    kind = kind_with(delay=0.1)
    await fetched(kind, *[site.put("/x", html("Text."))] * 8)
    await kind.close()
    times = site.times("/x")
    assert len(times) == 8
    assert min(after - before for before, after in pairwise(times)) > 0.05
    assert times[-1] - times[0] > 0.65


async def test_standing_in_line_does_not_use_up_the_deadline(site: Site) -> None:
    kind = kind_with(at_once=1)
    found = await fetched(kind, *[site.put("/x", html("Text."), seconds=0.2)] * 6, deadline=0.6)
    await kind.close()
    assert [type(one) for one in found] == [Answer] * 6


async def test_who_would_wait_for_long_comes_back_each_at_its_time() -> None:
    turns = Lines(1, 1.0)
    away = []
    standing = []
    for n in range(20):
        task = asyncio.create_task(_turn(turns, f"row {n}"))
        await asyncio.sleep(0)
        if task.done():
            away.append(task.result())
        else:
            standing.append(task)
    assert len(standing) == 6  # now, and within five seconds
    assert all(isinstance(one, Failure) and one.error_class == "rate_limited" for one in away)
    back = [one.retry_after or 0 for one in away if one is not None]
    assert back == sorted(back)
    assert all(later - sooner == pytest.approx(1.0, abs=0.1) for sooner, later in pairwise(back))
    for task in standing:
        task.cancel()
    await asyncio.gather(*standing, return_exceptions=True)


async def _turn(turns: Lines, who: str) -> Failure | None:
    try:
        async with turns.place("host", who, None):
            return None
    except FetchError as error:
        return error.failure


async def test_who_comes_back_goes_before_who_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "PATIENCE_SECONDS", 0.05)
    turns = Lines(1, 0.1)
    assert await _turn(turns, "first") is None
    sent = [await _turn(turns, f"row {n}") for n in range(3)]
    assert all(sent)
    await asyncio.sleep(0.1)
    assert await _turn(turns, "new") is not None
    assert await _turn(turns, "row 0") is None


async def test_a_line_forgets_hosts_that_nobody_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "_MOST_HOSTS", 10)
    monkeypatch.setattr(lines, "_FORGET_SECONDS", -1.0)
    turns = Lines(1, 0)
    for n in range(100):
        async with turns.place(f"host {n}", "me", None):
            pass
    assert len(turns._lines) <= 10


# ---- robots.txt


async def test_what_robots_txt_forbids_is_not_fetched(site: Site) -> None:
    site.put("/robots.txt", "User-agent: *\nDisallow: /private\n", content_type="text/plain")
    kind = kind_with()
    open_, private = site.put("/open", html("Text.")), site.put("/private/x", html("Text."))
    found = await fetched(kind, open_, private, open_, private)
    await kind.close()
    assert [type(one) for one in found] == [Answer, Failure, Answer, Failure]
    assert isinstance(found[1], Failure)
    assert (found[1].error_class, "robots.txt" in found[1].message) == ("refused", True)
    assert site.times("/private/x") == []
    assert len(site.times("/robots.txt")) == 1


async def test_a_rule_for_us_by_name_is_ours(site: Site) -> None:
    site.put(
        "/robots.txt",
        "User-agent: *\nAllow: /\n\nUser-agent: collection-autofill\nDisallow: /\n",
        content_type="text/plain",
    )
    kind = kind_with()
    (found,) = await fetched(kind, site.put("/open", html("Text.")))
    await kind.close()
    assert isinstance(found, Failure)


async def test_a_redirect_into_what_is_forbidden_is_not_followed(site: Site) -> None:
    site.put("/robots.txt", "User-agent: *\nDisallow: /private\n", content_type="text/plain")
    site.put("/private", html("Text."))
    kind = kind_with()
    (found,) = await fetched(kind, site.redirect("/open", "/private"))
    await kind.close()
    assert isinstance(found, Failure)
    assert site.times("/private") == []


@pytest.mark.parametrize("status", [404, 401, 403, 410])
async def test_a_robots_txt_that_is_not_there_allows_everything(site: Site, status: int) -> None:
    site.put("/robots.txt", "User-agent: *\nDisallow: /\n", status=status)
    kind = kind_with()
    (found,) = await fetched(kind, site.put("/x", html("Text.")))
    await kind.close()
    assert isinstance(found, Answer)


async def test_a_robots_txt_that_leads_in_circles_allows_everything(site: Site) -> None:
    site.redirect("/robots.txt", "/robots.txt")
    kind = kind_with()
    (found,) = await fetched(kind, site.put("/x", html("Text.")))
    await kind.close()
    assert isinstance(found, Answer)


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_robots_txt_that_cannot_be_had_allows_nothing_for_now(site: Site, status: int) -> None:
    site.put("/robots.txt", "", status=status)
    kind = kind_with()
    url = site.put("/x", html("Text."))
    found = [*await fetched(kind, url, url), *await fetched(kind, url)]
    await kind.close()
    for one in found:
        assert isinstance(one, Failure)
        assert (one.error_class, one.retry_after) == ("transient", robots.RETRIED_SECONDS)
    assert site.times("/x") == []
    assert len(site.times("/robots.txt")) == 1


async def test_it_is_asked_for_again_when_its_time_is_over_and_an_old_copy_is_better_than_none(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(robots, "KEPT_SECONDS", 0.0)
    monkeypatch.setattr(robots, "RETRIED_SECONDS", 0.0)
    site.put("/robots.txt", "User-agent: *\nDisallow: /private\n", content_type="text/plain")
    kind = kind_with()
    open_, private = site.put("/open", html("Text.")), site.put("/private", html("Text."))
    assert isinstance((await fetched(kind, open_))[0], Answer)
    site.put("/robots.txt", "", status=500)
    assert isinstance((await fetched(kind, open_))[0], Answer)
    assert isinstance((await fetched(kind, private))[0], Failure)
    site.put("/robots.txt", "", status=404)
    assert isinstance((await fetched(kind, private))[0], Answer)
    await kind.close()


async def test_a_crawl_delay_is_kept_to_up_to_a_bound(site: Site) -> None:
    site.put("/robots.txt", "User-agent: *\nCrawl-delay: 0.3\n", content_type="text/plain")
    kind = kind_with()
    await fetched(kind, *[site.put("/x", html("Text."))] * 3)
    await kind.close()
    assert min(after - before for before, after in pairwise(site.times("/x"))) > 0.25
    rules = robots.Rules(robots.Protego.parse("User-agent: *\nCrawl-delay: 86400\n"), "me")
    assert rules.delay == robots.LONGEST_DELAY_SECONDS


async def test_a_robots_txt_without_an_end_is_not_read_to_it(site: Site) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        while True:
            await response.write(b"Disallow: /x\n" * 5000)

    site.pages["/robots.txt"] = endless
    kind = kind_with()
    (found,) = await fetched(kind, site.put("/x", html("Text.")))
    await kind.close()
    assert isinstance(found, Failure)
    assert found.error_class == "transient"
