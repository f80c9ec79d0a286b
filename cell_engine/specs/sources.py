"""Where all of a collection's rows come from: a table in a file, or a query of another database. Synced by key."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from cell_engine.errors import BadValueError
from cell_engine.specs.paths import check_path
from cell_engine.specs.text import Json

_SCHEME = re.compile(r"[a-z][a-z0-9]*://")


@dataclass(frozen=True)
class Source:
    """A `file`, by a path in a place of AUTOFILL_FILES, or a `query` of the database that AUTOFILL_SOURCE_<CONNECTION>
    is."""

    file: str | None = None
    connection: str | None = None
    query: str | None = None

    @property
    def folder(self) -> str:
        """The folder of the file, "" for the first place itself."""
        folder, mark, _ = (self.file or "").rpartition("/")
        return folder or mark

    @property
    def name(self) -> str:
        """The file's name in its folder."""
        return (self.file or "").rpartition("/")[2]

    def to_json(self) -> dict[str, Json]:
        return {name: value for name, value in vars(self).items() if value is not None}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | None) -> "Source | None":
        return None if stored is None else cls(**stored)


def _check_file(file: str) -> str:
    """A path, under a folder or URL that is written out or not. Raises ValueError."""
    scheme = _SCHEME.match(file)
    start = scheme.end() if scheme else 1 if file.startswith("/") else 0
    try:
        check_path(file[start:])
    except BadValueError as error:
        raise ValueError(str(error)) from None
    return file


def _check_connection(name: str) -> str:
    # Not quoted: an address may have been given, with its password.
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,62}", name):
        raise ValueError("it is a name of letters, digits and underscores: AUTOFILL_SOURCE_<NAME> is the address")
    return name


class SourceModel(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    file: Annotated[str, AfterValidator(_check_file)] | None = None
    connection: Annotated[str, AfterValidator(_check_connection)] | None = None
    query: Annotated[str, Field(min_length=1, max_length=1_000_000)] | None = None

    @model_validator(mode="after")
    def _names_one(self) -> "SourceModel":
        given = {name for name in ("file", "connection", "query") if getattr(self, name) is not None}
        if given not in ({"file"}, {"connection", "query"}):
            raise ValueError("a source is a file, or a connection with its query")
        return self


def path_as_source(value: Any) -> Any:
    """`source: exports/shop.csv` is short for `source: {file: exports/shop.csv}`."""
    return {"file": value} if isinstance(value, str) else value


def source_of(model: SourceModel | None) -> Source | None:
    return None if model is None else Source(model.file, model.connection, model.query)
