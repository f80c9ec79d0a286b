"""Which places a collection may name: what the operator allows with AUTOFILL_FILES, and nothing beside it."""

from __future__ import annotations

from functools import lru_cache

from cell_engine.errors import BadValueError
from cell_engine.files.place import Place
from cell_engine.settings import Settings, get_settings


def place(root: str, settings: Settings | None = None) -> Place:
    """The place of a collection's ``root``, under the ``settings`` of the environment unless given.

    Relative, it lies under the first folder or URL that is allowed; one written out must lie in one of them. Raises
    BadValueError for one that is not allowed, or whose store's package is missing.
    """
    return _place(root, (settings or get_settings()).file_roots)


@lru_cache(maxsize=256)  # a client of an object store is not made for each file
def _place(root: str, allowed: tuple[str, ...]) -> Place:
    if not root.startswith("/") and "://" not in root:
        return Place(allowed[0], root)
    for base in allowed:
        if root == base or root.startswith(base.rstrip("/") + "/"):
            return Place(base, root.removeprefix(base).strip("/"))
    raise BadValueError(
        f"files in {root!r} are not allowed: AUTOFILL_FILES allows {', '.join(allowed)} and what lies in there"
    )
