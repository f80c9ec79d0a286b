from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from cell_engine.kinds.function import FunctionKind
from cell_engine.kinds.llm import LlmKind
from cell_engine.offline_model import OfflineModel
from tests.kinds.helpers import ScriptedProvider


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def model() -> AsyncIterator[OfflineModel]:
    async with OfflineModel() as model:
        yield model


@pytest.fixture
async def llm(model: OfflineModel) -> AsyncIterator[LlmKind]:
    """The kind on the offline model."""
    kind = LlmKind(base_url=model.base_url, api_key="unused")
    yield kind
    await kind.close()


@pytest.fixture
async def provider() -> AsyncIterator[ScriptedProvider]:
    async with ScriptedProvider() as provider:
        yield provider


@pytest.fixture
async def scripted(provider: ScriptedProvider) -> AsyncIterator[LlmKind]:
    """The kind on a provider that answers what the test puts into it."""
    kind = LlmKind(base_url=provider.base_url, api_key="sk-secretsecretsecret")
    yield kind
    await kind.close()


@pytest.fixture
async def function() -> AsyncIterator[FunctionKind]:
    kind = FunctionKind()
    yield kind
    await kind.close()
