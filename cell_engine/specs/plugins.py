"""Kinds from other packages: entry points of the group `autofill.kinds`, each named as its kind, each a KindPlugin.

Found and loaded once a process, by whoever compiles specs or makes kinds. One that cannot be loaded is told, and stops
nobody but itself.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from cell_engine.errors import AutofillError
from cell_engine.specs.settings_models import SETTINGS_MODELS, KindSettings
from cell_engine.specs.spec import ColumnModel

GROUP = "autofill.kinds"


@dataclass(frozen=True)
class KindPlugin:
    """What an entry point leads to. `make` gives the kind itself, a cell_engine.kinds.base.Kind; called in workers
    only, so that specs are checked where the kind's own libraries are not installed."""

    settings: type[KindSettings]
    make: Callable[[], Any]


@dataclass(frozen=True)
class Plugins:
    """`working` by kind; `broken`, by kind, says why."""

    working: dict[str, KindPlugin] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)


@cache
def load() -> Plugins:
    """The kinds that installed packages add, their settings among SETTINGS_MODELS from now on."""
    plugins = Plugins()
    for point in sorted(entry_points(group=GROUP), key=lambda one: (one.name, one.value)):
        if point.name in plugins.working:  # the order of packages must not decide
            del plugins.working[point.name]
            plugins.broken[point.name] = "more than one installed package adds it"
        elif point.name not in plugins.broken:
            _load(point, plugins)
    SETTINGS_MODELS.update({name: plugin.settings for name, plugin in plugins.working.items()})
    return plugins


def _load(point: EntryPoint, plugins: Plugins) -> None:
    package = f"package {point.dist.name} {point.dist.version}" if point.dist is not None else point.value
    try:
        plugin = _checked(point.name, point.load())
    except (Exception, SystemExit) as error:  # noqa: BLE001 - loading runs the package, which may do anything
        plugins.broken[point.name] = f"{package}: {''.join(traceback.format_exception_only(error)).strip()}"
    else:
        plugins.working[point.name] = plugin


def _checked(name: str, found: object) -> KindPlugin:
    if name in SETTINGS_MODELS or name in ColumnModel.model_fields or not name.isidentifier():
        raise AutofillError(f"{name!r} cannot be a kind: it is none of the engine's, no key of a column, and one word")
    if not isinstance(found, KindPlugin):
        raise AutofillError(f"its entry point is no cell_engine.specs.plugins.KindPlugin but {type(found).__name__}")
    if not (isinstance(found.settings, type) and issubclass(found.settings, KindSettings)):
        raise AutofillError("its settings are no subclass of cell_engine.specs.settings_models.KindSettings")
    return found
