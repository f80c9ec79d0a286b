"""What a collection's YAML says of files: where they lie, which are its rows, and which column holds what of them."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from cell_engine.errors import BadValueError
from cell_engine.specs.paths import check_path
from cell_engine.specs.text import Json, shorten

Fact = Literal["path", "size", "modified", "digest", "media_type"]

FACT_TYPES: Mapping[Fact, str] = {
    "path": "file",
    "size": "integer",
    "modified": "datetime",
    "digest": "text",
    "media_type": "text",
}
"""The type of the column that takes each."""

WAIT_SECONDS = 3600.0
"""How long a cell waits for its file, where the column does not say."""


def _check_root(root: str) -> str:
    try:
        if "://" in root or root.startswith("/"):  # whether it is allowed is for each process to say
            scheme, mark, path = root.rpartition("://")
            return scheme + mark + ("" if mark else "/") + check_path(path.strip("/"))
        return check_path(root.rstrip("/"))
    except BadValueError as error:
        raise ValueError(str(error)) from None


def _check_pattern(pattern: str) -> str:
    if not pattern or pattern.startswith("/") or "\\" in pattern or ".." in pattern.split("/"):
        raise ValueError(f"{shorten(pattern)} is no pattern of paths, such as *.pdf or **/*.pdf")
    return pattern


class FilesModel(BaseModel):
    """Where a collection's files lie, and how a folder of them becomes rows: `columns`, by name, what each takes."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    root: Annotated[str, AfterValidator(_check_root)] | None = None
    pattern: Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_check_pattern)] = "**/*"
    columns: dict[str, Fact] = Field(default_factory=dict)


def root_as_files(value: Any) -> Any:
    """`files: contracts` is short for `files: {root: contracts}`."""
    return {"root": value} if isinstance(value, str) else value


@dataclass(frozen=True)
class FileSource:
    """What a column has to do with files, all of them under ``root``.

    An input column takes a ``fact`` of each file that a folder brings; that of the path has the ``pattern``, too. A
    computed column reads a file, for which it waits ``wait`` seconds.
    """

    root: str
    pattern: str | None = None
    fact: Fact | None = None
    wait: float | None = None

    def to_json(self) -> dict[str, Json]:
        return {name: value for name, value in vars(self).items() if value is not None}

    @classmethod
    def from_json(cls, source: Mapping[str, Any] | None) -> "FileSource | None":
        return None if source is None else cls(**source)


@dataclass
class FileColumns:
    """The columns of one collection, by name, as far as files go. `problems`: where, and what is wrong there."""

    files: FilesModel
    root: str
    holds_files: frozenset[str]
    """Those of type `file`, and lists of it."""

    problems: list[tuple[tuple[str, ...], str]] = field(default_factory=list)

    @classmethod
    def of(
        cls, collection: str, files: FilesModel | None, types: Mapping[str, tuple[Any, Any]], computed: Collection[str]
    ) -> "FileColumns":
        """`types`: of each column, its type and that of its items, as written; `computed` are those with a kind."""
        held = frozenset(name for name, written in types.items() if "file" in written)
        found = cls(files or FilesModel(), (files and files.root) or collection, held)
        if files is not None:
            if not held:
                found.problems.append((("files",), "files, and no column of type file that names one"))
            found._check(types, computed)
        return found

    def _check(self, types: Mapping[str, tuple[Any, Any]], computed: Collection[str]) -> None:
        columns = self.files.columns
        for name, fact in columns.items():
            where = ("files", "columns", name)
            if name not in types:
                self.problems.append((where, f"files: there is no column {shorten(name)}"))
            elif name in computed:
                self.problems.append((where, f"files: the column {name!r} is computed: a file fills input columns"))
            elif types[name][0] != FACT_TYPES[fact]:
                message = f"files: the {fact} of a file needs a column of type {FACT_TYPES[fact]}, and {name!r} is "
                self.problems.append((where, f"{message}{types[name][0]}"))
        facts = list(columns.values())
        for fact in dict.fromkeys(facts):
            if facts.count(fact) > 1:
                self.problems.append((("files", "columns"), f"files: two columns take the {fact}"))
        if columns and not {"path", "digest"} <= {*facts}:
            message = "files: columns need one that takes the path and one that takes the digest, by which a file that "
            self.problems.append((("files", "columns"), f"{message}has changed is known"))

    def of_input(self, name: str) -> FileSource | None:
        fact = self.files.columns.get(name)
        if fact is None:
            return None
        return FileSource(self.root, self.files.pattern if fact == "path" else None, fact)

    def of_reader(self, reads: Iterable[str], wait: float | None) -> FileSource | None:
        """Of a computed column that reads these."""
        if self.holds_files.isdisjoint(reads):
            return None
        return FileSource(self.root, wait=WAIT_SECONDS if wait is None else wait)

    def watched(self, reads: Collection[str]) -> list[str]:
        """What a computed column that reads these has to follow, too: the digest, if it reads the path."""
        by_fact = {fact: name for name, fact in self.files.columns.items()}
        digest = by_fact.get("digest")
        return [digest] if digest is not None and digest not in reads and by_fact.get("path") in reads else []
