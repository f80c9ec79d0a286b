"""What is said in a file: sent as what it is, priced by the minute or by tokens, and what goes wrong by its class."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from cell_engine.errors import AutofillError, SpecError
from cell_engine.kinds.audio import audio_format
from cell_engine.kinds.base import Answer, Call, Failure, Traffic
from cell_engine.kinds.transcribe import MOST_BYTES, TranscribeKind
from cell_engine.offline_model import OfflineModel
from cell_engine.shares import ProviderKey
from cell_engine.specs.compile import compile_text
from cell_engine.specs.files import FileSource
from cell_engine.specs.text import Json
from cell_engine.specs.types import ColumnType
from tests.kinds.helpers import INTEGER, TEXT, call, column
from tests.kinds.media import wav

pytestmark = pytest.mark.anyio

SPEC = """
namespace: test
name: calls
columns:
  - {name: file, type: file}
  - {name: said, type: text, kind: transcribe, deps: [file], transcribe: {model: whisper-1, language: en}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settled_files: None) -> Path:
    monkeypatch.setenv("AUTOFILL_FILES", str(tmp_path))
    (tmp_path / "calls").mkdir()
    return tmp_path / "calls"


@pytest.fixture
async def transcribe(model: OfflineModel) -> AsyncIterator[TranscribeKind]:
    kind = TranscribeKind(base_url=model.base_url, api_key="unused")
    yield kind
    await kind.close()


class Server:
    """Answers all with `body`, and keeps what was asked."""

    def __init__(self) -> None:
        self.body: Any = {"text": "x"}
        self.status = 200
        self.fields: dict[str, str] = {}
        self.file_name = ""

    async def answer(self, request: web.Request) -> web.Response:
        form = await request.post()
        self.fields = {name: value for name, value in form.items() if isinstance(value, str)}
        file = form["file"]
        assert isinstance(file, web.FileField)
        self.file_name = file.filename
        text = self.body if isinstance(self.body, str) else json.dumps(self.body)
        headers = {"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "30"}
        headers["x-ratelimit-reset-requests"] = "30s"
        return web.Response(text=text, status=self.status, content_type="application/json", headers=headers)


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, TranscribeKind]]:
    server = Server()
    app = web.Application()
    app.router.add_post("/v1/audio/transcriptions", server.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    kind = TranscribeKind(base_url=f"http://127.0.0.1:{runner.addresses[0][1]}/v1", api_key="sk-secretsecretsecret")
    yield server, kind
    await kind.close()
    await runner.cleanup()


def _call(path: Json, column_type: ColumnType = TEXT, **settings: Json) -> Call:
    asked = column("transcribe", column_type, {"model": "whisper-1", **settings})
    return call(replace(asked, files=FileSource("calls", wait=60)), path)


async def test_a_wav_is_heard(folder: Path, transcribe: TranscribeKind, model: OfflineModel) -> None:
    (folder / "a.wav").write_bytes(wav("Good morning.", seconds=90))
    outcome = await transcribe.compute(_call("a.wav"))
    assert isinstance(outcome, Answer)
    assert (outcome.value, outcome.model, outcome.cost) == ("Good morning.", "whisper-1", 9_000_000)  # $0.006 a minute
    assert outcome.details is not None
    assert outcome.details["seconds"] == 90
    assert outcome.details["language"] == "en"
    whole = await transcribe.compute(_call("a.wav", ColumnType("json"), language="de"))
    assert isinstance(whole, Answer)
    assert whole.value == {"text": "Good morning.", "language": "de", "seconds": 90}
    assert model.stats.billed.total() == 2
    silent = folder / "silent.wav"
    silent.write_bytes(wav(None))
    deaf = await transcribe.compute(_call("silent.wav"))
    assert isinstance(deaf, Failure)
    assert deaf.error_class == "bad_input"
    assert "The offline model hears nothing" in deaf.message


async def test_a_file_that_will_not_do_is_not_sent(
    folder: Path, transcribe: TranscribeKind, model: OfflineModel
) -> None:
    (folder / "page.mp3").write_bytes(b"<html>not found</html>")
    (folder / "large.wav").write_bytes(wav("x") + bytes(MOST_BYTES))
    (folder / "key.wav").symlink_to("/etc/passwd")
    outcomes = {
        path: await transcribe.compute(_call(path))
        for path in ("page.mp3", "large.wav", "key.wav", "../a", "none.wav", 7)
    }
    classes = {path: one.error_class for path, one in outcomes.items() if isinstance(one, Failure)}
    assert classes == {
        "page.mp3": "bad_input",
        "large.wav": "too_long",
        "key.wav": "bad_input",
        "../a": "bad_input",
        "none.wav": "waiting",
        7: "bad_input",
    }
    assert "page.mp3 is no audio that can be transcribed: mp3" in str(outcomes["page.mp3"])
    assert model.stats.arrived == 0


@pytest.mark.parametrize(
    ("settings", "body", "cost", "details"),
    [
        ({}, {"text": "x", "duration": 30.0, "language": "english"}, 3_000_000, (30.0, "english")),
        ({}, {"text": "x"}, 200_000, (2.0, None)),  # the WAV itself says how long it is
        (
            {"model": "gpt-4o-transcribe"},
            {"text": "x", "usage": {"type": "tokens", "input_tokens": 1000, "output_tokens": 100}},
            3_500_000,
            (2.0, None),
        ),
        ({"model": "gpt-4o-transcribe-2025-12-15"}, {"text": "x"}, None, (2.0, None)),
        ({"model": "own"}, {"text": "x", "languages": [{"code": "fr"}]}, None, (2.0, "fr")),
    ],
)
async def test_what_it_took_is_told_by_each_kind_of_model(
    folder: Path,
    server: tuple[Server, TranscribeKind],
    settings: dict[str, Json],
    body: dict[str, Json],
    cost: int | None,
    details: tuple[float, str | None],
) -> None:
    (folder / "a b.mp3").write_bytes(wav("x"))
    server[0].body = body
    outcome = await server[1].compute(_call("a b.mp3", **settings))
    assert isinstance(outcome, Answer)
    assert outcome.cost == cost
    assert outcome.details is not None
    assert (outcome.details["seconds"], outcome.details.get("language")) == details
    assert server[0].fields["response_format"] == (
        "json" if str(settings.get("model", "")).startswith("gpt-") else "verbose_json"
    )
    assert server[0].file_name == "audio.wav"  # by what it is; what it is called is nobody's business


async def test_settings_are_sent_and_limits_heard(folder: Path, server: tuple[Server, TranscribeKind]) -> None:
    (folder / "a.wav").write_bytes(wav("x"))
    asked = _call("a.wav", language="en", prompt="Names: Zoë", temperature=0.5)
    asked.traffic = Traffic()
    await server[1].compute(asked)
    assert server[0].fields == {
        "model": "whisper-1",
        "language": "en",
        "prompt": "Names: Zoë",
        "temperature": "0.5",
        "response_format": "verbose_json",
    }
    assert (asked.traffic.requests, asked.traffic.requests_minute) == (1, 90)
    key = server[1].provider(asked.column)
    assert isinstance(key, ProviderKey)
    assert key.model == "whisper-1"


@pytest.mark.parametrize(
    ("status", "body", "error_class"),
    [
        (429, {"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, "rate_limited"),
        (401, {"error": {"message": "Incorrect API key: sk-secretsecretsecret"}}, "auth"),
        (413, {"error": {"message": "Maximum content size limit exceeded"}}, "too_long"),
        (400, {"error": {"message": "Invalid file format"}}, "bad_input"),
        (500, "<html>", "transient"),
        (200, "<html>", "transient"),
        (200, {"words": []}, "transient"),
    ],
)
async def test_what_goes_wrong_has_its_class(
    folder: Path, server: tuple[Server, TranscribeKind], status: int, body: Any, error_class: str
) -> None:
    (folder / "a.wav").write_bytes(wav("x"))
    server[0].status, server[0].body = status, body
    outcome = await server[1].compute(_call("a.wav"))
    assert isinstance(outcome, Failure)
    assert outcome.error_class == error_class
    assert "secretsecret" not in outcome.message


async def test_a_type_that_a_text_does_not_fit_is_no_type_of_it() -> None:
    with pytest.raises(SpecError, match="kind transcribe makes values of type text or json"):
        compile_text(SPEC.replace("name: said, type: text", "name: said, type: integer"))
    with pytest.raises(SpecError, match="kind transcribe reads a column of type file, and 'file' is of type text"):
        compile_text(SPEC.replace("type: file", "type: text"))
    said = compile_text(SPEC).columns[1]
    assert (said.timeout, said.files is not None) == (300, True)
    # An equal call is one for the same path: where nothing tells that the content is another, nothing is taken from it.
    assert said.cache is None
    followed = SPEC.replace(
        "columns:\n", "files: {columns: {file: path, sha: digest}}\ncolumns:\n  - {name: sha, type: text}\n"
    )
    assert compile_text(followed).columns[2].cache is not None
    kind = TranscribeKind(api_key="")
    with pytest.raises(AutofillError, match=r"Column 'answer' is transcribed by a model\. This process has no key"):
        kind.check(column("transcribe", INTEGER, {"model": "m"}))


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (wav("x"), "wav"),
        (b"ID3\x04\0\0", "mp3"),
        (b"\xff\xfb\x90\x64", "mp3"),
        (b"OggS\0", "ogg"),
        (b"fLaC\0", "flac"),
        (b"\x1a\x45\xdf\xa3", "webm"),
        (b"\0\0\0\x20ftypM4A ", "m4a"),
        (b"RIFF\0\0\0\0AVI ", None),
        (b"xxxx\0\0\0\0WAVE", None),
        (b"%PDF-1.7", None),
        (b"\xff\xd8\xff\xe0", None),
        (b"\xff\xfe<\0h\0", None),
        (b"", None),
    ],
)
def test_a_format_is_known_by_the_content(data: bytes, found: str | None) -> None:
    assert audio_format(data) == found
