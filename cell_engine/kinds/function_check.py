"""What is wrong with a function column before any call: of a spec that is to be applied, and of a version in use."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cell_engine.callables import MissingError, find
from cell_engine.errors import Problem
from cell_engine.kinds.annotations import mismatches
from cell_engine.specs import allowed, yaml_lines
from cell_engine.specs.compiled import CompiledSpec
from cell_engine.specs.types import ColumnType
from cell_engine.specs.version import Column, Version

Read = Mapping[str, tuple[ColumnType, bool]]
"""By the name of the argument: the type of the column that it gives, and whether that may be absent."""


def spec_problems(spec: CompiledSpec, file: Path) -> list[Problem]:
    """Mistakes of the functions that this process can import, with the lines that name them; `file` made `spec`."""
    types = {column.key: column.type for column in spec.columns}
    document = yaml_lines.read(file.read_text(encoding="utf-8"), str(file))
    found = []
    for index, column in enumerate(spec.columns):
        if column.kind == "function":
            read = {dep.column: (types[dep.column], dep.optional) for dep in column.deps if not dep.silent}
            line = document.line(("columns", index, "function", "name"))
            for trouble in _troubles(str(column.settings["name"]), column.type, read):
                found.append(Problem(str(file), line, f"column {column.name!r}: function: {trouble}"))
    return found


def version_troubles(version: Version, column: Column) -> list[str]:
    """Mistakes of the function of one column in use, if this process can import it."""
    read = {
        version.by_id[dep.column].key: (version.by_id[dep.column].type, dep.optional)
        for dep in column.deps
        if dep.column in version.by_id and not dep.silent
    }
    return _troubles(str(column.settings["name"]), column.type, read)


def _troubles(name: str, filled: ColumnType, read: Read) -> list[str]:
    if allowed.refusal(name) is not None:
        return []  # told by who compiled, and by the kind
    try:
        function = find(name)
    except MissingError:
        return []  # the workers may have it, and say so if not
    if not allowed.is_allowed_at(name, function.module):
        return [
            f"{name} is defined in {function.module}, which is not allowed: add {name} itself to AUTOFILL_FUNCTIONS"
        ]
    return [f"{name}: {one}" for one in mismatches(function.call, filled, read)]
