"""Lines that did not fit: kept with what stands in them, until they are repaired and loaded again."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from cell_engine.specs.text import clean_text
from cell_engine.store.database import Connection, run

REJECTED_KEPT = 1000
"""Lines of a batch or sync."""

REJECTED_BYTES = 4 * 2**20
RAW_CHARACTERS = 10_000
"""Of one line; of a longer one the beginning is kept, and not its fields: half a value would be loaded."""


class Rejected(NamedTuple):
    """A line, or a row by its number. `fields`: column id → text as in a CSV, None where there is no telling. `source`:
    its file, where its batch has others."""

    line: int
    reason: str
    raw: str = ""
    fields: Mapping[int, str] | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class KeptLine:
    """`batch` is the key of its batch, `sync` the number of its sync: it has one of them."""

    id: int
    source: str
    batch: str | None
    sync: int | None
    line: int
    reason: str
    raw: str
    fields: dict[int, str] | None
    repaired_at: datetime | None


def keep_rejected(
    connection: Connection,
    collection_id: int,
    lines: Sequence[Rejected],
    *,
    batch_id: int | None = None,
    sync: int | None = None,
) -> None:
    """Keep the first of them, within bounds, in the caller's transaction."""
    kept: list[Rejected] = []
    size = 0
    for line in islice(lines, REJECTED_KEPT):
        raw = clean_text(line.raw)
        whole = len(raw) <= RAW_CHARACTERS
        cut = Rejected(line.line, line.reason, raw[:RAW_CHARACTERS], line.fields if whole else None, line.source)
        size += len(cut.raw.encode()) + sum(len(text.encode()) for text in (cut.fields or {}).values())
        if size > REJECTED_BYTES:
            break
        kept.append(cut)
    if kept:
        run(
            connection,
            "rejected_insert",
            collection_id=collection_id,
            batch_id=batch_id,
            sync=sync,
            lines=[one.line for one in kept],
            reasons=[one.reason for one in kept],
            raws=[one.raw for one in kept],
            fields=[None if one.fields is None else json.dumps(_clean(one.fields)) for one in kept],
            sources=[one.source for one in kept],
        )


def list_rejected(
    connection: Connection,
    collection_id: int,
    *,
    batch: str | None = None,
    repaired: bool = False,
    after: int = 0,
    limit: int = REJECTED_KEPT,
) -> list[KeptLine]:
    """A page of those with an id above `after`, in the order they came; those repaired only if asked for."""
    found = run(
        connection,
        "rejected_page",
        collection_id=collection_id,
        batch=batch,
        repaired=repaired,
        after=after,
        limit=limit,
    )
    return [
        KeptLine(
            one.id, one.source, one.batch, one.sync, one.line, one.reason, one.raw,
            None if one.fields is None else {int(column): text for column, text in one.fields.items()},
            one.repaired_at,
        )
        for one in found
    ]  # fmt: skip


def open_rejected(connection: Connection, collection_id: int, ids: Collection[int]) -> set[int]:
    """Those of the lines that are not repaired yet."""
    return {one.id for one in run(connection, "rejected_open", collection_id=collection_id, ids=list(ids))}


def mark_repaired(connection: Connection, collection_id: int, ids: Collection[int]) -> int:
    """Returns how many were not before."""
    return run(connection, "rejected_repaired", collection_id=collection_id, ids=list(ids)).rowcount


def _clean(fields: Mapping[int, str]) -> dict[int, str]:
    return {column: clean_text(text) for column, text in fields.items()}
