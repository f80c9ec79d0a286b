"""Which functions a spec may name: whoever may write a spec must not thereby run `os:system` in a worker.

The operator says so: by AUTOFILL_FUNCTIONS, or by installing a package that offers functions as entry points of the
group `autofill.functions` (`acme = "acme.cells"`). Each is a module, a package with all below it (`acme.*`), or a
single `module:callable`. Nothing is imported to find out.
"""

from __future__ import annotations

import os
from functools import cache
from importlib.metadata import entry_points

from cell_engine.settings import get_settings

GROUP = "autofill.functions"
OURS = ("cell_engine.demo.*",)


def patterns() -> tuple[str, ...]:
    """All that is allowed in this process."""
    return (*_set(os.environ.get("AUTOFILL_FUNCTIONS")), *OURS, *_offered())


def refusal(name: str) -> str | None:
    """Why a spec may not name the function `name` ("module:callable") here, and what to do; None if it may."""
    module = name.partition(":")[0]
    if any(pattern == name or _covers(pattern, module) for pattern in patterns()):
        return None
    return (
        f"the function {name!r} is not allowed here: the operator adds {module} (the module), or {name} alone, to "
        "AUTOFILL_FUNCTIONS of whatever applies specs and of the workers"
    )


def is_allowed_at(name: str, module: str | None) -> bool:
    """Whether `name` may lead to a function that is defined in `module`: allowed by its full name, or defined in an
    allowed module. What an allowed module has only imported (`acme.cells:os.system`) is none of its functions."""
    allowed = patterns()
    return name in allowed or (module is not None and any(_covers(pattern, module) for pattern in allowed))


def _covers(pattern: str, module: str) -> bool:
    package = pattern.removesuffix(".*")
    return pattern == module or (package != pattern and f"{module}.".startswith(f"{package}."))


@cache
def _set(_: str | None) -> tuple[str, ...]:
    # By what the environment says: to read all settings takes a millisecond, and a spec may have a thousand functions.
    return get_settings().functions


@cache
def _offered() -> tuple[str, ...]:
    return tuple(point.value.replace(" ", "") for point in entry_points(group=GROUP))
