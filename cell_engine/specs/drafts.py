"""A column on its way through the compiler: as written, what of it proved valid, and the column that comes of it."""

from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from pydantic import ValidationError

from cell_engine.specs import examples, prompt, yaml_lines
from cell_engine.specs.compiled import SpecColumn, SpecDependency
from cell_engine.specs.files import FileColumns
from cell_engine.specs.review import review_of
from cell_engine.specs.schedule import UTC, Schedule
from cell_engine.specs.settings_models import SETTINGS_MODELS, KindSettings
from cell_engine.specs.spec import ColumnModel, DependencyModel
from cell_engine.specs.text import shorten
from cell_engine.specs.types import ColumnType
from cell_engine.specs.version import Cache, usual_not_found

_DEFAULT_ATTEMPTS = 4


@dataclass
class Draft:
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


def finish(draft: Draft, keys: dict[str, str], files: FileColumns) -> SpecColumn:
    """The column of a draft that has no problem. `keys` by column name."""
    assert draft.model is not None
    model, settings = draft.model, draft.settings
    column_type = type_of(model)
    assert column_type is not None
    if settings is None:
        source = files.of_input(model.name)
        return SpecColumn(keys[model.name], model.name, column_type, None, "never", (), 0.0, 0, {}, files=source)
    normalized = settings.model_dump(mode="json", exclude_none=True)
    for setting in settings.prompt_fields:
        if setting in normalized:
            normalized[setting] = prompt.split(normalized[setting], keys)
    if settings.shows_files and (shown := files.shown_in(prompts(settings))):
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
        schedule=None if model.cron is None else Schedule(model.cron, model.timezone or UTC),
        files=files.of_reader(draft.deps, model.wait),
    )


def type_of(model: ColumnModel) -> ColumnType | None:
    """None where types and what belongs to them do not fit together."""
    items = "text" if model.type == "list" and model.items is None else model.items
    try:
        return ColumnType(model.type, tuple(model.choices or ()), items, model.unit, model.currency)
    except ValueError:
        return None


def dependency(name: str, dep: Any) -> DependencyModel:
    """As written, or, where that has a mistake of its own, as far as that goes."""
    try:
        return DependencyModel.model_validate({"column": dep} if isinstance(dep, str) else dep)
    except ValidationError:
        return DependencyModel(column=name)


def may_be_absent(dep: DependencyModel) -> bool:
    return dep.optional or dep.not_found == "run"


def prompts(settings: KindSettings) -> list[str]:
    return [text for field in settings.prompt_fields if isinstance(text := getattr(settings, field), str)]


def _spec_dependency(key: str, dep: DependencyModel) -> SpecDependency:
    is_usual = dep.not_found == usual_not_found(dep.optional)
    return SpecDependency(key, dep.optional, None if is_usual else dep.not_found)


def _cache(column: ColumnModel, settings: KindSettings, is_followed: bool) -> Cache | None:
    if column.cache is None:
        return Cache() if settings.cached and is_followed else None
    return None if column.cache.ttl == 0 else Cache(column.cache.ttl)
