"""The ``transcribe`` kind: what is said in an audio file, by the OpenAI transcription API or one like it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from cell_engine.errors import AutofillError, BadValueError
from cell_engine.files import FileContent
from cell_engine.kinds.audio import audio_format, wav_seconds
from cell_engine.kinds.base import Answer, Call, Failure, Outcome
from cell_engine.kinds.files import FILES_AT_ONCE, FileReader
from cell_engine.kinds.llm_client import Clients, Endpoint
from cell_engine.prices import prices
from cell_engine.shares import ProviderKey
from cell_engine.specs.text import Json, clean_text
from cell_engine.specs.version import Column

MOST_BYTES = 25 * 2**20
"""What the API takes."""

_FORMATS = "mp3, mp4, m4a, wav, webm, ogg or flac"
_SETTINGS = ("model", "language", "prompt", "temperature")


class _Usage(BaseModel):
    type: str | None = None
    seconds: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class _Language(BaseModel):
    code: str | None = None


class Transcription(BaseModel):
    """What is read of a response: of either form, of any server."""

    text: str
    language: str | None = None
    languages: list[_Language] | None = None
    duration: float | None = None
    usage: _Usage | None = None


class TranscribeKind:
    """Sends a file, whole, and gives its text."""

    name = "transcribe"

    def __init__(self, *, base_url: str | None = None, api_key: str | None = None) -> None:
        """As of the kind ``llm``."""
        self._clients = Clients(base_url, api_key)
        self._files = FileReader()
        self._room = asyncio.Semaphore(FILES_AT_ONCE)
        prices()

    def check(self, column: Column) -> None:
        """Raises AutofillError if there is no key, no usable address, or no leave to read the files."""
        trouble = self._clients.trouble(self._clients.endpoint(column.settings))
        if trouble is not None:
            raise AutofillError(f"Column {column.name!r} is transcribed by a model. {trouble.message}")
        self._files.check(column)

    def at_once(self, call: Call) -> None:
        """Never: a model is far away."""

    def provider(self, column: Column) -> ProviderKey:
        """As of the kind ``llm``."""
        return ProviderKey(self._clients.endpoint(column.settings).shown, cast(str, column.settings["model"]))

    async def compute(self, call: Call) -> Outcome:
        """Read the file, see that it is audio, and send it."""
        endpoint = self._clients.endpoint(call.column.settings)
        trouble = self._clients.trouble(endpoint)
        if trouble is not None:
            return trouble
        async with self._room:
            return await self._heard(endpoint, call)

    async def _heard(self, endpoint: Endpoint, call: Call) -> Outcome:
        (path,) = call.inputs.values()
        try:
            async with asyncio.timeout(call.deadline):
                file = await self._files.read(call, path, MOST_BYTES)
                if isinstance(file, Failure):
                    return file
                form = _form(call.column, file)
                if isinstance(form, Failure):
                    return form
                body = await self._clients.send_form(endpoint, "/audio/transcriptions", *form, call.traffic)
        except TimeoutError:
            return Failure("transient", f"The model gave no answer within {call.deadline:g} s.")
        return body if isinstance(body, Failure) else _outcome(call.column, file, body)

    async def close(self) -> None:
        await self._clients.close()
        self._files.close()


def _form(column: Column, file: FileContent) -> tuple[dict[str, Any], tuple[str, bytes]] | Failure:
    """The fields of the request and its file, or why there is none."""
    found = audio_format(file.data)
    if found is None:
        return Failure("bad_input", f"{file.path} is no audio that can be transcribed: {_FORMATS}, by its content.")
    settings = cast(Mapping[str, Any], column.settings)
    fields = {name: settings[name] for name in _SETTINGS if settings.get(name) is not None}
    # Only the models before these tell language and duration, and only these refuse to.
    fields["response_format"] = "json" if str(settings["model"]).startswith("gpt-") else "verbose_json"
    # The server goes by the name: by what the file is, and without what it is called here.
    return fields, (f"audio.{found}", file.data)


def _outcome(column: Column, file: FileContent, body: bytes) -> Outcome:
    model = str(column.settings["model"])
    try:
        heard = Transcription.model_validate_json(body)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        return Failure(
            "transient", f"The model's server sent no transcription: {problem['msg']}", model=model, cost=None
        )
    usage = heard.usage or _Usage()
    seconds = heard.duration or usage.seconds or wav_seconds(file.data)
    language = heard.language or next((one.code for one in heard.languages or [] if one.code), None)
    language = language or cast(str | None, column.settings.get("language"))
    details: dict[str, Json] = {"digest": file.digest}
    if seconds is not None:
        details["seconds"] = round(seconds, 3)
    if language:
        details["language"] = clean_text(language)
    spent = {
        "model": model,
        "tokens_in": usage.input_tokens or 0,
        "tokens_out": usage.output_tokens or 0,
        "cost": _cost(model, usage, seconds),
    }
    text = heard.text.strip()
    value: Json = text if column.type.name == "text" else {"text": text, "language": language, "seconds": seconds}
    try:
        return Answer(column.type.accept(value), details=details, **cast(Any, spent))
    except BadValueError as error:
        return Failure("schema", f"The transcription does not fit: {error}", **cast(Any, spent))


def _cost(model: str, usage: _Usage, seconds: float | None) -> int | None:
    """By the tokens where they are told, else by the minute; None where either has no price."""
    price = prices().of(model)
    if price is None:
        return None
    if price.minute:
        return None if seconds is None else price.cost_of_seconds(seconds)
    if usage.input_tokens is None:
        return None
    return price.cost(usage.input_tokens, 0, usage.output_tokens or 0)
