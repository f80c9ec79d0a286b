"""The demos beside `packages`, by name: each a collection and a program that plays on it, without Dagster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cell_engine.errors import NotFoundError

if TYPE_CHECKING:
    from cell_engine.demo.stage import Stage
    from cell_engine.specs.compiled import CompiledSpec

PACKAGES = "packages"
_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Offered:
    """A demo. `program`, "module:callable", is called with the Stage once its stack is up and its collection is there;
    it returns what is not as it should be.

    `rows`, and `characters` of a text that is no model's, are what is said before a real API is called: at most.
    `environment` is the worker's own, beside what every worker has.
    """

    name: str
    about: str
    spec_file: Path
    program: str
    rows: int
    characters: int = 2_000
    environment: Mapping[str, str] = field(default_factory=dict)

    def play(self, stage: Stage) -> list[str]:
        module, _, name = self.program.partition(":")
        program = cast("Callable[[Stage], list[str]]", getattr(import_module(module), name))
        return program(stage)

    def largest_rows(self, spec: CompiledSpec) -> list[dict[str, Any]]:
        """Rows as long as they come, to estimate with."""
        row = {column.key: "x" * self.characters for column in spec.columns if column.kind != "llm"}
        return [row] * self.rows


OFFERED: tuple[Offered, ...] = (
    Offered(
        name="documents",
        about="Forty contracts, made by code as PDF, DOCX, text, HTML and Markdown, are read, and asked for facts.",
        spec_file=_FOLDER / "documents" / "documents.yaml",
        program="cell_engine.demo.documents.play:play",
        rows=40,
    ),
    Offered(
        name="pages",
        about="A small site on loopback becomes a collection; two pages change, and only these are computed again.",
        spec_file=_FOLDER / "web" / "pages.yaml",
        program="cell_engine.demo.web.pages:play",
        rows=12,
        environment={"AUTOFILL_FETCH_ALLOW": "127.0.0.1", "AUTOFILL_FETCH_DELAY": "0"},
    ),
    Offered(
        name="feed",
        about="The entries of a feed on loopback become rows; one is new and one changes, and only these are computed.",
        spec_file=_FOLDER / "web" / "feed.yaml",
        program="cell_engine.demo.web.feed:play",
        rows=8,
    ),
    Offered(
        name="letters",
        about="Letters are written, from columns of roles, styles and facts; one has other facts, and is written anew.",
        spec_file=_FOLDER / "letters" / "letters.yaml",
        program="cell_engine.demo.letters.play:play",
        rows=10,
        characters=400,
    ),
)


def find_demo(name: str) -> Offered | None:
    """The demo of that name; None for `packages`. Raises NotFoundError, naming those there are."""
    if name == PACKAGES:
        return None
    for one in OFFERED:
        if one.name == name:
            return one
    there_are = ", ".join([PACKAGES, *(one.name for one in OFFERED)])
    raise NotFoundError(f"no demo {name!r}; there are: {there_are}")
