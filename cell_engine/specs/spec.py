"""The YAML of a collection as pydantic models: what may stand where, each value on its own.

What needs more than one value (names, dependencies, the DAG, a kind's settings) is checked by
cell_engine.specs.compile.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from cell_engine.specs import duration
from cell_engine.specs.files import FilesModel, root_as_files
from cell_engine.specs.review import ReviewModel, required_as_review
from cell_engine.specs.schedule import Cron, RefreshModel, Zone
from cell_engine.specs.sources import SourceModel, path_as_source
from cell_engine.specs.text import shorten
from cell_engine.specs.types import OTHER_UNIT, ItemType, ValueType
from cell_engine.specs.version import Mode, NotFound

KEPT_DAYS = 90
"""How long the cache keeps an answer."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")


def _check_name(name: str) -> str:
    # What a PostgreSQL identifier, a Dagster asset key and a Python keyword argument can all be, unquoted.
    if not _NAME.fullmatch(name):
        raise ValueError(f"{shorten(name)} is no name: a letter, then letters, digits and underscores, 63 at most")
    return name


def _check_choices(choices: list[str]) -> list[str]:
    seen: dict[str, str] = {}
    for choice in choices:
        if not choice or choice != choice.strip():
            raise ValueError(f"the choice {shorten(choice)} is empty or has spaces around it")
        folded = choice.casefold()
        if folded in seen:
            raise ValueError(f"the choices {shorten(seen[folded])} and {shorten(choice)} differ at most by case")
        seen[folded] = choice
    return choices


def _check_unit(unit: str) -> str:
    if not unit or unit != unit.strip() or len(unit) > 40 or unit == OTHER_UNIT:
        raise ValueError(f"{shorten(unit)} is no unit: one such as kg or m², without spaces around it")
    return unit


def _name_as_dependency(value: Any) -> Any:
    return {"column": value} if isinstance(value, str) else value


def _name_as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _seconds(text: Any) -> float:
    found = duration.seconds(text)
    if found is None or not 0 < found <= KEPT_DAYS * 86_400:
        raise ValueError(
            f"{shorten(str(text))} is no length of time: a whole number with s, m, h or d, such as 12h or 7d, "
            f"and {KEPT_DAYS}d at most"
        )
    return float(found)


Name = Annotated[str, AfterValidator(_check_name)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class DependencyModel(Strict):
    """A column that is read, by name. In the YAML a bare name is one that is required."""

    column: str
    optional: bool = False
    not_found: NotFound | None = None


class CacheModel(Strict):
    """How old a cached answer may be, in seconds: None for as old as is kept, 0 for no cache."""

    ttl: Annotated[float | None, BeforeValidator(_seconds)]


def _switch_as_cache(value: Any) -> Any:
    if isinstance(value, bool):
        return CacheModel.model_construct(ttl=None if value else 0.0)
    if not isinstance(value, dict):
        raise ValueError(f"expected true, false or {{ttl: 7d}}, got {shorten(str(value))}")
    return value


class ColumnModel(Strict):
    """One column. Without `kind` it is an input. A kind's settings stand beside these keys, under the kind's name."""

    id: Name | None = None
    name: Name
    type: ValueType
    choices: Annotated[list[str], Field(min_length=1), AfterValidator(_check_choices)] | None = None
    items: ItemType | None = None
    unit: Annotated[str, AfterValidator(_check_unit)] | None = None
    currency: str | None = Field(None, pattern="^[A-Z]{3}$")
    kind: str | None = None
    deps: list[Annotated[DependencyModel, BeforeValidator(_name_as_dependency)]] | None = None
    mode: Mode | None = None
    cron: Cron | None = None
    timezone: Zone | None = None
    timeout: float | None = Field(None, gt=0, le=86_400)
    attempts: int | None = Field(None, ge=1, le=100)
    cache: Annotated[CacheModel, BeforeValidator(_switch_as_cache)] | None = None
    wait: Annotated[float, BeforeValidator(_seconds)] | None = None
    review: Annotated[ReviewModel, BeforeValidator(required_as_review)] | None = None


def misfits(column: ColumnModel) -> Iterator[tuple[str, str]]:
    """What of a review's rule is not for the column's type: the key of `when`, and what is wrong with it."""
    rule = column.review.when if column.review is not None else None
    if rule is None:
        return
    choices = column.choices or []
    takes_choices = "choice" in (column.type, column.items)
    if rule.choice is not None and not takes_choices:
        yield "choice", f"choice is for columns of type choice, not {column.type}"
    for one in rule.choice or () if takes_choices else ():
        if one not in choices:
            yield "choice", f"{shorten(one)} is none of the column's choices: {shorten(choices, 200)}"
    for name, value in (("above", rule.above), ("below", rule.below)):
        if value is not None and column.type not in ("number", "integer"):
            yield name, f"{name} is for columns of type number or integer, not {column.type}"
    if rule.is_ is not None and column.type != "boolean":
        yield "is", f"is is for columns of type boolean, not {column.type}"


class CollectionModel(Strict):
    """A collection. Its columns are validated one by one, as ColumnModel, so that one mistake hides no other; so are
    the defaults of a kind's settings."""

    namespace: Name
    name: Name
    cap: int | None = Field(None, ge=1, le=2**31 - 1)
    files: Annotated[FilesModel, BeforeValidator(root_as_files)] | None = None
    key: Annotated[list[str], BeforeValidator(_name_as_list), Field(min_length=1, max_length=4)] | None = None
    delete_share: float | None = Field(None, ge=0, le=1)
    llm: dict[str, Any] | None = None
    feed: str | None = None
    source: Annotated[SourceModel, BeforeValidator(path_as_source)] | None = None
    refresh: RefreshModel | None = None
    columns: list[dict[str, Any]] = Field(min_length=1)
