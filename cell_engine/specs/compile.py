"""A collection's YAML to a CompiledSpec, or to every problem in it at once, each with its file and line.

Three passes, none of which stops at a mistake: each value on its own (cell_engine.specs.spec), each column against
the names in the file (dependencies, prompts), then the DAG.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from cell_engine.errors import Problem, SpecError
from cell_engine.specs import examples, loading, plugins, prompt, yaml_lines
from cell_engine.specs.compiled import CompiledSpec, SpecColumn, SpecDependency
from cell_engine.specs.explain import explain, suggest
from cell_engine.specs.files import FileColumns, FilesModel
from cell_engine.specs.review import ReviewModel, RuleModel, review_of
from cell_engine.specs.settings_models import SETTINGS_MODELS, KindSettings
from cell_engine.specs.spec import CacheModel, CollectionModel, ColumnModel, DependencyModel, misfits
from cell_engine.specs.text import shorten
from cell_engine.specs.types import ColumnType, ValueType
from cell_engine.specs.version import Cache, usual_not_found

__all__ = ["CompiledSpec", "SpecColumn", "SpecDependency", "compile_file", "compile_text"]

_Model = TypeVar("_Model", bound=BaseModel)

_COMPUTED_ONLY = ("deps", "mode", "timeout", "attempts", "cache", "wait", "review")
_DEFAULT_ATTEMPTS = 4
_NESTED: dict[str, type[BaseModel]] = {
    "deps": DependencyModel,
    "cache": CacheModel,
    "files": FilesModel,
    "review": ReviewModel,
    "review.when": RuleModel,
}


def compile_file(path: Path | str) -> CompiledSpec:
    """Compiles the YAML file at `path` (UTF-8). Raises SpecError with all problems, the unreadable file's too."""
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise SpecError([Problem(str(path), 1, f"cannot be read: {error.strerror}")]) from None
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        message = f"the byte 0x{raw[error.start]:02x} is not UTF-8: save the file as UTF-8"
        raise SpecError([Problem(str(path), line, message)]) from None
    return compile_text(text, str(path))


def compile_text(text: str, file: str = "<text>") -> CompiledSpec:
    """Compiles YAML text; `file` is what problems call it. Raises SpecError with all problems."""
    plugins.load()
    return _Compiler(yaml_lines.read(text, file)).compile()


@dataclass
class _Draft:
    """A column on its way: as written, and what of it proved valid so far."""

    path: yaml_lines.Path
    raw: dict[str, Any]
    model: ColumnModel | None = None
    settings: KindSettings | None = None
    deps: dict[str, DependencyModel] = field(default_factory=dict)
    """By the name of each column read."""

    @property
    def name(self) -> str | None:
        name = self.raw.get("name")
        return name if isinstance(name, str) else None

    @property
    def subject(self) -> str:
        """How problems in this column begin."""
        return f"column {shorten(self.name)}: " if self.name else "column: "

    @property
    def key(self) -> str | None:
        key = self.raw.get("id")
        return key if isinstance(key, str) else self.name

    @property
    def kind(self) -> str | None:
        """The kind, if it is a known one."""
        kind = self.raw.get("kind")
        return kind if isinstance(kind, str) and kind in SETTINGS_MODELS else None


class _Compiler:
    def __init__(self, document: yaml_lines.Document) -> None:
        self.document = document
        self.problems = list(document.problems)
        self.drafts: list[_Draft] = []
        self.by_name: dict[str, _Draft] = {}
        self.defaults: dict[str, dict[str, Any]] = {}  # by kind, what the collection says for all its columns

    def compile(self) -> CompiledSpec:
        collection = self._collection()
        for draft in self.drafts:
            self._values(draft)
        self._names()
        for draft in self.drafts:
            self._references(draft)
            self._examples(draft)
        self._cycles()
        files = self._files(collection)
        self._loading()
        if self.problems or collection is None or files is None:
            raise SpecError(sorted(set(self.problems)))
        keys = {name: str(draft.key) for name, draft in self.by_name.items()}
        return CompiledSpec(
            namespace=collection.namespace,
            name=collection.name,
            cap=collection.cap,
            columns=tuple(_finish(draft, keys, files) for draft in self.drafts),
            loading=loading.finish(collection, keys),
        )

    # Each value on its own.

    def _collection(self) -> CollectionModel | None:
        data = self.document.data
        if not isinstance(data, dict):
            what = "the file is empty" if data is None else "the file is not a mapping"
            self._problem((), f"{what}: it needs namespace, name and columns")
            return None
        columns = data.get("columns")
        if isinstance(columns, list):
            rows = enumerate(columns)
            self.drafts = [_Draft(("columns", index), raw) for index, raw in rows if isinstance(raw, dict)]
        for kind, model in SETTINGS_MODELS.items():
            if model.defaults is not None and isinstance(block := data.get(kind), dict):
                self._validate(model.defaults, block, (kind,), f"{kind}: ", model.defaults.model_fields)
                self.defaults[kind] = _valid(model.defaults, block)  # what is wrong is said once, not of each column
        return self._validate(CollectionModel, data, (), "", CollectionModel.model_fields)

    def _values(self, draft: _Draft) -> None:
        subject = draft.subject
        own = {key: value for key, value in draft.raw.items() if key not in SETTINGS_MODELS}
        known = [*ColumnModel.model_fields, *SETTINGS_MODELS]
        draft.model = self._validate(ColumnModel, own, draft.path, subject, known)
        if draft.raw.get("type") in get_args(ValueType):
            self._check_type(draft)
        for key, message in misfits(draft.model) if draft.model is not None else ():
            self._problem((*draft.path, "review", "when", key), f"{subject}review: {message}")
        kind = draft.raw.get("kind")
        if kind is None:
            self._check_input(draft)
            return
        if isinstance(kind, str) and not draft.kind:
            known_kinds = suggest(kind, SETTINGS_MODELS) or f"; known kinds: {', '.join(SETTINGS_MODELS)}"
            broken = plugins.load().broken.get(kind)
            why = f"the kind {kind} does not work: {broken}" if broken else f"unknown kind {shorten(kind)}{known_kinds}"
            self._problem((*draft.path, "kind"), subject + why)
        for other in SETTINGS_MODELS:
            if draft.kind and other != draft.kind and other in draft.raw:
                self._problem((*draft.path, other), f"{subject}settings of kind {other} on a column of kind {kind}")
        if draft.kind:
            model = SETTINGS_MODELS[draft.kind]
            needed = [name for name, info in model.model_fields.items() if info.is_required()]
            block = draft.raw.get(draft.kind, None if needed else {})
            path = (*draft.path, draft.kind)
            if isinstance(block, dict):  # what the column says goes, also that it has none of it
                block = self.defaults.get(draft.kind, {}) | block
            if model.value_types and draft.raw.get("type") not in (*model.value_types, None):
                types = " or ".join(model.value_types)
                self._problem((*draft.path, "type"), f"{subject}kind {kind} makes values of type {types}")
            if isinstance(block, dict):
                draft.settings = self._validate(model, block, path, f"{subject}{kind}: ", model.model_fields)
            else:
                named = ", ".join(needed or model.model_fields)
                self._problem(path, f"{subject}kind {kind} needs its settings under {kind!r}: {named}")

    def _check_input(self, draft: _Draft) -> None:
        for key in _COMPUTED_ONLY:
            if draft.raw.get(key) is not None:
                self._problem((*draft.path, key), f"{draft.subject}an input column (one without kind) takes no {key!r}")
        for kind in SETTINGS_MODELS:
            if kind in draft.raw:
                self._problem(
                    (*draft.path, kind), f"{draft.subject}settings of kind {kind} but no kind: add 'kind: {kind}'"
                )

    def _check_type(self, draft: _Draft) -> None:
        """Whether choices and items are there for the types that have them, and for no other."""
        name, items, choices = (draft.raw.get(key) for key in ("type", "items", "choices"))
        takes_choices = "choice" in (name, items)
        if items is not None and name != "list":
            self._problem((*draft.path, "items"), f"{draft.subject}only a list has items, not type {name}")
        elif takes_choices and choices is None:
            self._problem((*draft.path, "type"), f"{draft.subject}type choice needs its choices: [...]")
        elif choices is not None and not takes_choices:
            self._problem((*draft.path, "choices"), f"{draft.subject}choices need type choice, not {name}")
        measures = [key for key in ("unit", "currency") if draft.raw.get(key) is not None]
        if measures and (name not in ("number", "integer") or len(measures) > 1):
            why = (
                "unit and currency exclude each other"
                if len(measures) > 1
                else f"only numbers have one, not type {name}"
            )
            self._problem((*draft.path, measures[0]), f"{draft.subject}{measures[0]}: {why}")

    def _validate(
        self, model: type[_Model], data: Any, path: yaml_lines.Path, subject: str, known: Iterable[str]
    ) -> _Model | None:
        try:
            return model.model_validate(data)
        except ValidationError as invalid:
            for error in invalid.errors(include_url=False):
                inner = _NESTED.get(".".join(part for part in error["loc"][:-1] if isinstance(part, str)))
                message = explain(error, known if inner is None else inner.model_fields)
                self._problem((*path, *error["loc"]), subject + message)
            return None

    # Each column against the names in the file.

    def _names(self) -> None:
        names: dict[str, _Draft] = {}
        keys: dict[str, _Draft] = {}
        for draft in self.drafts:
            if draft.name is None or draft.key is None:
                continue
            self.by_name.setdefault(draft.name, draft)
            twin = names.setdefault(draft.name.casefold(), draft)
            if twin is not draft:
                self._clash("name", draft, draft.name, twin, twin.name)
            twin = keys.setdefault(draft.key.casefold(), draft)
            # Where both ids are only the names, the names have clashed already.
            if twin is not draft and ("id" in draft.raw or "id" in twin.raw):
                self._clash("id", draft, draft.key, twin, twin.key)

    def _clash(self, what: str, draft: _Draft, word: str, twin: _Draft, other: str | None) -> None:
        first = self.document.line((*twin.path, what))
        if word == other:
            message = f"the column {what} {shorten(word)} is taken already, in line {first}"
        else:
            message = f"the column {what} {shorten(word)} differs only by case from {shorten(other)} in line {first}"
        self._problem((*draft.path, what), message)

    def _references(self, draft: _Draft) -> None:
        # From the raw values: a mistake elsewhere in the column hides no wrong name.
        if not draft.kind:
            return
        subject = draft.subject
        before = len(self.problems)
        declared = draft.raw.get("deps")
        for index, dep in enumerate(declared if isinstance(declared, list) else ()):
            name = dep.get("column") if isinstance(dep, dict) else dep
            line = self.document.line((*draft.path, "deps", index))
            if not isinstance(name, str):
                continue
            if name in draft.deps:
                self._problem_at(line, f"{subject}the dependency {name!r} is given twice")
            elif self._readable(draft, name, line):
                draft.deps[name] = _dependency(name, dep)
        for name, line in self._prompt_references(draft, draft.kind):
            if not self._readable(draft, name, line) or name in draft.deps:
                continue
            if declared is None:
                draft.deps[name] = DependencyModel(column=name)
            elif isinstance(declared, list):
                message = f"the prompt refers to {{{{{name}}}}}, which is not among the deps: add it there"
                self._problem_at(line, subject + message)
        if draft.model and draft.settings and not draft.deps and len(self.problems) == before:
            self._problem(draft.path, f"{subject}it reads no column: name those it needs in deps")
        reads_one = SETTINGS_MODELS[draft.kind].reads_one
        if reads_one and draft.deps and (len(draft.deps) > 1 or any(map(_may_be_absent, draft.deps.values()))):
            message = f"kind {draft.kind} reads one column, {reads_one}, which is not optional"
            self._problem((*draft.path, "deps"), f"{subject}{message}")
        wanted = SETTINGS_MODELS[draft.kind].reads_type
        for name in draft.deps if wanted else ():
            given = self.by_name[name].raw.get("type")
            if given != wanted:
                message = f"kind {draft.kind} reads a column of type {wanted}, and {name!r} is of type {given}"
                self._problem((*draft.path, "deps"), f"{subject}{message}")

    def _prompt_references(self, draft: _Draft, kind: str) -> Iterator[tuple[str, int]]:
        """The names that the prompts of `draft` refer to, each once, with the line of the first."""
        fields = SETTINGS_MODELS[kind].prompt_fields
        settings = draft.settings.model_dump() if draft.settings else draft.raw.get(kind)
        if not fields or not isinstance(settings, dict):
            return
        for setting, text in settings.items():
            if not isinstance(text, str):
                continue
            is_own = setting in (draft.raw.get(kind) or {})  # else the collection's, and its mistake is said once
            path, subject = ((*draft.path, kind), draft.subject) if is_own else ((kind,), f"{kind}: ")
            names = prompt.references(text)
            lines = self.document.lines_within((*path, setting), prompt.REFERENCE, len(names))
            first_lines = dict(zip(reversed(names), reversed(lines), strict=True))
            for name in dict.fromkeys(names):
                if setting in fields:
                    yield name, first_lines[name]
                elif name in self.by_name:
                    message = f"{setting} is the same for every row: refer to {{{{{name}}}}} in {' or '.join(fields)}"
                    self._problem_at(first_lines[name], subject + message)

    def _examples(self, draft: _Draft) -> None:
        found = getattr(draft.settings, "examples", None)
        if not found or draft.settings is None or draft.kind is None or draft.model is None:
            return
        names = {
            name
            for text in draft.settings.prompt_fields
            for name in prompt.references(getattr(draft.settings, text) or "")
        }
        settings = draft.settings.model_dump(mode="json", exclude={"examples"})
        for place, key, message in examples.problems(found, _type_of(draft.model), settings, names):
            path = (*draft.path, draft.kind, "examples", place, key)
            self._problem(path, f"{draft.subject}examples[{place}].{key}: {message}")

    def _readable(self, draft: _Draft, name: str, line: int) -> bool:
        """Whether `name` is another column of the file; a problem in `line` if not."""
        if name == draft.name:
            self._problem_at(line, f"{draft.subject}it reads itself")
        elif name not in self.by_name:
            self._problem_at(line, f"{draft.subject}there is no column {shorten(name)}{suggest(name, self.by_name)}")
        return name != draft.name and name in self.by_name

    def _files(self, collection: CollectionModel | None) -> FileColumns | None:
        if collection is None:
            return None
        full_name = f"{collection.namespace}/{collection.name}"
        types = {name: (draft.raw.get("type"), draft.raw.get("items")) for name, draft in self.by_name.items()}
        computed = {name for name, draft in self.by_name.items() if draft.raw.get("kind") is not None}
        files = FileColumns.of(full_name, collection.files, types, computed)
        for path, message in files.problems:
            self._problem(path, message)
        for draft in self.drafts:
            if draft.settings and draft.settings.shows_files and getattr(draft.settings, "evidence", None):
                shown = files.shown_in(_prompts(draft.settings))
                if shown and shown.issuperset(draft.deps):
                    message = "evidence is quoted from text, and it reads files alone: read a column of their text, too"
                    self._problem((*draft.path, str(draft.kind), "evidence"), f"{draft.subject}{message}")
            if draft.raw.get("wait") is not None and draft.kind and files.of_reader(draft.deps, None) is None:
                self._problem((*draft.path, "wait"), f"{draft.subject}it reads no column of type file to wait for")
        return files

    # The DAG.

    def _cycles(self) -> None:
        graph = {name: set(draft.deps) for name, draft in self.by_name.items()}
        places = {name: place for place, name in enumerate(graph)}
        while True:
            try:
                TopologicalSorter(graph).prepare()
            except CycleError as error:
                cycle: list[str] = error.args[1][1:]  # each feeds the next, the last one the first
            else:
                return
            start = cycle.index(min(cycle, key=places.__getitem__))
            cycle = cycle[start:] + cycle[:start]
            path = " → ".join([*cycle, cycle[0]])
            draft = self.by_name[cycle[0]]
            where = (*draft.path, "deps" if "deps" in draft.raw else str(draft.kind))
            self._problem(where, f"the columns form a cycle: {path} (each is read by the next)")
            # Look for further cycles without this one's columns.
            graph = {name: deps - set(cycle) for name, deps in graph.items() if name not in cycle}

    # How rows come in.

    def _loading(self) -> None:
        if isinstance(self.document.data, dict):
            columns = {name: draft.raw for name, draft in self.by_name.items()}
            for key, message in loading.problems(self.document.data, columns):
                self._problem((key,), message)

    def _problem(self, path: yaml_lines.Path, message: str) -> None:
        self._problem_at(self.document.line(path), message)

    def _problem_at(self, line: int, message: str) -> None:
        self.problems.append(Problem(self.document.file, line, message))


def _finish(draft: _Draft, keys: dict[str, str], files: FileColumns) -> SpecColumn:
    """The column of a draft that has no problem. `keys` by column name."""
    assert draft.model is not None
    model, settings = draft.model, draft.settings
    column_type = _type_of(model)
    assert column_type is not None
    if settings is None:
        source = files.of_input(model.name)
        return SpecColumn(keys[model.name], model.name, column_type, None, "never", (), 0.0, 0, {}, files=source)
    normalized = settings.model_dump(mode="json", exclude_none=True)
    for setting in settings.prompt_fields:
        if setting in normalized:
            normalized[setting] = prompt.split(normalized[setting], keys)
    if settings.shows_files and (shown := files.shown_in(_prompts(settings))):
        normalized["files"] = sorted(keys[name] for name in shown)
    if found := getattr(settings, "examples", None):
        normalized["examples"] = examples.normalize(found, column_type, keys)
    deps = [_spec_dependency(keys[name], dep) for name, dep in draft.deps.items()]
    deps += [SpecDependency(keys[name], optional=True, silent=True) for name in files.watched(draft.deps)]
    return SpecColumn(
        key=keys[model.name],
        name=model.name,
        type=column_type,
        kind=model.kind,
        mode=model.mode or "on_change",
        deps=tuple(sorted(deps, key=attrgetter("column"))),
        timeout=settings.default_timeout if model.timeout is None else model.timeout,
        attempts=model.attempts or _DEFAULT_ATTEMPTS,
        settings=normalized,
        cache=_cache(model, settings, files.is_followed(draft.deps)),
        review=review_of(model.review),
        files=files.of_reader(draft.deps, model.wait),
    )


def _valid(model: type[BaseModel], data: dict[str, Any]) -> dict[str, Any]:
    """What of `data` is right by itself."""
    right = {}
    for key, value in data.items():
        with suppress(ValidationError):
            model.model_validate({key: value})
            right[key] = value
    return right


def _type_of(model: ColumnModel) -> ColumnType | None:
    """None where types and what belongs to them do not fit together."""
    items = "text" if model.type == "list" and model.items is None else model.items
    try:
        return ColumnType(model.type, tuple(model.choices or ()), items, model.unit, model.currency)
    except ValueError:
        return None


def _dependency(name: str, dep: Any) -> DependencyModel:
    """As written, or, where that has a mistake of its own, as far as that goes."""
    try:
        return DependencyModel.model_validate({"column": dep} if isinstance(dep, str) else dep)
    except ValidationError:
        return DependencyModel(column=name)


def _may_be_absent(dep: DependencyModel) -> bool:
    return dep.optional or dep.not_found == "run"


def _prompts(settings: KindSettings) -> list[str]:
    return [text for field in settings.prompt_fields if isinstance(text := getattr(settings, field), str)]


def _spec_dependency(key: str, dep: DependencyModel) -> SpecDependency:
    is_usual = dep.not_found == usual_not_found(dep.optional)
    return SpecDependency(key, dep.optional, None if is_usual else dep.not_found)


def _cache(column: ColumnModel, settings: KindSettings, is_followed: bool) -> Cache | None:
    if column.cache is None:
        return Cache() if settings.cached and is_followed else None
    return None if column.cache.ttl == 0 else Cache(column.cache.ttl)
