"""A collection's YAML to a CompiledSpec, or to every problem in it at once, each with its file and line.

Three passes, none of which stops at a mistake: each value on its own (cell_engine.specs.spec), each column against
the names in the file (dependencies, prompts), then the DAG.
"""

from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from cell_engine.errors import Problem, SpecError
from cell_engine.specs import examples, loading, plugins, prompt, yaml_lines
from cell_engine.specs.compiled import CompiledSpec, SpecColumn, SpecDependency
from cell_engine.specs.defaults import Defaults, namespace_beside
from cell_engine.specs.drafts import Draft, dependency, finish, may_be_absent, prompts, type_of
from cell_engine.specs.explain import mistakes, suggest
from cell_engine.specs.files import FileColumns, FilesModel
from cell_engine.specs.review import ReviewModel, RuleModel
from cell_engine.specs.schedule import RefreshModel, column_problems
from cell_engine.specs.settings_models import SETTINGS_MODELS
from cell_engine.specs.sources import SourceModel
from cell_engine.specs.spec import CacheModel, CollectionModel, ColumnModel, DependencyModel, misfits
from cell_engine.specs.text import shorten
from cell_engine.specs.types import ValueType

__all__ = ["CompiledSpec", "SpecColumn", "SpecDependency", "compile_file", "compile_text"]

_Model = TypeVar("_Model", bound=BaseModel)

_COMPUTED_ONLY = ("deps", "mode", "timeout", "attempts", "cache", "wait", "review", "cron", "timezone")
_NESTED: dict[str, type[BaseModel]] = {
    "deps": DependencyModel,
    "cache": CacheModel,
    "files": FilesModel,
    "review": ReviewModel,
    "review.when": RuleModel,
    "refresh": RefreshModel,
    "source": SourceModel,
}


def compile_file(path: Path | str) -> CompiledSpec:
    """Compiles the YAML file at `path` (UTF-8), over the namespace's file beside it. Raises SpecError with all
    problems, the unreadable file's too."""
    plugins.load()
    return _Compiler(yaml_lines.read_file(Path(path)), namespace_beside(Path(path))).compile()


def compile_text(text: str, file: str = "<text>") -> CompiledSpec:
    """Compiles YAML text; `file` is what problems call it. Raises SpecError with all problems."""
    plugins.load()
    return _Compiler(yaml_lines.read(text, file)).compile()


class _Compiler:
    def __init__(self, document: yaml_lines.Document, namespace: yaml_lines.Document | None = None) -> None:
        self.document = document
        self.namespace = namespace
        self.problems = list(document.problems)
        self.drafts: list[Draft] = []
        self.by_name: dict[str, Draft] = {}
        self.defaults = Defaults()

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
            columns=tuple(finish(draft, keys, files) for draft in self.drafts),
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
            self.drafts = [Draft(("columns", index), raw) for index, raw in rows if isinstance(raw, dict)]
        if self.namespace is not None:
            self.problems += self.defaults.take_namespace(self.namespace, data.get("namespace"))
        self.problems += self.defaults.take(self.document)
        return self._validate(CollectionModel, data, (), "", CollectionModel.model_fields)

    def _values(self, draft: Draft) -> None:
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
        for key, message in column_problems(draft.raw):
            self._problem((*draft.path, key), draft.subject + message)
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
                block = self.defaults.of(draft.kind) | block
            if model.value_types and draft.raw.get("type") not in (*model.value_types, None):
                types = " or ".join(model.value_types)
                self._problem((*draft.path, "type"), f"{subject}kind {kind} makes values of type {types}")
            if isinstance(block, dict):
                draft.settings = self._validate(model, block, path, f"{subject}{kind}: ", model.model_fields)
            else:
                named = ", ".join(needed or model.model_fields)
                self._problem(path, f"{subject}kind {kind} needs its settings under {kind!r}: {named}")

    def _check_input(self, draft: Draft) -> None:
        for key in _COMPUTED_ONLY:
            if draft.raw.get(key) is not None:
                self._problem((*draft.path, key), f"{draft.subject}an input column (one without kind) takes no {key!r}")
        for kind in SETTINGS_MODELS:
            if kind in draft.raw:
                self._problem(
                    (*draft.path, kind), f"{draft.subject}settings of kind {kind} but no kind: add 'kind: {kind}'"
                )

    def _check_type(self, draft: Draft) -> None:
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
            for inner, message in mistakes(invalid, known, _NESTED):
                self._problem((*path, *inner), subject + message)
            return None

    # Each column against the names in the file.

    def _names(self) -> None:
        names: dict[str, Draft] = {}
        keys: dict[str, Draft] = {}
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

    def _clash(self, what: str, draft: Draft, word: str, twin: Draft, other: str | None) -> None:
        first = self.document.line((*twin.path, what))
        if word == other:
            message = f"the column {what} {shorten(word)} is taken already, in line {first}"
        else:
            message = f"the column {what} {shorten(word)} differs only by case from {shorten(other)} in line {first}"
        self._problem((*draft.path, what), message)

    def _references(self, draft: Draft) -> None:
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
                draft.deps[name] = dependency(name, dep)
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
        if reads_one and draft.deps and (len(draft.deps) > 1 or any(map(may_be_absent, draft.deps.values()))):
            message = f"kind {draft.kind} reads one column, {reads_one}, which is not optional"
            self._problem((*draft.path, "deps"), f"{subject}{message}")
        wanted = SETTINGS_MODELS[draft.kind].reads_type
        for name in draft.deps if wanted else ():
            given = self.by_name[name].raw.get("type")
            if given != wanted:
                message = f"kind {draft.kind} reads a column of type {wanted}, and {name!r} is of type {given}"
                self._problem((*draft.path, "deps"), f"{subject}{message}")

    def _prompt_references(self, draft: Draft, kind: str) -> Iterator[tuple[str, int]]:
        """The names that the prompts of `draft` refer to, each once, with the line of the first."""
        fields = SETTINGS_MODELS[kind].prompt_fields
        settings = draft.settings.model_dump() if draft.settings else draft.raw.get(kind)
        if not fields or not isinstance(settings, dict):
            return
        for setting, text in settings.items():
            if not isinstance(text, str):
                continue
            document, path, subject = self.document, (*draft.path, kind), draft.subject
            if setting not in (draft.raw.get(kind) or {}):  # a default: its mistake is said once, where it stands
                document = self.defaults.document(kind, setting) or document
                path, subject = (kind,), f"{kind}: "
            names = prompt.references(text)
            lines = document.lines_within((*path, setting), prompt.REFERENCE, len(names))
            first_lines = dict(zip(reversed(names), reversed(lines), strict=True))
            for name in dict.fromkeys(names):
                if setting in fields:
                    yield name, first_lines[name]
                elif name in self.by_name:
                    message = f"{setting} is the same for every row: refer to {{{{{name}}}}} in {' or '.join(fields)}"
                    self.problems.append(Problem(document.file, first_lines[name], subject + message))

    def _examples(self, draft: Draft) -> None:
        found = getattr(draft.settings, "examples", None)
        if not found or draft.settings is None or draft.kind is None or draft.model is None:
            return
        names = {
            name
            for text in draft.settings.prompt_fields
            for name in prompt.references(getattr(draft.settings, text) or "")
        }
        settings = draft.settings.model_dump(mode="json", exclude={"examples"})
        for place, key, message in examples.problems(found, type_of(draft.model), settings, names):
            path = (*draft.path, draft.kind, "examples", place, key)
            self._problem(path, f"{draft.subject}examples[{place}].{key}: {message}")

    def _readable(self, draft: Draft, name: str, line: int) -> bool:
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
                shown = files.shown_in(prompts(draft.settings))
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
