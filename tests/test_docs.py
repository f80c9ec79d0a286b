"""What the documents say of tests is so."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = frozenset(
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
)


@pytest.mark.parametrize("page", ["rules.md", "cases.md"])
def test_every_test_that_is_named_exists(page: str) -> None:
    named = re.findall(r"`(test_\w+)(…?)`", (ROOT / "docs" / page).read_text())
    assert named
    for name, cut in named:
        assert name in TESTS or (cut and any(one.startswith(name) for one in TESTS)), name
