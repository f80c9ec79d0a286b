"""The kind `pattern`: what a regular expression finds in a column's text.

- name: invoice_number
  type: text
  kind: pattern
  deps: [mail]
  pattern: {find: 'INV-(?P<number>\\d+)', group: number}
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, model_validator

from cell_engine.errors import BadValueError
from cell_engine.kinds.base import Answer, Call, Failure, Outcome
from cell_engine.kinds.pool import PoolError, ProcessPool
from cell_engine.specs.plugins import KindPlugin
from cell_engine.specs.settings_models import KindSettings
from cell_engine.specs.version import Column


def _check_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from None  # told with the spec's file and line
    return pattern


class PatternSettings(KindSettings):
    """What stands under `pattern:` in a spec. Strict: an unknown key is a mistake, as in the engine's own kinds."""

    default_timeout = 5.0
    reads_one = "the text"

    find: Annotated[str, AfterValidator(_check_pattern)]
    group: str | None = None

    @model_validator(mode="after")
    def _has_group(self) -> PatternSettings:
        if self.group is not None and self.group not in re.compile(self.find).groupindex:
            raise ValueError(f"the pattern has no group {self.group!r}: write (?P<{self.group}>…)")
        return self


class PatternKind:
    """See cell_engine.kinds.base.Kind. One instance serves a whole worker."""

    name = "pattern"

    def __init__(self) -> None:
        # A regular expression may run for years over the wrong text: in a process it is ended with its call's time.
        self._pool = ProcessPool()

    def check(self, column: Column) -> None:
        """Needs no key and no server: works everywhere."""

    def at_once(self, call: Call) -> Outcome | None:
        """Never: who would end it?"""

    def provider(self, column: Column) -> None:
        """No endpoint, whose limits would bound its calls."""

    async def compute(self, call: Call) -> Outcome:
        (text,) = call.inputs.values()
        if not isinstance(text, str):
            return Failure("bad_input", "it searches text")
        settings = call.column.settings
        try:
            found = await self._pool.run(search, settings["find"], settings.get("group"), text, timeout=call.deadline)
        except PoolError as error:
            return error.failure
        if found is None:
            return Failure("bad_input", "the text has nothing that the pattern finds")
        try:
            return Answer(call.column.type.parse(found))
        except BadValueError as error:
            return Failure("schema", str(error))

    async def close(self) -> None:
        await self._pool.close()


def search(pattern: str, group: str | None, text: str) -> str | None:
    """In the process: found by its module and name, so it stands on its own."""
    found = re.search(pattern, text)
    return None if found is None else found[group or 0]


plugin = KindPlugin(PatternSettings, PatternKind)
