"""What columns of a kind have where they say nothing: what their collection says, and below it their namespace."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from cell_engine.errors import Problem, SpecError
from cell_engine.specs.explain import mistakes
from cell_engine.specs.settings_models import SETTINGS_MODELS
from cell_engine.specs.spec import Name, Strict
from cell_engine.specs.yaml_lines import Document, read_file

NAMESPACE_FILE = "namespace.yaml"
"""Beside the YAML of collections: what those of one namespace share."""


class NamespaceModel(Strict):
    """A namespace's file. The defaults of a kind's settings are validated one by one, as a collection's are."""

    namespace: Name
    llm: dict[str, Any] | None = None


def namespace_beside(path: Path) -> Document | None:
    """The namespace's file beside the collection's at `path`; None where there is none. Raises SpecError where it
    cannot be read or is not YAML, and where the collection's has its name."""
    if path.name == NAMESPACE_FILE:
        message = "a file of this name says what a namespace's collections share: give the collection's another name"
        raise SpecError([Problem(str(path), 1, message)])
    beside = path.with_name(NAMESPACE_FILE)
    return read_file(beside) if beside.exists() or beside.is_symlink() else None


class Defaults:
    """Taken from the widest to the nearest; what is wrong is said once, where it stands, and not of each column."""

    def __init__(self) -> None:
        self._said: dict[str, dict[str, tuple[Any, Document]]] = {}

    def of(self, kind: str) -> dict[str, Any]:
        return {setting: value for setting, (value, _) in self._said.get(kind, {}).items()}

    def document(self, kind: str, setting: str) -> Document | None:
        """Where it is said; None where it is not."""
        return self._said.get(kind, {}).get(setting, (None, None))[1]

    def take_namespace(self, document: Document, namespace: object) -> Iterator[Problem]:
        """Those of a namespace's file, if it is that of `namespace`, with what is wrong in it."""
        data = document.data
        if not isinstance(data, dict):
            message = "a namespace's file needs its namespace, and what its collections share: llm: {model: …}"
            yield Problem(document.file, 1, message)
            return
        named = data.get("namespace")
        if isinstance(named, str) and named != namespace:
            return
        yield from document.problems
        try:
            NamespaceModel.model_validate(data)
        except ValidationError as invalid:
            for path, message in mistakes(invalid, NamespaceModel.model_fields):
                yield Problem(document.file, document.line(path), message)
        yield from self.take(document)

    def take(self, document: Document) -> Iterator[Problem]:
        """Those of the document's blocks, above what was taken before, with what is wrong in them."""
        for kind, settings in SETTINGS_MODELS.items():
            model, block = settings.defaults, document.data.get(kind)
            if model is None or not isinstance(block, dict):
                continue
            try:
                model.model_validate(block)
            except ValidationError as invalid:
                for path, message in mistakes(invalid, model.model_fields):
                    yield Problem(document.file, document.line((kind, *path)), f"{kind}: {message}")
            right = {setting: (value, document) for setting, value in _right(model, block)}
            self._said[kind] = self._said.get(kind, {}) | right


def _right(model: type[BaseModel], block: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What of the block is right by itself."""
    for setting, value in block.items():
        with suppress(ValidationError):
            model.model_validate({setting: value})
            yield setting, value
