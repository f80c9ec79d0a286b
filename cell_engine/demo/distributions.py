"""The demo's data: the Python distributions installed in this environment, one row each, straight from the metadata."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import Distribution, PackageMetadata, distributions
from pathlib import Path

from cell_engine.errors import BadValueError
from cell_engine.specs.types import ColumnType

FILE_NAME = "installed-distributions.parquet"

_URL = ColumnType("url")
_SEPARATORS = re.compile(r"[-_.]+")
# What older build tools write where nothing was given.
_NOTHING = ("", "UNKNOWN", "None")
_HOME_LABELS = ("homepage", "home", "repository", "source", "sourcecode", "github", "documentation")


@dataclass(frozen=True)
class Installed:
    """One distribution; None is what its metadata does not say. `licence` is an expression, a name or a whole text."""

    name: str
    version: str
    licence: str | None
    classifiers: list[str] | None
    home_page: str | None
    readme: str | None


def installed() -> list[Installed]:
    """Sorted by name, each once: where two versions lie on the path, the one that would be imported."""
    found: dict[str, Installed] = {}
    for one in distributions():
        name = one.metadata["Name"]
        if name:
            found.setdefault(_SEPARATORS.sub("-", name).lower(), _read(one, name))
    return [found[name] for name in sorted(found)]


def write_file(rows: list[Installed], inbox: Path, scratch: Path) -> Path:
    """Put the rows into the inbox as a Parquet file, whole or not at all; returns its path.

    It is written in `scratch`, a folder on the same disk, so that nobody sees half of it. A file with the same content
    is left alone.
    """
    import polars as pl

    inbox.mkdir(parents=True, exist_ok=True)
    file = inbox / FILE_NAME
    unfinished = scratch / f"{FILE_NAME}.{os.getpid()}"
    texts = dict.fromkeys(("name", "version", "licence", "home_page", "readme"), pl.String)
    schema = {name: texts.get(name, pl.List(pl.String)) for name in Installed.__dataclass_fields__}
    pl.DataFrame([asdict(row) for row in rows], schema=schema).write_parquet(unfinished)
    if file.exists() and file.read_bytes() == unfinished.read_bytes():
        unfinished.unlink()
    else:
        unfinished.replace(file)
    return file


def _read(one: Distribution, name: str) -> Installed:
    metadata = one.metadata
    classifiers = [text.strip() for text in metadata.get_all("Classifier") or ()]
    return Installed(
        name=name,
        version=one.version,
        licence=_said(metadata, "License-Expression") or _said(metadata, "License"),
        classifiers=classifiers or None,
        home_page=next(_addresses(one), None),
        readme=_said(metadata, "Description"),
    )


def _said(metadata: PackageMetadata, field: str) -> str | None:
    """The field as it stands there, or None if it is not there or says nothing."""
    text = metadata[field] if field in metadata else None  # noqa: SIM401 - not every PackageMetadata has get()
    return None if text is None or text.strip() in _NOTHING else text


def _addresses(one: Distribution) -> Iterator[str]:
    """Its usable addresses, the best first."""
    labelled: dict[str, str] = {}
    for entry in one.metadata.get_all("Project-URL") or ():
        label, _, address = entry.partition(",")
        labelled.setdefault(re.sub(r"\W", "", label).lower(), address.strip())
    candidates = [_said(one.metadata, "Home-page"), *map(labelled.get, _HOME_LABELS), *labelled.values()]
    for address in filter(None, candidates):
        try:
            yield str(_URL.accept(address))
        except BadValueError:
            continue
