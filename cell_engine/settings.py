"""Settings of a process, read from the environment (`AUTOFILL_HOME`, `AUTOFILL_DATABASE_URL`).

Nothing here starts anything: `cell_engine.embedded.database_url` turns settings into a database to talk to.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from cell_engine.errors import BadValueError

PROJECT_NAME = "collection-autofill"
ENV_PREFIX = "AUTOFILL_"


def default_home() -> Path:
    """`.autofill` of the checkout this code runs from, else of the current folder."""
    checkout = Path(__file__).resolve().parents[1]
    try:
        project = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError):
        project = {}
    is_ours = project.get("project", {}).get("name") == PROJECT_NAME
    return (checkout if is_ours else Path.cwd()) / ".autofill"


class Settings(BaseSettings):
    """One process's settings. Empty environment variables count as unset."""

    # Pydantic's errors quote the input by default, and a rejected URL may hold a password.
    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_ignore_empty=True, hide_input_in_errors=True, frozen=True, extra="forbid"
    )

    home: Path = Field(
        default_factory=default_home, description="Folder of everything this installation writes; absolute."
    )
    database_url: SecretStr | None = Field(
        default=None, description="postgresql:// URL of your own server; unset means the embedded one under `home`."
    )

    prices: Path | None = Field(
        default=None, description="YAML with prices of your own, as in cell_engine/data/prices.yaml; they come first."
    )
    ask_above: float = Field(
        default=1.0, ge=0, description="Dollars: `reprocess` and `retry` of more ask first. 0 always asks."
    )

    runs_kept: int = Field(
        default=30, ge=1, description="Days that Dagster's runs, and events that newer ones have replaced, are kept."
    )

    fetch_allow: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Hosts, addresses and networks that kind fetch may talk to though they are private; by commas.",
    )
    fetch_per_host: int = Field(default=2, ge=1, le=1000, description="Requests of kind fetch to one host at a time.")
    fetch_delay: float = Field(
        default=0.5, ge=0, le=3600, description="Seconds between two requests of kind fetch to one host."
    )

    functions: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Python functions that specs may name: modules, packages (acme.*), module:callable; by commas.",
    )
    processes: int | None = Field(
        default=None, ge=1, le=1000, description="Processes of a worker for CPU work, for each kind; None: one per CPU."
    )
    process_memory: int = Field(default=2048, ge=128, description="MiB that each of these processes may take.")
    files: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="Folders, and URLs of object stores, that collections' files are read under; by commas. "
        "The first is where relative roots lie; without one, the folder `files` of `home`.",
    )

    @property
    def file_roots(self) -> tuple[str, ...]:
        """`files`, or its default."""
        return self.files or (str(self.home / "files"),)

    @field_validator("files")
    @classmethod
    def _are_roots(cls, roots: tuple[str, ...]) -> tuple[str, ...]:
        roots = tuple(root.rstrip("/") if "://" in root else str(Path(root).expanduser()) for root in roots)
        if any("://" not in root and (not Path(root).is_absolute() or ".." in Path(root).parts) for root in roots):
            raise ValueError("must be absolute folders, or URLs such as s3://bucket/contracts")
        return roots

    @field_validator("fetch_allow", "files", "functions", mode="before")
    @classmethod
    def _by_commas(cls, value: object) -> object:
        return tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value

    @field_validator("functions")
    @classmethod
    def _are_functions(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            module, colon, path = pattern.partition(":")
            words = [*(module if colon else module.removesuffix(".*")).split("."), *(path.split(".") if colon else [])]
            if not all(map(str.isidentifier, words)):
                raise ValueError(f"{pattern!r} is neither a module, nor a package's acme.*, nor module:callable")
        return patterns

    @field_validator("home")
    @classmethod
    def _absolute(cls, home: Path) -> Path:
        home = home.expanduser().resolve()
        if home.exists() and not home.is_dir():
            raise ValueError("must be a folder, and is a file")
        return home

    @field_validator("database_url")
    @classmethod
    def _is_postgresql_url(cls, url: SecretStr | None) -> SecretStr | None:
        if url is not None and not url.get_secret_value().startswith(("postgresql://", "postgres://")):
            raise ValueError("must be a URL such as postgresql://user:password@host:5432/autofill")
        return url


def get_settings() -> Settings:
    """Settings from the environment as it is now.

    Raises:
        BadValueError: names each variable that holds something unusable, never its value.
    """
    try:
        return Settings()
    except ValidationError as error:
        lines = (f"{ENV_PREFIX}{'_'.join(map(str, e['loc'])).upper()}: {e['msg']}" for e in error.errors())
        raise BadValueError("Bad environment:\n" + "\n".join(lines)) from None
