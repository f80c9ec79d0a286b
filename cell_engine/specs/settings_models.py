"""The settings each kind takes in the YAML, under the kind's own name. Pure, so that specs never import kinds."""

import codecs
import re
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from cell_engine.specs import allowed
from cell_engine.specs.chunks import Chunks, check_chunks
from cell_engine.specs.examples import Examples
from cell_engine.specs.text import shorten


def _check_text(text: str) -> str:
    # Stripped, so that a block's last line break (`|` or `|-`) is no other definition.
    stripped = text.strip()
    if not stripped:
        raise ValueError("must not be blank")
    return stripped


def _check_callable(name: str) -> str:
    module, _, path = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *path.split("."))):
        raise ValueError(f"expected module:callable, such as package.module:function, got {shorten(name)}")
    refusal = allowed.refusal(name)
    if refusal is not None:
        raise ValueError(refusal)
    return name


def _check_charset(name: str) -> str:
    try:
        "".encode(name)
    except (LookupError, ValueError):
        raise ValueError(f"there is no charset {shorten(name)}; one is windows-1252") from None
    return codecs.lookup(name).name


def _check_address(address: str) -> str:
    try:
        parts = urlsplit(address)
        has_host = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        has_host = False
    if not has_host or not address.isascii() or any(character.isspace() for character in address):
        raise ValueError("expected an address such as https://host/v1")  # not repeated: it may hold a password
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError("an address has no user, password or query here: name the variable of the key under 'key'")
    return address.rstrip("/")


def may_hold_key(name: str) -> bool:
    """Whether an environment variable may hold the key of a model's API. Whoever writes a spec also says where the key
    goes: the database's URL, our own or a cloud's secrets shall not go there."""
    return re.fullmatch(r"(?!AUTOFILL_|AWS_)[A-Z][A-Z0-9_]{0,90}(KEY|TOKEN)", name) is not None


def _check_key_name(name: str) -> str:
    # Not repeated: whoever mistakes it for the place of the key has written the key.
    if not re.fullmatch(r"[A-Z][A-Z0-9_]{0,99}", name):
        raise ValueError("expected the name of an environment variable in capitals, never the key itself")
    if not may_hold_key(name):
        raise ValueError("its name ends in KEY or TOKEN, and does not begin with AUTOFILL_ or AWS_")
    return name


Text = Annotated[str, AfterValidator(_check_text)]


class KindSettings(BaseModel):
    """Base of all kinds' settings: strict, nothing unknown. A setting left out and one that is null are the same."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    default_timeout: ClassVar[float] = 30.0
    """Seconds for one call, where the column gives none."""

    value_types: ClassVar[tuple[str, ...]] = ()
    """The types that such a column may have; empty for all."""

    reads_one: ClassVar[str] = ""
    """What the single column is that it reads, where it reads just one."""

    reads_type: ClassVar[str] = ""
    """The type that this column has to be of; empty for any."""

    cached: ClassVar[bool] = False
    """Whether answers are taken from the cache where the column says nothing of it."""

    prompt_fields: ClassVar[tuple[str, ...]] = ()
    """Texts in which `{{column}}` stands for a cell. Compiled to parts, see cell_engine.specs.prompt."""

    shows_files: ClassVar[bool] = False
    """Whether prompts may hold files themselves: the columns of type file that they refer to are then noted, by key, as
    the setting `files`."""

    defaults: ClassVar["type[KindSettings] | None"] = None
    """What a collection may set for all columns of the kind, under the kind's name beside its columns."""

    leaves_answer: ClassVar[tuple[str, ...]] = ()
    """Settings that say how a cell is computed and not what comes of it: a change of them recomputes nothing."""


class _LlmShared(KindSettings):
    """What a collection may say for all its `llm` columns, and each column for itself."""

    base_url: Annotated[str, AfterValidator(_check_address)] | None = None
    key: Annotated[str, AfterValidator(_check_key_name)] | None = None
    system: Text | None = None
    temperature: float | None = Field(None, ge=0, le=2)
    max_tokens: int | None = Field(None, ge=1, le=2**31 - 1)
    seed: int | None = Field(None, ge=-(2**63), le=2**63 - 1)
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    evidence: Literal["required"] | None = None
    not_found: bool | None = None


class LlmDefaults(_LlmShared):
    """The collection's own."""

    model: Text | None = None


class LlmSettings(_LlmShared):
    """A call of a language model: the prompt becomes the user message, examples the turns before it.

    `key` names the variable that holds the key, never the key; it is no part of the definition, the address is.

    A text longer than `chunks` says is cut into parts: `map` is asked of each, and names the column whose text that is;
    `reduce` is asked of what they came to, which stands in that column's place.
    """

    default_timeout = 120.0
    cached = True
    prompt_fields = ("prompt", "map", "reduce")
    leaves_answer = ("key",)
    shows_files = True
    defaults = LlmDefaults

    model: Text
    prompt: Text
    examples: Examples | None = None
    map: Text | None = None
    reduce: Text | None = None
    chunks: Chunks | None = Field(None, validate_default=True)

    @field_validator("chunks")
    @classmethod
    def _go_together(cls, chunks: Chunks | None, info: ValidationInfo) -> Chunks | None:
        check_chunks(chunks is not None, {name: info.data.get(name) for name in cls.prompt_fields})
        return chunks


class FunctionSettings(KindSettings):
    """A call of a Python function, named `module:callable`.

    `inline`: it returns within a millisecond and waits for nothing, so that it is called without a thread (some 60 µs).
    Nothing bounds such a call: a function that does not return holds up its worker. `process`: for work of the CPU; the
    call gets a process, which is ended with its time.

    Not cached by itself: it may have side effects, its code is not in the definition, and it is mostly cheaper.
    """

    leaves_answer = ("inline", "process")

    name: Annotated[str, AfterValidator(_check_callable)]
    inline: bool | None = None
    process: bool | None = None

    @model_validator(mode="after")
    def _one_place(self) -> "FunctionSettings":
        if self.inline and self.process:
            raise ValueError("inline and process exclude each other: a call is made in the worker's loop or elsewhere")
        return self


class FetchSettings(KindSettings):
    """A page over HTTP. What is sent beyond ``max_bytes`` is not read."""

    value_types = ("text", "json")
    reads_one = "its URL"

    max_bytes: int | None = Field(None, ge=1, le=100_000_000)


class ExtractSettings(KindSettings):
    """The text of a file. ``charset`` is that of text files that are not UTF-8; without one it is detected."""

    default_timeout = 60.0
    value_types = ("text", "json")
    reads_one = "its file"
    reads_type = "file"

    max_bytes: int | None = Field(None, ge=1, le=500_000_000)
    charset: Annotated[str, AfterValidator(_check_charset)] | None = None


class TranscribeSettings(KindSettings):
    """What is said in an audio file. `language` and `prompt` help the model; `base_url` and `key` are as of `llm`."""

    default_timeout = 300.0
    cached = True
    value_types = ("text", "json")
    reads_one = "its audio file"
    reads_type = "file"
    leaves_answer = ("key",)

    model: Text
    language: Annotated[str, Field(pattern="^[a-z]{2,3}$")] | None = None
    prompt: Text | None = None
    temperature: float | None = Field(None, ge=0, le=1)
    base_url: Annotated[str, AfterValidator(_check_address)] | None = None
    key: Annotated[str, AfterValidator(_check_key_name)] | None = None


SETTINGS_MODELS: dict[str, type[KindSettings]] = {
    "llm": LlmSettings,
    "function": FunctionSettings,
    "fetch": FetchSettings,
    "extract": ExtractSettings,
    "transcribe": TranscribeSettings,
}
"""By kind. A kind from elsewhere adds its model before specs that use it are compiled."""
