"""YAML read with the line of everything in it, and with what PyYAML lets pass refused.

Scalars follow the YAML 1.2 core schema, not 1.1: `yes`, `on` and dates are text, and so is `0870`. Duplicate keys,
tags and characters that cannot be stored are problems. Values come back as plain dicts, lists and scalars.
"""

import pathlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml

from cell_engine.errors import Problem, SpecError
from cell_engine.specs.text import clean_text, shorten

Path: TypeAlias = tuple[str | int, ...]
"""Where a value stands: the keys and list positions that lead to it."""

_MAX_VALUES = 100_000  # aliases of aliases unfold without end
_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 - none of YAML 1.1's; filled below


for _name, _pattern in (
    ("null", r"~|null|Null|NULL|"),
    ("bool", r"true|True|TRUE|false|False|FALSE"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)"),
    ("float", r"[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"),
):
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern})\Z"), None)


@dataclass(frozen=True)
class Document:
    """A YAML document: its `data`, the problems met while reading it, and the line of each value."""

    file: str
    text: str
    data: Any = None
    problems: list[Problem] = field(default_factory=list)
    _lines: dict[Path, int] = field(default_factory=dict)
    _scalars: dict[Path, yaml.ScalarNode] = field(default_factory=dict)

    def line(self, path: Path) -> int:
        """The line, from 1, of the value at `path`, or of the nearest thing around it that the file has."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)

    def lines_within(self, path: Path, pattern: re.Pattern[str], count: int) -> list[int]:
        """The lines of the `count` matches of `pattern` inside the text at `path`, be it on one line or a block.

        Where quoting hides some of the matches, all are placed at the line of the value.
        """
        node = self._scalars.get(path)
        source = self.text[node.start_mark.index : node.end_mark.index] if node else ""
        first = node.start_mark.line + 1 if node else 1
        lines = [first + source.count("\n", 0, match.start()) for match in pattern.finditer(source)]
        return lines if len(lines) == count else [self.line(path)] * count


def read_file(path: pathlib.Path) -> Document:
    """Reads the file at `path` (UTF-8). Raises SpecError where that cannot be done, or it is not YAML."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise SpecError([Problem(str(path), 1, f"cannot be read: {error.strerror}")]) from None
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        message = f"the byte 0x{raw[error.start]:02x} is not UTF-8: save the file as UTF-8"
        raise SpecError([Problem(str(path), line, message)]) from None
    return read(text, str(path))


def read(text: str, file: str) -> Document:
    """Reads the one document of `text`. Raises SpecError where it is not YAML; lesser problems are in the result."""
    text = text.removeprefix("\ufeff")
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
        reader = _Reader(file, text)
        data = reader.construct(root, ()) if root is not None else None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _not_yaml(file, line, f"the character U+{int(error.character):04X} is not allowed") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = ", ".join(part for part in (error.context, error.problem) if part)
        raise _not_yaml(file, mark.line + 1 if mark else 1, message) from None
    except RecursionError:
        raise _not_yaml(file, 1, "nested too deeply") from None
    return Document(file, text, data, reader.problems, reader.lines, reader.scalars)


def _not_yaml(file: str, line: int, message: str) -> SpecError:
    return SpecError([Problem(file, line, f"not valid YAML: {message}")])


class _Reader:
    """Turns nodes into values, noting where each stood."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text
        self.problems: list[Problem] = []
        self.lines: dict[Path, int] = {}
        self.scalars: dict[Path, yaml.ScalarNode] = {}
        self._values = 0
        self._open: set[int] = set()

    def construct(self, node: yaml.Node, path: Path) -> Any:
        self.lines.setdefault(path, node.start_mark.line + 1)
        self._values += 1
        if self._values > _MAX_VALUES or id(node) in self._open:
            raise yaml.MarkedYAMLError(problem="aliases unfold without end", problem_mark=node.start_mark)
        if isinstance(node, yaml.ScalarNode):
            self.scalars[path] = node
            return self._scalar(node)
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
                return {key: self.construct(value, (*path, key)) for key, value in self._entries(node, path)}
            if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
                return [self.construct(item, (*path, index)) for index, item in enumerate(node.value)]
        finally:
            self._open.remove(id(node))
        self._problem(node, f"the tag {shorten(node.tag)} is not supported")
        return None

    def _entries(self, node: yaml.MappingNode, path: Path) -> Iterator[tuple[str, yaml.Node]]:
        first: dict[str, int] = {}
        for key_node, value in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._problem(key_node, "a key must be a word")
                continue
            key = str(key_node.value)
            line = key_node.start_mark.line + 1
            if key in first:
                self._problem(key_node, f"the key {shorten(key)} is given twice, first in line {first[key]}")
                continue
            first[key] = line
            self.lines[(*path, key)] = line
            yield key, value

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        text = str(node.value)
        try:
            match node.tag.removeprefix(_TAG):
                case "str":
                    if clean_text(text) != text:
                        self._problem(node, "the text has U+0000 or a lone surrogate, which cannot be stored")
                    return text
                case "null":
                    return None
                case "bool":
                    return text.lower() == "true"
                case "int":
                    return int(text)
                case "float":
                    return float(text)
        except ValueError:
            self._problem(node, f"{shorten(text)} is not {shorten(node.tag.removeprefix(_TAG))}")
            return None
        self._problem(node, f"the tag {shorten(node.tag)} is not supported")
        return None

    def _problem(self, node: yaml.Node, message: str) -> None:
        self.problems.append(Problem(self.file, node.start_mark.line + 1, message))
