"""What the parts of a long text came to, as `cell_engine.kinds.llm_chunks` hands it on: headings, answers, quotes."""

import re

_HEADING = re.compile(r"^Part \d+ of \d+(?: \(pages? [\d-]+\))?:(?: it could not be read\.)?[ \t]*$", re.MULTILINE)
_QUOTE = "Quote: "
_NOTHING = "Nothing: "


def told(text: str) -> str:
    """The text of a cell. Of one that holds such notes what was quoted, which alone stands in the long text, and then
    what was answered, without the headings and the parts that came to nothing."""
    if _HEADING.match(text) is None:
        return text
    lines = [line for line in _HEADING.sub("", text).splitlines() if line.strip() and not line.startswith(_NOTHING)]
    quoted = [line.removeprefix(_QUOTE) for line in lines if line.startswith(_QUOTE)]
    return "\n".join([*quoted, *(line for line in lines if not line.startswith(_QUOTE))])
