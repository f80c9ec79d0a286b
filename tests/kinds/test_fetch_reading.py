"""Bytes to text: charsets as declared or found, never garbled; and readers that a page may kill, but nothing else."""

from __future__ import annotations

import asyncio
import os
import time

import psutil
import pytest

from cell_engine.kinds import parsers
from cell_engine.kinds.web.charsets import decoded
from cell_engine.kinds.web.failing import FetchError
from cell_engine.kinds.web.reading import Readers

pytestmark = pytest.mark.anyio

GERMAN = "Über den Fluß führt eine größere Brücke; die Straße dorthin heißt „Am Hügel“. " * 3
RUSSIAN = "Библиотека переехала в старую гавань и открывается в девять часов утра. " * 3
JAPANESE = "図書館は古い港に移転し、午前九時に開館します。入口は川の側にあります。" * 3
TAIWANESE = "圖書館已遷至舊港口，上午九點開放。入口在河邊，請從橋上走過來。" * 3
CHINESE = "图书馆已迁至旧港口，上午九点开放。入口在河边，请从桥上走过来。" * 3


@pytest.mark.parametrize(
    ("text", "charset", "declared"),
    [
        (GERMAN, "utf-8", "utf-8"), (GERMAN, "utf-8", "UTF8"), (GERMAN, "utf-8", None),
        (GERMAN, "cp1252", "iso-8859-1"), (GERMAN, "cp1252", "windows-1252"), (GERMAN, "cp1252", "latin1"),
        (RUSSIAN, "cp1251", "windows-1251"), (RUSSIAN, "koi8-r", "KOI8-R"),
        (JAPANESE, "shift_jis", "Shift_JIS"), (JAPANESE, "euc_jp", "euc-jp"), (JAPANESE, "iso2022_jp", "iso-2022-jp"),
        (CHINESE, "gb18030", "gb2312"), (TAIWANESE, "big5", None),
        (GERMAN, "utf-16", None), (GERMAN, "utf-8-sig", None),
        (GERMAN, "utf-16-le", "utf-16le"),
        # declared wrongly, by a server that declares the same for everything
        (GERMAN, "utf-8", "iso-8859-1"), (RUSSIAN, "utf-8", "windows-1251"), (GERMAN, "utf-8", "ascii"),
        # declared as what it cannot be, or as nothing known
        (RUSSIAN, "cp1251", "utf-8"), (RUSSIAN, "cp1251", None), (JAPANESE, "shift_jis", "no-such-charset"),
        (GERMAN, "utf-8", "utf-7"), (GERMAN, "utf-8", "rot13"), (GERMAN, "utf-8", "\x00"),
    ],
)  # fmt: skip
def test_text_is_read_as_it_was_written(text: str, charset: str, declared: str | None) -> None:
    assert decoded(text.encode(charset), declared, is_html=False)[0] == text


@pytest.mark.parametrize(
    "meta",
    ['<meta charset="windows-1251">', "<META http-equiv=Content-Type content='text/html; charset=windows-1251'>"],
)
def test_a_page_may_declare_its_charset_itself(meta: str) -> None:
    page = f"<html><head>{meta}</head><body>{RUSSIAN}"
    assert decoded(page.encode("cp1251"), None, is_html=True) == (page, "cp1251")
    # what the server says goes before it
    page = page.replace("windows-1251", "koi8-r")
    assert decoded(page.encode("cp1251"), "windows-1251", is_html=True)[0] == page


def test_a_page_in_ascii_that_says_it_is_utf_16_is_not() -> None:
    page = '<meta charset="utf-16"><p>Über</p>'
    assert decoded(page.encode(), None, is_html=True)[0] == page


@pytest.mark.parametrize("declared", ["utf-8", None, "shift_jis"])
def test_bytes_that_are_no_text_are_refused_and_not_garbled(declared: str | None) -> None:
    body = bytes(range(256)) * 40 + os.urandom(2000)
    with pytest.raises(FetchError) as found:
        decoded(body, declared, is_html=False)
    assert found.value.failure.error_class == "bad_input"


async def test_a_page_that_takes_too_long_ends_its_reader_and_the_next_is_read_by_another() -> None:
    readers = Readers(most=1, seconds=1.5)
    try:
        assert (await readers.read(b"<p>first</p>", "text/html", None)).text == "first"
        begun = time.monotonic()
        slow = b"<html><body>" + b"<p>word</p>" * 300_000
        with pytest.raises(FetchError, match=r"within 1\.5 s") as found:
            await readers.read(slow, "text/html", None)
        assert found.value.failure.error_class == "bad_input"
        assert time.monotonic() - begun < 10
        assert (await readers.read(b"second", "text/plain", None)).text == "second"
    finally:
        await readers.close()


async def test_a_reader_that_has_died_is_replaced() -> None:
    readers = Readers(most=1)
    try:
        await readers.read(b"first", "text/plain", None)
        (idle,) = readers._parsers._idle
        idle.kill()
        await idle.wait()
        assert (await readers.read(b"second", "text/plain", None)).text == "second"
    finally:
        await readers.close()


async def test_a_page_that_ends_two_readers_is_that_cells_error(monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = parsers.Parsers._start, []

    async def start_and_kill(self: parsers.Parsers) -> asyncio.subprocess.Process:
        process = await start(self)
        process.kill()
        started.append(process)
        return process

    monkeypatch.setattr(parsers.Parsers, "_start", start_and_kill)
    readers = Readers(most=1)
    with pytest.raises(FetchError, match="ended the process") as found:
        await readers.read(b"x", "text/plain", None)
    assert found.value.failure.error_class == "bad_input"
    assert len(started) == 2
    monkeypatch.undo()
    try:
        assert (await readers.read(b"next", "text/plain", None)).text == "next"
    finally:
        await readers.close()


async def test_a_page_may_take_so_much_memory_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsers, "MEMORY_BYTES", 300 * 2**20)
    readers = Readers(most=1)
    try:
        with pytest.raises(FetchError) as found:
            await readers.read("Ж".encode() * 30_000_000, "text/plain", None)
        assert found.value.failure.error_class == "bad_input"
        assert (await readers.read(b"next", "text/plain", None)).text == "next"
    finally:
        await readers.close()


async def test_readers_hold_no_key_of_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-pages")
    readers = Readers(most=1)
    try:
        await readers.read(b"first", "text/plain", None)
        (process,) = readers._parsers._idle
        environment = await asyncio.to_thread(_environment, process.pid)
        assert b"PYTHONPATH" in environment
        assert b"sk-not-for-pages" not in environment
    finally:
        await readers.close()


def _environment(pid: int) -> bytes:
    return "\0".join(f"{name}={value}" for name, value in psutil.Process(pid).environ().items()).encode()


async def test_pages_wait_for_a_reader_and_none_is_left_at_the_end() -> None:
    readers = Readers(most=2)
    found = await asyncio.gather(*(readers.read(f"{n}".encode(), "text/plain", None) for n in range(20)))
    assert [one.text for one in found] == [str(n) for n in range(20)]
    processes = list(readers._parsers._idle)
    assert len(processes) == 2
    await readers.close()
    assert all(process.returncode is not None for process in processes)
