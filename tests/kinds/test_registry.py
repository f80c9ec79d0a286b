"""Kinds by job type."""

from __future__ import annotations

import pytest

from cell_engine.errors import NotFoundError
from cell_engine.kinds import JOB_TYPES, make_kinds
from cell_engine.specs.settings_models import SETTINGS_MODELS

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_each_kind_knows_its_job_type() -> None:
    kinds = make_kinds(JOB_TYPES)
    assert {job_type: kind.name for job_type, kind in kinds.items()} == {name: name for name in JOB_TYPES}
    for kind in kinds.values():
        await kind.close()


def test_an_unknown_job_type_is_told_with_the_known_ones() -> None:
    with pytest.raises(NotFoundError, match="'fetsch': this worker knows extract, fetch, function, llm"):
        make_kinds(["llm", "fetsch"])


def test_what_a_spec_may_name_is_what_can_be_computed() -> None:
    assert set(SETTINGS_MODELS) == set(JOB_TYPES)
