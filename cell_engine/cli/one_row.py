"""One row at length: each cell with its whole value, and where its answer comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cell_engine.cli.render import one_line, proposed_of

if TYPE_CHECKING:
    from cell_engine.specs.version import Column, Version

_VALUE_CHARACTERS = 4000
_QUOTE_CHARACTERS = 400
_SAYS_WHY = ("error", "blocked", "rejected", "proposed")


def lines(version: Version, columns: Sequence[Column], cells: Mapping[int, Any]) -> Iterator[str]:
    """What is printed of a row; ``cells`` by column id, as `render.rows_of` has them."""
    width = max(len(column.name) for column in columns)
    for column in columns:
        cell = cells.get(column.id)
        value = one_line(None if cell is None else cell.value, _VALUE_CHARACTERS)
        state = _state(cell, waits_for(version, column, cells))
        yield f"{column.name:<{width}}  {' '.join(filter(None, (value, state)))}".rstrip()
        details = getattr(cell, "details", None) or {}
        for line in _sources(version, details):
            yield " " * (width + 2) + line


def waits_for(version: Version, column: Column, cells: Mapping[int, Any]) -> str | None:
    """What a waiting cell waits for, said for people: a review, another cell, its file; None for one that does not."""
    if getattr(cells.get(column.id), "status", None) != "waiting":
        return None
    read = [(version.by_id[dep.column], cells.get(dep.column)) for dep in column.deps if not dep.silent]
    for source, cell in read:
        status = getattr(cell, "status", None)
        if status in ("proposed", "waiting"):
            return f"the review of {source.name}" if status == "proposed" else source.name
    paths = [
        cell.value for source, cell in read if "file" in (source.type.name, source.type.items) and cell is not None
    ]
    files = [path for value in paths for path in (value if isinstance(value, list) else [value]) if path]
    return ", ".join(one_line(path, _QUOTE_CHARACTERS) for path in files) or None


def _state(cell: Any, awaited: str | None) -> str:
    """The status, and why: of a cell that is on its way, or a person's, what became of the last answer is no reason."""
    status = getattr(cell, "status", "overridden" if getattr(cell, "edited", False) else None)
    if status in (None, "ready"):
        return ""
    why = getattr(cell, "error", None) if status in _SAYS_WHY else None
    if status == "waiting":
        why = awaited and f"for {awaited}"
    if status == "not_found":
        why = (cell.details or {}).get("not_found")
    if status == "proposed":
        why = f"{one_line(proposed_of(cell), _VALUE_CHARACTERS)}; {why}"
    return f"[{status}{f': {one_line(why, _VALUE_CHARACTERS)}' if why else ''}]"


def _sources(version: Version, details: Mapping[str, Any]) -> Iterator[str]:
    names = {column.key: column.name for column in version.columns}
    for one in details.get("evidence") or ():
        page = f", page {one['page']}" if "page" in one else ""
        column = names.get(one["column"], one["column"])
        yield f"from {column}{page}: “{one_line(one['quote'], _QUOTE_CHARACTERS)}”"
    for one in details.get("unverified") or ():
        yield f"quoted, and nowhere in the inputs: “{one_line(one['quote'], _QUOTE_CHARACTERS)}”"
    if "url" in details:
        yield f"from {one_line(details['url'], _QUOTE_CHARACTERS)}"
