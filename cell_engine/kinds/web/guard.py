"""Who may be talked to: the world outside, and never what only this machine or its network can reach.

A URL comes from a cell, so from anybody. Names are judged by the addresses they resolve to, in the connector's own
resolver: what is judged is what is connected to, and a name that answers otherwise a moment later gains nothing.
Addresses written out need no resolver, so they are judged with the URL.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from cell_engine.errors import BadValueError
from cell_engine.kinds.web.failing import FetchError

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

MOST_CHARACTERS = 8_000
"""Of a URL: about what servers take."""

# Public by its number, and the metadata service of a cloud's machines all the same.
_METADATA = frozenset({ipaddress.ip_address("168.63.129.16")})
# Kept for special use, which Python learned only in later patches than the oldest that we run on.
_SPECIAL = (ipaddress.ip_network("192.0.0.0/24"), ipaddress.ip_network("3fff::/20"))
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_WHY = (
    "only addresses that the whole internet reaches are fetched; a host or network named in AUTOFILL_FETCH_ALLOW is "
    "let through"
)


class RefusedAddressError(OSError):
    """A name resolves to nothing that may be talked to."""


@dataclass(frozen=True)
class Guard:
    """``hosts`` (lower case) may be anything, ``networks`` may be anybody's: what the operator has let through."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def of(cls, allowed: Iterable[str]) -> Guard:
        """From names, addresses and networks (``10.1.0.0/16``). Raises BadValueError for what is none of them."""
        hosts: set[str] = set()
        networks: list[Network] = []
        for entry in allowed:
            try:
                networks.append(ipaddress.ip_network(entry.strip("[]")))
            except ValueError as error:
                if not entry or any(character in entry for character in "/:*@ ") or entry.replace(".", "").isdigit():
                    raise BadValueError(
                        f"AUTOFILL_FETCH_ALLOW: {entry!r} is neither a host's name, nor an address, nor a network such "
                        f"as 10.1.0.0/16: {error}"
                    ) from None
                hosts.add(entry.lower().rstrip("."))
        return cls(frozenset(hosts), tuple(networks))

    def check(self, text: str) -> URL:
        """``text`` as a URL to fetch, without its fragment.

        Raises FetchError, whose message never holds a URL that carries credentials.
        """
        if len(text) > MOST_CHARACTERS:
            raise FetchError("bad_input", f"The URL has {len(text):,} characters; {MOST_CHARACTERS:,} are the most.")
        try:
            url = URL(text.strip())
            host, port = url.host, url.port
        except ValueError:
            raise FetchError("bad_input", "The cell holds no URL.") from None
        if url.user is not None or url.password is not None or "@" in url.raw_authority:
            raise FetchError(
                "bad_input",
                "The URL carries credentials (user:password@host). They are not sent, for cells and logs are no place "
                "for them: take them out of the URL.",
            )
        if url.scheme not in ("http", "https"):
            raise FetchError(
                "bad_input",
                f"Only http:// and https:// are fetched, not {url.scheme[:20]}:." if url.scheme else
                "The cell holds no absolute URL: it starts with http:// or https://.",
            )  # fmt: skip
        if not host or port is None or port == 0:
            raise FetchError("bad_input", "The URL names no host.")
        address = _literal(host)
        if address is not None and host.lower() not in self.hosts and not self.admits(address):
            raise FetchError("bad_input", f"{host} is {_kind(address)}: {_WHY}.")
        return url.with_fragment(None)

    def admits(self, address: Address) -> bool:
        """Whether ``address`` may be connected to."""
        return any(address in network for network in self.networks) or not _kind(address)

    def admits_host(self, host: str) -> bool:
        """Whether the operator has let ``host`` be anything."""
        return host.lower().rstrip(".") in self.hosts


class GuardedResolver(AbstractResolver):
    """Resolves names to those of their addresses that may be talked to."""

    def __init__(self, guard: Guard, resolver: AbstractResolver | None = None) -> None:
        self._guard = guard
        self._resolver = resolver or ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Raises RefusedAddressError if none is left."""
        found = await self._resolver.resolve(host, port, family)
        if self._guard.admits_host(host):
            return found
        admitted = [one for one in found if self._guard.admits(ipaddress.ip_address(one["host"]))]
        if found and not admitted:
            address = ipaddress.ip_address(found[0]["host"])
            raise RefusedAddressError(f"{host} resolves to {address}, {_kind(address)}: {_WHY}")
        return admitted

    async def close(self) -> None:
        await self._resolver.close()


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host.rstrip("."))
    except ValueError:
        return None


def _kind(address: Address) -> str:
    """What keeps ``address`` from being talked to, in words; empty if nothing does."""
    if isinstance(address, ipaddress.IPv6Address):
        # An IPv4 address in the clothes of an IPv6 one is judged by what it is underneath.
        if address.ipv4_mapped is not None:
            return "an IPv4 address mapped into IPv6"
        inner = [inner for inner in (address.sixtofour, *(address.teredo or ())) if inner is not None]
        if address in _NAT64:
            inner = [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
        if inner:
            return next(filter(None, map(_kind, inner)), "")
        if address.is_site_local:
            return "a private address"
    if address in _METADATA:
        return "a metadata service"
    if address.is_loopback:
        return "a loopback address"
    if address.is_link_local:
        return "a link-local address, as metadata services have"
    if address.is_multicast:
        return "a multicast address"
    if address.is_unspecified or address.is_reserved or any(address in network for network in _SPECIAL):
        return "a reserved address"
    return "" if address.is_global else "a private address"
