"""Typed columns against a real OpenAI-compatible server: llama.cpp's own, with a small real model (make test-llama).

The model is a base model of 270 million parameters: what it answers is of no use, and is not tested. What is: that a
server which is not ours takes what we send, holds the model to our schemas, and that whatever it answers becomes an
answer of the column's type or the failure that it is.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from cell_engine.kinds.base import Call, Failure, Outcome
from cell_engine.kinds.evidence import Text
from cell_engine.kinds.llm import LlmKind
from cell_engine.specs.types import ColumnType
from tests.kinds.helpers import call, llm_column

PYTHON = os.environ.get("AUTOFILL_LLAMA_PYTHON")
TOKENS = 64
KEY = "a-key-of-no-known-form"
LEASE = "The lease between Acme Ltd and Bolt GmbH begins on 2024-05-03. The rent is 1250 EUR a month."
EXAMPLE_TEXT = "The lease of Lime SA begins on 2020-01-31. The rent is 900 EUR a month."

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(PYTHON is None, reason="needs the wheels of requirements-llama.lock: make test-llama"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("llama")
    arguments = [str(PYTHON), str(Path(__file__).with_name("server.py")), str(folder / "model.gguf"), KEY]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    assert server.stdout is not None
    assert server.stdin is not None
    try:
        said = server.stdout.readline().strip()
        assert said.startswith("http://127.0.0.1:"), (folder / "log").read_text()[-2000:]
        yield f"{said}/v1"
    finally:
        server.stdin.close()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@pytest.fixture
async def kind(address: str) -> AsyncIterator[LlmKind]:
    kind = LlmKind(base_url=address, api_key=KEY)
    yield kind
    await kind.close()


def asked(column_type: ColumnType, question: str, text: str = LEASE, **settings: Any) -> Call:
    prompt: list[Any] = [f"{question}\n", {"column": 1}]
    column = llm_column(
        column_type, **{"prompt": prompt, "temperature": 0, "max_tokens": TOKENS, "seed": 1, **settings}
    )
    return call(column, text, deadline=300)


def check_bill(outcome: Outcome) -> None:
    assert outcome.tokens_in > 20
    assert 0 < outcome.tokens_out <= 3 * TOKENS
    assert str(outcome.model).endswith("model.gguf")


@pytest.mark.parametrize(
    ("column_type", "question"),
    [
        (ColumnType("choice", ("lease", "sale")), "Is this a lease or a sale?"),
        (ColumnType("boolean"), "Is a rent named?"),
        (ColumnType("integer"), "How high is the rent?"),
        (ColumnType("list", ("rent", "date", "colour"), "choice"), "What is named?"),
    ],
    ids=lambda one: one.name if isinstance(one, ColumnType) else "",
)
async def test_what_the_schema_bounds_is_answered(kind: LlmKind, column_type: ColumnType, question: str) -> None:
    outcome = await kind.compute(asked(column_type, question))
    check_bill(outcome)
    if isinstance(outcome, Failure):  # a list, or digits, without end
        assert (column_type.name in ("list", "integer"), outcome.error_class) == (True, "truncated"), outcome
    else:
        assert column_type.accept(outcome.value) == outcome.value


@pytest.mark.parametrize(
    ("column_type", "question"),
    [
        (ColumnType("text"), "Who rents?"),
        (ColumnType("date"), "When does it begin?"),
        (ColumnType("number", currency="EUR"), "How high is the rent?"),
    ],
    ids=lambda one: one.name if isinstance(one, ColumnType) else "",
)
async def test_evidence_is_verified_or_the_answer_is_refused(
    kind: LlmKind, column_type: ColumnType, question: str
) -> None:
    example = {
        "text": "Lime SA", "date": "2020-01-31", "number": 900,
    }[column_type.name]  # fmt: skip
    quote = {"text": "lease of Lime SA", "date": "begins on 2020-01-31", "number": "900 EUR"}[column_type.name]
    examples = [
        {"inputs": {"a": EXAMPLE_TEXT}, "output": example, "not_found": None,
         "evidence": [{"column": "a", "quote": quote}]},
        {"inputs": {"a": "Nothing is agreed."}, "output": None, "not_found": "nothing is agreed", "evidence": []},
    ]  # fmt: skip
    outcome = await kind.compute(asked(column_type, question, evidence="required", examples=examples))
    check_bill(outcome)
    print(column_type.name, outcome)
    if isinstance(outcome, Failure):
        assert outcome.error_class in ("unsupported", "schema", "truncated"), outcome
    elif outcome.not_found is None:
        assert column_type.accept(outcome.value) == outcome.value
        assert outcome.details is not None
        for one in outcome.details["evidence"]:  # type: ignore[union-attr]
            assert isinstance(one, dict)
            assert Text(LEASE).locate(str(one["quote"])) is not None


async def test_what_does_not_fit_into_the_context_is_too_long(kind: LlmKind) -> None:
    outcome = await kind.compute(asked(ColumnType("boolean"), "Is a rent named?", LEASE * 300))
    assert isinstance(outcome, Failure)
    assert outcome.error_class == "too_long", outcome


async def test_a_wrong_key_is_auth_and_is_not_repeated(address: str) -> None:
    kind = LlmKind(base_url=address, api_key="the-wrong-key-of-no-form")
    try:
        outcome = await kind.compute(asked(ColumnType("boolean"), "Is a rent named?"))
    finally:
        await kind.close()
    assert isinstance(outcome, Failure)
    assert outcome.error_class == "auth"
    assert "the-wrong-key" not in outcome.message
