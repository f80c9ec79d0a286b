"""What has arrived, loaded: files of the inbox, and those of the folder that a collection's `files` names."""

import logging
import time
from dataclasses import dataclass, field
from pathlib import Path

from autofill_defs.defined import DefinedCollection
from autofill_defs.inbox import Found, Memory, look_into
from cell_engine.errors import AutofillError
from cell_engine.files import FileError, Glimpse
from cell_engine.files.roots import place
from cell_engine.specs.text import clean_text
from cell_engine.store.collections import Collection
from cell_engine.store.database import Connection

INBOX_ACTOR = "dagster inbox"
"""By whom batches are that nothing is asked for in yet: the run that the sensor requests does."""

SHOWN_REFUSALS = 20

# Seconds and counts within which a tick begins with another file: one tick stays well below its time limit.
_LOADING_TIME = 15.0
_FILES_A_TICK = 5_000
# Of a folder of files, whose whole content is read for its digest.
_BYTES_A_TICK = 2**30
# A look at a folder of many thousand files takes a second: at most this share of the time.
_LOOKING_SHARE = 0.05

_TOO_DEEP_SHOWN = 3


@dataclass(frozen=True)
class Refusal:
    """As texts that can be shown, whatever bytes the file's name is of."""

    name: str
    path: str
    reason: str

    @classmethod
    def of(cls, file: Found, reason: str) -> "Refusal":
        return cls(file.shown, clean_text(str(file.path)), clean_text(reason))


@dataclass
class Arrived:
    """`refused` by this tick; `notes` are for the tick's summary."""

    refused: list[Refusal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def load_arrived(
    log: logging.Logger, connection: Connection, collection: Collection, defined: DefinedCollection, memory: Memory
) -> Arrived:
    """Load as much of what has settled as a tick has time for; the rest stays settled. One bad file stops no other.

    Raises psycopg.OperationalError while the database is away.
    """
    done = Arrived()
    _load_inbox(log, connection, collection, defined, memory, done)
    root = next((one.files.root for one in defined.inputs if one.files is not None), None)
    if root is not None and time.time() >= memory.files_next:
        try:
            _load_files(log, connection, collection, defined, memory, done)
        except AutofillError as error:  # the operator does not allow the place, or a later sync overtook this one
            done.notes.append(f"files in {root}: {error}")
    return done


def _load_inbox(
    log: logging.Logger,
    connection: Connection,
    collection: Collection,
    defined: DefinedCollection,
    memory: Memory,
    done: Arrived,
) -> None:
    # Polars is not for every process that loads the definitions: the runs do without.
    from cell_engine.load import load_together

    defined.inbox.mkdir(parents=True, exist_ok=True)
    look = look_into(defined.inbox)
    if look.too_deep:
        shown = clean_text(", ".join(look.too_deep[:_TOO_DEEP_SHOWN]))
        done.notes.append(f"not looked into, as a folder in a folder: {shown} ({len(look.too_deep):,})")
    deadline = time.monotonic() + _LOADING_TIME
    by_path = {file.path: file for file in memory.inbox.look(look.files)[:_FILES_A_TICK]}
    loaded = load_together(
        connection,
        collection,
        by_path,
        actor=INBOX_ACTOR,
        demand=False,
        name=lambda path: by_path[path].name,
        is_late=lambda: time.monotonic() > deadline,
    )
    for path, one in loaded.loaded.items():
        memory.inbox.load(by_path[path])
        if len(loaded.loaded) <= SHOWN_REFUSALS:
            log.info(f"{by_path[path].shown}: {one.rows:,} rows, {one.rejected_rows:,} lines rejected")
    if len(loaded.loaded) > SHOWN_REFUSALS:
        log.info(f"{len(loaded.loaded):,} files, in {len(loaded.batches):,} batches")
    for path, said in loaded.refused.items():
        file, reason = by_path[path], _beside_its_name(path, said)
        memory.inbox.refuse(file, reason)
        done.refused.append(Refusal.of(file, reason))
        if len(done.refused) <= SHOWN_REFUSALS:
            log.warning(f"{file.shown} was not loaded: {clean_text(reason)}")


def _load_files(
    log: logging.Logger,
    connection: Connection,
    collection: Collection,
    defined: DefinedCollection,
    memory: Memory,
    done: Arrived,
) -> None:
    """A file that has changed changes its row, with its demand; one that is gone leaves it."""
    from cell_engine.load.folder import load_files

    source = next(one.files for one in defined.inputs if one.files is not None and one.files.fact == "path")
    root = place(source.root)
    if not root.is_local:
        done.notes.append(f"files in {source.root} are looked at by their refresh")
        return
    base = Path(root.root, root.below)
    if not base.is_dir():
        done.notes.append(f"files in {base}: there is no such folder yet")
        return
    began = time.monotonic()
    seen = list(root.glance(source.pattern or "**/*"))
    found = [Found(base / one.path, one.path, one.size, one.changed) for one in seen if isinstance(one, Glimpse)]
    odd = [one for one in seen if isinstance(one, FileError)]
    if odd:
        done.notes.append(f"in {base} cannot be loaded: {odd[0]} ({len(odd):,})")
    settled = memory.files.look(found)
    memory.files_next = time.time() + (time.monotonic() - began) / _LOOKING_SHARE
    taken: list[Found] = []
    size = 0
    for file in settled[:_FILES_A_TICK]:
        size += file.size
        if taken and size > _BYTES_A_TICK:
            break
        taken.append(file)
    if not taken:
        return
    by_path = {file.name: file for file in taken}
    loaded = load_files(connection, collection, by_path, actor=INBOX_ACTOR, demand=False)
    for file in taken:
        if file.name in loaded.refused:
            reason = loaded.refused[file.name]
            memory.files.refuse(file, reason)
            done.refused.append(Refusal.of(file, reason))
        elif file.name not in loaded.later:
            memory.files.load(file)
    if loaded.synced is not None:
        synced = loaded.synced
        log.info(f"{base}: files new {synced.inserted:,}, changed {synced.updated + synced.restored:,}")


def _beside_its_name(path: Path, reason: str) -> str:
    """A load's reason, as it reads after the file's name: on one line, without the path that it begins with."""
    said = "; ".join(reason.splitlines())
    if not said.startswith(f"{path}:"):
        return said
    said = said.removeprefix(f"{path}:").lstrip()
    return f"line {said}" if said[:1].isdigit() else said
