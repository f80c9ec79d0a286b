"""Who a fetch talks to: by address, after names are resolved, at each hop, whatever the address is dressed as."""

from __future__ import annotations

import ipaddress
from collections.abc import AsyncIterator

import pytest

from cell_engine.errors import BadValueError
from cell_engine.kinds.base import Answer, Failure, Outcome
from cell_engine.kinds.fetch import FetchKind
from cell_engine.kinds.web.failing import FetchError
from cell_engine.kinds.web.guard import Guard, GuardedResolver, RefusedAddressError
from cell_engine.settings import Settings, get_settings
from tests.kinds.helpers import TEXT, call, column
from tests.kinds.site import Names, Site, html

pytestmark = pytest.mark.anyio

REFUSED = [
    "127.0.0.1", "127.255.0.3", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1",
    "100.100.100.200", "169.254.169.254", "168.63.129.16", "192.0.0.192", "198.18.0.1", "192.0.2.1", "224.0.0.1",
    "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::1", "::", "fe80::1", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:93.184.215.14", "::7f00:1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::", "2002:a00:1::1",
]  # fmt: skip
ADMITTED = ["93.184.215.14", "1.1.1.1", "172.32.0.1", "2606:4700::1111", "64:ff9b::101:101"]


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site() as site:
        site.put("/", html("What only the inside may read."))
        yield site


async def fetched(url: str, *allowed: str, **names: object) -> Outcome:
    kind = FetchKind(Settings(fetch_allow=allowed, fetch_delay=0), Names(**names))
    try:
        return await kind.compute(call(column("fetch", TEXT, {}), url, deadline=5))
    finally:
        await kind.close()


# No test connects to an address that is not loopback, not even when what it tests is broken.
@pytest.mark.parametrize("address", REFUSED)
def test_an_address_written_out_is_refused(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(FetchError, match="AUTOFILL_FETCH_ALLOW") as found:
        Guard().check(f"http://{host}/")
    assert found.value.failure.error_class == "bad_input"


@pytest.mark.parametrize("address", REFUSED)
async def test_a_name_is_judged_by_what_it_resolves_to(address: str) -> None:
    resolver = GuardedResolver(Guard(), Names(evil_test=address))
    with pytest.raises(RefusedAddressError, match=r"evil\.test resolves to"):
        await resolver.resolve("evil.test", 80)


async def test_a_fetch_resolves_by_that_and_says_why_it_does_not_go_there(site: Site) -> None:
    for address in ("127.0.0.1", "::1", "::ffff:127.0.0.1"):
        found = await fetched(f"http://evil.test:{site.port}/", evil_test=address)
        assert isinstance(found, Failure)
        assert found.error_class == "bad_input"
        assert "evil.test resolves to" in found.message
    assert site.asked == []


@pytest.mark.parametrize("address", ADMITTED)
def test_what_the_whole_internet_reaches_is_admitted(address: str) -> None:
    assert Guard().admits(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "url",
    ["http://2130706433/", "http://127.1/", "http://0x7f000001/", "http://0177.0.0.1/", "http://127.0.0.1./",
     "http://localhost/", "http://LOCALHOST:80/", "http://①②⑦.0.0.1/"],
)  # fmt: skip
async def test_other_ways_to_write_loopback_lead_there_neither(site: Site, url: str) -> None:
    kind = FetchKind(Settings(fetch_delay=0))
    found = await kind.compute(call(column("fetch", TEXT, {}), url.rstrip("/").removesuffix(":80") + f":{site.port}/"))
    await kind.close()
    assert isinstance(found, Failure)
    assert found.error_class == "bad_input", found
    assert site.asked == []


async def test_a_name_that_answers_otherwise_a_moment_later_gains_nothing(site: Site) -> None:
    # Judged and connected to is one resolution: whatever the name says the next time is judged again.
    names = Names(x_test=["127.0.0.1", "127.0.0.2"])
    kind = FetchKind(Settings(fetch_allow=("127.0.0.1",), fetch_delay=0), names)
    url = f"http://x.test:{site.port}/"
    assert isinstance(await kind.compute(call(column("fetch", TEXT, {}), url)), Answer)
    # A new connection, which resolves anew.
    assert kind._opened is not None
    await kind._opened.close()
    kind._opened = None
    found = await kind.compute(call(column("fetch", TEXT, {}), url))
    await kind.close()
    assert isinstance(found, Failure)
    assert "x.test resolves to 127.0.0.2" in found.message
    assert names.asked == ["x.test", "x.test"]


async def test_of_several_addresses_only_those_that_may_be_are_connected_to(site: Site) -> None:
    found = await fetched(f"http://x.test:{site.port}/", "127.0.0.1", x_test="127.0.0.2,127.0.0.1")
    assert isinstance(found, Answer)


async def test_a_redirect_to_a_name_inside_is_refused(site: Site) -> None:
    site.redirect("/out", f"http://inside.test:{site.port}/")
    found = await fetched(f"http://x.test:{site.port}/out", "x.test", x_test="127.0.0.1", inside_test="127.0.0.1")
    assert isinstance(found, Failure)
    assert (found.error_class, "inside.test resolves to 127.0.0.1" in found.message) == ("bad_input", True)
    assert site.times("/") == []


async def test_a_robots_txt_that_leads_inside_is_not_followed(site: Site) -> None:
    site.redirect("/robots.txt", f"http://127.0.0.1:{site.port}/")
    found = await fetched(f"http://x.test:{site.port}/out", "x.test", x_test="127.0.0.1")
    assert isinstance(found, Failure)
    assert found.error_class == "bad_input"
    assert site.times("/") == []


@pytest.mark.parametrize("allowed", ["x.test", "X.Test.", "127.0.0.0/8", "127.0.0.1"])
async def test_what_the_operator_names_is_let_through(site: Site, allowed: str) -> None:
    assert isinstance(await fetched(f"http://x.test:{site.port}/", allowed, x_test="127.0.0.1"), Answer)


async def test_a_host_let_through_lets_no_other_through(site: Site) -> None:
    found = await fetched(f"http://y.test:{site.port}/", "x.test", y_test="127.0.0.1")
    assert isinstance(found, Failure)
    assert site.asked == []


async def test_no_such_host_is_that_cells_error() -> None:
    found = await fetched("http://nowhere.test/")
    assert isinstance(found, Failure)
    assert (found.error_class, found.message) == ("bad_input", "There is no host nowhere.test.")


async def test_the_proxy_of_the_environment_is_not_asked(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, site.origin)
    found = await fetched("http://x.test/", x_test="127.0.0.1")
    assert isinstance(found, Failure)
    assert site.asked == []


def test_settings_come_by_commas_and_a_bad_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOFILL_FETCH_ALLOW", "wiki.corp, 10.1.0.0/16,::1")
    assert get_settings().fetch_allow == ("wiki.corp", "10.1.0.0/16", "::1")
    guard = Guard.of(get_settings().fetch_allow)
    assert guard.admits_host("Wiki.Corp")
    assert guard.admits(ipaddress.ip_address("10.1.2.3"))
    assert not guard.admits(ipaddress.ip_address("10.2.2.3"))
    for bad in ("http://wiki.corp", "10.1.0.0/33", "10.1", "a b"):
        with pytest.raises(BadValueError, match="AUTOFILL_FETCH_ALLOW"):
            Guard.of([bad])


def test_a_literal_address_let_through_by_its_network() -> None:
    assert str(Guard.of(["127.0.0.0/8"]).check("http://127.0.0.1:80/x#y")) == "http://127.0.0.1/x"
    with pytest.raises(FetchError):
        Guard.of(["127.0.0.0/8"]).check("http://10.0.0.1/")
