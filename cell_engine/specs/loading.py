"""How rows come in, as a collection's YAML declares it: what tells one from another, how many may go at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cell_engine.errors import BadValueError
from cell_engine.specs.explain import suggest
from cell_engine.specs.schedule import Schedule
from cell_engine.specs.sources import Source, source_of
from cell_engine.specs.spec import CollectionModel
from cell_engine.specs.text import Json, shorten
from cell_engine.specs.types import ColumnType, ValueType

DELETE_SHARE = 0.5
"""Of its rows: what a snapshot may delete unless the collection declares another share."""

_KEY_TYPES: tuple[ValueType, ...] = ("text", "url", "file", "integer", "date", "datetime", "choice")


@dataclass(frozen=True)
class SpecLoading:
    """`key` are the columns, by their keys, that tell rows apart: none where the collection declares none. `feed` is
    the address of the feed that fills it, `source` all of its rows; `refresh` says when they are looked at again."""

    key: tuple[str, ...] = ()
    delete_share: float = DELETE_SHARE
    feed: str | None = None
    source: Source | None = None
    refresh: Schedule | None = None

    @property
    def normalized(self) -> dict[str, Json]:
        """Only what is declared: a spec that says nothing of it is the version it was before."""
        declared: dict[str, Json] = {}
        if self.key:
            declared["key"] = list(self.key)
        if self.delete_share != DELETE_SHARE:
            declared["delete_share"] = self.delete_share
        if self.feed is not None:
            declared["feed"] = self.feed
        if self.source is not None:
            declared["source"] = self.source.to_json()
        if self.refresh is not None:
            declared["refresh"] = self.refresh.to_json()
        return declared

    def bind(self, ids: Mapping[str, int]) -> dict[str, Json] | None:
        """As it is stored, with the numeric ids of the columns; None where nothing is declared."""
        return {**self.normalized, "key": [ids[key] for key in self.key]} if self.normalized else None


@dataclass(frozen=True)
class Loading:
    """A version's: `key` are column ids."""

    key: tuple[int, ...] = ()
    delete_share: float = DELETE_SHARE
    feed: str | None = None
    source: Source | None = None
    refresh: Schedule | None = None

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | None) -> Loading:
        stored = stored or {}
        return cls(
            key=tuple(stored.get("key", ())),
            delete_share=float(stored.get("delete_share", DELETE_SHARE)),
            feed=stored.get("feed"),
            source=Source.from_json(stored.get("source")),
            refresh=Schedule.from_json(stored.get("refresh")),
        )


def problems(collection: Mapping[str, Any], columns: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """What is wrong with it, from the YAML's values: (key in the file, message). `columns` by name."""
    key = collection.get("key")
    names = [key] if isinstance(key, str) else key if isinstance(key, list) else []
    if key is None and collection.get("delete_share") is not None:
        yield "delete_share", "delete_share says what a sync may delete, and syncs go by a key: declare key: [column]"
    feed = collection.get("feed")
    if isinstance(feed, str):
        try:
            ColumnType("url").accept(feed)
        except BadValueError as error:
            yield "feed", f"feed: {error}"
        if key is None:
            yield "feed", "feed: its entries are told apart by a key: declare key: [id]"
    yield from _source_problems(collection, key)
    for place, name in enumerate(names):
        column = columns.get(name) if isinstance(name, str) else None
        if column is None:
            yield "key", f"key: there is no column {shorten(name)}{suggest(str(name), columns)}"
        elif name in names[:place]:
            yield "key", f"key: the column {name!r} is given twice"
        elif column.get("kind") is not None:
            yield "key", f"key: column {name!r} is computed: rows are told apart by what is loaded"
        elif column.get("type") not in (*_KEY_TYPES, None):
            yield "key", f"key: column {name!r} is of type {column['type']}; a key is of {', '.join(_KEY_TYPES)}"


def _source_problems(collection: Mapping[str, Any], key: Any) -> Iterator[tuple[str, str]]:
    files = collection.get("files")
    files_fill = isinstance(files, dict) and bool(files.get("columns"))
    if collection.get("source") is not None:
        if key is None:
            yield "source", "source: its rows are told apart by a key: declare key: [column]"
        others = [name for name, fills in (("feed", collection.get("feed")), ("files", files_fill)) if fills]
        if others:
            yield "source", f"source: it is all there is, and rows of {' and '.join(others)} would go: declare one"
    elif collection.get("refresh") is not None and not files_fill and collection.get("feed") is None:
        yield (
            "refresh",
            "refresh: of what? Declare source, feed, or files with columns (a page is a column: mode: cron)",
        )


def finish(collection: CollectionModel, keys: Mapping[str, str]) -> SpecLoading:
    """Of a collection without problems. `keys` by column name."""
    share = DELETE_SHARE if collection.delete_share is None else collection.delete_share
    refresh = collection.refresh
    return SpecLoading(
        key=tuple(keys[name] for name in collection.key or ()),
        delete_share=share,
        feed=collection.feed,
        source=source_of(collection.source),
        refresh=None if refresh is None else Schedule(refresh.cron, refresh.timezone),
    )
