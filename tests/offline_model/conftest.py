from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from cell_engine.offline_model import OfflineModel


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def model() -> AsyncIterator[OfflineModel]:
    async with OfflineModel() as model:
        yield model


@pytest.fixture
async def http(model: OfflineModel) -> AsyncIterator[aiohttp.ClientSession]:
    """A session on the running model's root."""
    async with aiohttp.ClientSession(model.base_url.removesuffix("v1")) as session:
        yield session
