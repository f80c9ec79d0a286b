"""One GET, without following where it leads: its head, and its body up to a size that counts what it unpacks to."""

from __future__ import annotations

import socket
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from cell_engine.kinds.web.failing import FetchError
from cell_engine.kinds.web.guard import Guard, GuardedResolver, RefusedAddressError
from cell_engine.specs.text import shorten

CONNECT_SECONDS = 10.0
_CHUNK = 65_536
_READABLE = frozenset({200, 203})
_NO_SUCH_NAME = frozenset({socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)})


@dataclass(frozen=True)
class Reply:
    """A response. ``body`` is unpacked; it is empty unless the status is one that comes with a page."""

    url: URL
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def location(self) -> str | None:
        """Where a redirect leads; None for what is none."""
        return self.headers.get("Location") if self.status in (301, 302, 303, 307, 308) else None


def open_session(guard: Guard, resolver: AbstractResolver | None = None) -> aiohttp.ClientSession:
    """A session that talks to nobody whom ``guard`` refuses, keeps no cookies and uses no proxy.

    The environment's proxy would resolve the names, and could be led anywhere inside: nobody would have checked.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(resolver=GuardedResolver(guard, resolver), family=socket.AF_UNSPEC, limit=0),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        auto_decompress=False,  # here, where it is counted
        trust_env=False,
    )


async def get(
    session: aiohttp.ClientSession, url: URL, headers: Mapping[str, str], most: int, *, readable: frozenset[str] | None
) -> Reply:
    """GET ``url``; ``most`` are the bytes of a body, as sent and unpacked.

    ``readable``: with a set, a page of another content type than those in it is not read. Raises FetchError: for what
    breaks off ``transient``, for what is too large ``too_long``, for what would be the same again ``bad_input``.
    """
    host = url.host or ""
    try:
        async with session.get(url, headers=headers, allow_redirects=False) as response:
            body = b""
            if response.status in _READABLE:
                if readable is not None:
                    _check_type(response.headers.get("Content-Type"), readable)
                body = await _read(response, most)
            return Reply(url, response.status, response.headers.copy(), body)
    except aiohttp.ClientConnectorDNSError as error:
        raise _unresolved(host, error) from None
    except (aiohttp.ClientConnectorCertificateError, aiohttp.ServerFingerprintMismatch) as error:
        raise FetchError("bad_input", f"{host} has no certificate to trust (TLS): {_words(error)}") from None
    except aiohttp.ClientSSLError as error:
        raise FetchError("transient", f"{host} and we found no TLS to talk: {_words(error)}") from None
    except aiohttp.InvalidURL:
        raise FetchError("bad_input", "The URL cannot be asked for as it is written.") from None
    except aiohttp.ConnectionTimeoutError:
        raise FetchError("transient", f"{host} cannot be reached: no connection in {CONNECT_SECONDS:g} s.") from None
    except aiohttp.ClientConnectorError as error:
        raise FetchError("transient", f"{host} cannot be reached: {_words(error)}") from None
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise FetchError("transient", f"{host} broke off: {type(error).__name__}: {_words(error)}") from None


async def _read(response: aiohttp.ClientResponse, most: int) -> bytes:
    announced = response.content_length
    if announced is not None and announced > most:
        raise too_long(announced, most)
    unpacker = _Unpacker(response.headers.get("Content-Encoding", ""), most)
    async for chunk in response.content.iter_chunked(_CHUNK):
        unpacker.feed(chunk)
    return unpacker.finish()


def too_long(size: int, most: int, *, at_least: bool = False) -> FetchError:
    than = "more than " if at_least else ""
    return FetchError(
        "too_long",
        f"The page has {than}{size:,} bytes, and {most:,} are read at most. Raise the column's fetch.max_bytes if it "
        "is worth that.",
    )


class _Unpacker:
    """Unpacks a body as it comes, and no byte more than ``most``: a small body may be made to unpack to any size."""

    def __init__(self, encoding: str, most: int) -> None:
        self._encoding = encoding.strip().lower()
        self._most = most
        self._sent = 0
        self._parts: list[bytes] = []
        self._size = 0
        self._inflater: zlib._Decompress | None = None
        self._pending = b""
        if self._encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise FetchError("bad_input", f"The page is packed in a way that was not asked for: {shorten(encoding)}.")

    def feed(self, data: bytes) -> None:
        self._sent += len(data)
        if self._sent > self._most:
            raise too_long(self._most, self._most, at_least=True)
        if self._encoding in ("", "identity"):
            self._keep(data)
            return
        data = self._pending + data
        self._pending = b""
        while data:
            if self._inflater is None:
                if len(data) < 2:
                    self._pending = data
                    return
                self._inflater = zlib.decompressobj(self._window(data))
            try:
                self._keep(self._inflater.decompress(data, self._most - self._size + 1))
            except zlib.error as error:
                raise FetchError("transient", f"The page's packed body is broken: {error}") from None
            data = self._inflater.unused_data
            if self._inflater.eof:
                self._inflater = None
                if self._encoding == "deflate" or not data.startswith(b"\x1f"):
                    return  # padding, which others overlook as well

    def finish(self) -> bytes:
        if self._inflater is not None or self._pending:
            raise FetchError("transient", "The page broke off in the middle of its packed body.")
        return b"".join(self._parts)

    def _window(self, data: bytes) -> int:
        if self._encoding != "deflate":
            return 16 + zlib.MAX_WBITS
        # By the standard it has zlib's two bytes in front; some servers leave them out.
        has_head = data[0] & 0x0F == 8 and (data[0] << 8 | data[1]) % 31 == 0
        return zlib.MAX_WBITS if has_head else -zlib.MAX_WBITS

    def _keep(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._most:
            raise too_long(self._most, self._most, at_least=True)
        self._parts.append(data)


def _check_type(header: str | None, known: frozenset[str]) -> None:
    content_type = media_type(header)
    if content_type not in known:
        named = shorten(content_type) if content_type else "none that is declared"
        raise FetchError(
            "bad_input", f"The content type is {named}; text is read of HTML, plain text and Markdown (kind fetch)."
        )


def media_type(header: str | None) -> str:
    """``text/html`` of ``Text/HTML; charset=utf-8``."""
    return (header or "").partition(";")[0].strip().lower()


def _unresolved(host: str, error: aiohttp.ClientConnectorDNSError) -> FetchError:
    cause = error.os_error
    if isinstance(cause, RefusedAddressError):
        return FetchError("bad_input", f"{cause}.")
    if isinstance(cause, socket.gaierror) and cause.errno in _NO_SUCH_NAME:
        return FetchError("bad_input", f"There is no host {host}.")
    return FetchError("transient", f"{host} cannot be resolved just now: {_words(cause)}")


def _words(error: BaseException) -> str:
    told = getattr(error, "certificate_error", None) or getattr(error, "strerror", None) or error
    return str(told) or "no reason given"
