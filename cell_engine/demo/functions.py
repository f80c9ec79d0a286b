"""The function column of the demo collection, as a user of the product would write one."""

import re

_WORD = re.compile(r"\w+(?:['’-]\w+)*")


def word_count(readme: str) -> int:
    """How many words the README has."""
    return sum(1 for _ in _WORD.finditer(readme))
