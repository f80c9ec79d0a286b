"""A folder of files into rows, one a file: synced by path, so that the same folder again changes only what has changed.

A file's content is known by its digest. One that has changed changes its row, which makes outdated what was made of it;
one that is gone leaves its row. What cannot be read is rejected by name, beside the others, which go in.
"""

import mimetypes
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cell_engine.errors import BadValueError
from cell_engine.files import FileError, FileFacts, Growing, Missing, Place, Unreachable
from cell_engine.files.roots import place
from cell_engine.load.errors import LoadError
from cell_engine.load.rows import Record, record, rejection
from cell_engine.load.sync import Synced, sync_rows
from cell_engine.settings import get_settings
from cell_engine.specs.files import Fact
from cell_engine.specs.paths import path_fault
from cell_engine.specs.text import Json, clean_text
from cell_engine.specs.version import Column, Version
from cell_engine.store.collections import Collection, load_version
from cell_engine.store.database import Connection
from cell_engine.store.files import same_content, wake_waiting

_URL = re.compile(r"([a-z][a-z0-9]*):/+(?=[^/])")


@dataclass(frozen=True, slots=True)
class LoadedFolder:
    """What `load_folder` has done. `synced.rejected` are files that could not be read, by name; `same` are names of
    one content, of all rows of the collection; `woken` are rows that had waited for what has come."""

    synced: Synced
    same: list[tuple[str, ...]]
    woken: int


@dataclass(slots=True)
class LoadedFiles:
    """What `load_files` has done; `synced` is None where nothing could be read. By path, `refused`: why files cannot be
    loaded; `later`: they are still written, or cannot be reached."""

    synced: Synced | None = None
    refused: dict[str, str] = field(default_factory=dict)
    later: dict[str, str] = field(default_factory=dict)


def load_files(
    connection: Connection, collection: Collection, paths: Iterable[str], *, actor: str, demand: bool = True
) -> LoadedFiles:
    """Load those files of the collection's folder, as `load_folder` does; others are not looked at.

    Without `demand` nothing is asked for in the rows that are new. Raises as `sync_rows`.
    """
    version = load_version(connection, collection.id)
    columns = file_columns(version, collection.full_name)
    path, digest = columns["path"], columns["digest"]
    assert path.files is not None
    source = place(path.files.root)
    done = LoadedFiles()
    read: list[FileFacts] = []
    for one in paths:
        try:
            read.append(source.facts(one))
        except (Growing, Missing, Unreachable) as error:
            done.later[one] = str(error)
        except FileError as error:
            done.refused[one] = str(error)
    if read:
        done.synced = sync_rows(
            connection,
            collection,
            lambda version: _rows(read, file_columns(version, collection.full_name)),
            key_columns=[path.id],
            key="files",
            source=clean_text(path.files.root),
            actor=actor,
            deletes=False,
            demand=demand,
        )
        done.refused |= {read[line - 1].path: reason for line, reason in done.synced.rejected}
        wake_waiting(connection, collection.id, path.id, digest.id)
    return done


def _rows(files: Iterable[FileFacts], columns: dict[Fact, Column]) -> Iterator[Record]:
    return (_row(number, facts, columns) for number, facts in enumerate(files, 1))


def load_folder(
    connection: Connection,
    collection: Collection,
    folder: str,
    *,
    actor: str,
    apply: bool = True,
    on_files: Callable[[int], None] | None = None,
) -> LoadedFolder:
    """Load the files of `folder`, the collection's root or a folder in it, that match its pattern.

    Files are read one after the other for their digest; what is kept of them in memory is bounded. `on_files` is called
    now and then with how many have been looked at. Without `apply` it is only said what would change. Interrupted, it
    is done by loading the folder again. Raises BadValueError for a collection that says nothing of files, and a folder
    elsewhere; LoadError where none of the files can be read.
    """
    version = load_version(connection, collection.id)
    facts = file_columns(version, collection.full_name)
    path, digest = facts["path"], facts["digest"]
    assert path.files is not None
    source = place(path.files.root)
    below = _below(source, path.files.root, folder)
    synced = sync_rows(
        connection,
        collection,
        lambda version: folder_rows(source, below, version, collection.full_name),
        key_columns=[path.id],
        key="files",
        source=clean_text(folder),
        actor=actor,
        deletes=False,
        apply=apply,
        on_rows=on_files,
    )
    woken = wake_waiting(connection, collection.id, path.id, digest.id) if apply else 0
    return LoadedFolder(synced, same_content(connection, collection.id, path.id, digest.id), woken)


def file_columns(version: Version, collection: str) -> dict[Fact, Column]:
    """The input columns that a file fills, by what they take. Raises BadValueError where there are none."""
    found = {column.files.fact: column for column in version.input_columns if column.files and column.files.fact}
    if "path" not in found:
        raise BadValueError(
            f"{collection} does not say how files become its rows: write files: {{root: …, columns: {{…: path, "
            "…: digest}} into its YAML, and apply it"
        )
    return found


def folder_rows(source: Place, below: str, version: Version, collection: str) -> Iterator[Record]:
    """A record for each file; its line is the file's number, in order of the paths."""
    columns = file_columns(version, collection)
    pattern = columns["path"].files.pattern if columns["path"].files else None
    for number, found in enumerate(source.walk(pattern or "**/*", below), 1):
        if isinstance(found, FileError):
            yield rejection(number, clean_text(str(found)))
            continue
        try:
            facts = source.facts(found)
        except FileError as error:
            yield rejection(number, clean_text(str(error)))
            continue
        yield _row(number, facts, columns)


def _row(number: int, facts: FileFacts, columns: dict[Fact, Column]) -> Record:
    known: dict[Fact, Json] = {
        "path": facts.path,
        "size": facts.size,
        "modified": facts.modified.isoformat(),
        "digest": facts.digest,
        "media_type": mimetypes.guess_type(facts.name)[0],
    }
    row = {column.id: known[fact] for fact, column in columns.items() if known[fact] is not None}
    return record(number, row, [], [column.id for fact, column in columns.items() if known[fact] is None])


def _below(source: Place, root: str, folder: str) -> str:
    """What of the place `folder` is, "" for all of it; a URL, or a folder of this machine."""
    folder = _URL.sub(r"\1://", folder, count=1).rstrip("/") or "/"
    base = "/".join(filter(None, (source.root.rstrip("/"), source.below)))
    if "://" not in folder and "://" not in base:
        folder, base = os.path.realpath(folder), os.path.realpath(base)
    if folder == base:
        return ""
    below = folder.removeprefix(base.rstrip("/") + "/")
    if below == folder or path_fault(below):
        allowed = ", ".join(get_settings().file_roots)
        raise LoadError(
            f"{folder}: it does not lie in {base}, where the collection's files are (root {root!r}). Put it there, or "
            f"give the collection another root: AUTOFILL_FILES allows {allowed}"
        )
    return below


def is_folder(path: str) -> bool:
    """Whether what is to be loaded is a folder, or the URL of one, rather than a table."""
    return bool(_URL.match(path)) or Path(path).is_dir()
