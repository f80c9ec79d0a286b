from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

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


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@pytest.fixture
async def tls_port() -> AsyncIterator[int]:
    """A server on loopback whose certificate, made for these tests, nobody vouches for."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(Path(__file__).with_name("self_signed.pem"))
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]
