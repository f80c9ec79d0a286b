"""What a collection declares as filling it, looked at again: its source, its feed, the folder of its files."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from cell_engine.errors import BadValueError
from cell_engine.files import FileError
from cell_engine.files.roots import place
from cell_engine.load.errors import LoadError
from cell_engine.load.feed import sync_feed
from cell_engine.load.folder import file_columns, load_folder
from cell_engine.load.query_rows import named_query, sync_query
from cell_engine.load.sync import Synced, sync_file
from cell_engine.log import redact_text
from cell_engine.specs.sources import Source
from cell_engine.specs.version import Version
from cell_engine.store.collections import Collection, load_loading, load_version
from cell_engine.store.database import Connection


@dataclass(frozen=True, slots=True)
class Refreshed:
    """What one of the things that fill a collection has brought. `synced` is None of a feed that had not changed."""

    source: str
    synced: Synced | None


def refresh(connection: Connection, collection: Collection, *, actor: str) -> list[Refreshed]:
    """Bring the rows up to what the collection declares. What that changes is asked for as after any other load.

    Again at once it changes nothing; interrupted, it is done again. Raises BadValueError for a collection that
    declares nothing, LoadError for what cannot be had or is refused.
    """
    loading = load_loading(connection, collection.id)
    done: list[Refreshed] = []
    if loading.source is not None:
        synced = sync_source(connection, collection, loading.source, actor=actor)
        done.append(Refreshed(shown(loading.source), synced))
    if loading.feed is not None:
        of_feed = sync_feed(connection, collection, loading.feed, actor=actor)
        done.append(Refreshed(redact_text(loading.feed), of_feed.synced))
    root = files_root(load_version(connection, collection.id))
    if root is not None:
        done.append(Refreshed(root, load_folder(connection, collection, root, actor=actor).synced))
    if not done:
        raise BadValueError(f"{collection.full_name} declares no source, feed or files with columns: nothing fills it")
    return done


def files_root(version: Version) -> str | None:
    """The whole folder whose files are the collection's rows, written out, if they are."""
    if not any(column.files and column.files.fact for column in version.input_columns):
        return None
    files = file_columns(version, "")["path"].files
    assert files is not None
    found = place(files.root)
    return "/".join(filter(None, (found.root.rstrip("/"), found.below)))


def shown(source: Source) -> str:
    return source.file if source.file is not None else f"query of {source.connection}"


def sync_source(
    connection: Connection,
    collection: Collection,
    source: Source,
    *,
    actor: str,
    any_deletes: bool = False,
    apply: bool = True,
) -> Synced:
    """`sync_rows` of a declared source. A file is copied from its place first: it may be in a store, and its path is
    no more trusted than one in a cell is. Raises LoadError, BadValueError for a place that is not allowed."""
    if source.connection is not None and source.query is not None:
        query = named_query(source.query, source.connection)
        return sync_query(connection, collection, query, actor=actor, any_deletes=any_deletes, apply=apply)
    with TemporaryDirectory(prefix="autofill-source-") as folder:
        copied = Path(folder, source.name)
        try:
            with copied.open("wb") as file:
                place(source.folder).copy(source.name, file)
        except FileError as error:
            raise LoadError(f"{source.file}: {error.why}") from None
        return sync_file(connection, collection, copied, actor=actor, any_deletes=any_deletes, apply=apply)
