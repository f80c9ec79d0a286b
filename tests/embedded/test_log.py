from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from cell_engine.log import configure_logging, dispatch_bound, get_logger, redact, redact_text


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:HIDE@db:5432/autofill",
        "postgresql://:HIDE@db/autofill",
        "cannot connect to postgresql+psycopg://me:p@HIDE/x@db/autofill?sslmode=require",
        "https://host/v1?api_key=HIDE&model=m",
        "host=db password=HIDE dbname=autofill",
        "host=db password='HIDE and more HIDE' dbname=autofill",
        '{"api_key": "HIDE", "model": "m"}',
        "{'Authorization': 'Bearer HIDE'}",
        "Authorization: Basic HIDE=",
        "sent Bearer HIDE",
        "Incorrect API key provided: sk-HIDE-HIDE_HIDE. You can find your key at https://example.com",
        "Incorrect API key provided: sk-HIDE****************HIDE.",
        "OPENAI_API_KEY=HIDE",
        "refresh_token=HIDE access-token: HIDE client_secret=HIDE",
    ],
)
def test_credentials_in_text(text: str) -> None:
    redacted = redact_text(text)
    assert "HIDE" not in redacted
    assert "***" in redacted


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:8000/v1/chat",
        "https://example.com/a@b",
        "tokens_in=12 max_tokens: 300 tokens: 5",
        "a task-management risk-assessment disk-usage123",
        "the basics of passwords and secrets",
        "mail me@example.com",
    ],
)
def test_other_text_is_untouched(text: str) -> None:
    assert redact_text(text) == text


@given(st.text())
def test_any_text_is_redacted_once(text: str) -> None:
    assert redact_text(redact_text(text)) == redact_text(text)


@given(
    st.text(alphabet=st.characters(exclude_characters="\"'<> \t\r\n\x0b\x0c", categories=["L", "N", "P"]), min_size=1)
)
def test_any_password_of_a_url(password: str) -> None:
    assert redact_text(f"postgresql://user:{password}@host/autofill") == "postgresql://user:***@host/autofill"


def test_values_at_any_depth() -> None:
    given = {
        "api_key": "k",
        "X-Api-Key": 12345,
        "claimToken": "t",
        "Authorization": None,
        "db_password": ["a"],
        "tokens_in": 12,
        "tokenizer": "cl100k",
        "settings": [{"secret": "s", "url": SecretStr("hidden")}, ("sk-abcdefghijkl", 1.5)],
        "error": ValueError("password=hidden"),
        "path": Path("/tmp/x"),
        "id": UUID(int=0),
    }
    assert redact(given) == {
        "api_key": "***",
        "X-Api-Key": "***",
        "claimToken": "***",
        "Authorization": None,
        "db_password": "***",
        "tokens_in": 12,
        "tokenizer": "cl100k",
        "settings": [{"secret": "***", "url": "SecretStr('**********')"}, ["sk-***", 1.5]],
        "error": "ValueError: password=***",
        "path": "/tmp/x",
        "id": UUID(int=0),
    }


@pytest.mark.parametrize("as_json", [False, True])
def test_quiet_redacted_and_on_stderr(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    configure_logging(verbose=False, json=as_json)
    logger = get_logger("engine")
    logger.info("not shown")
    try:
        secret = "local-variable"  # noqa: F841 - must not be printed
        raise RuntimeError("cannot reach postgresql://me:hidden@db")
    except RuntimeError:
        logger.warning("shown postgresql://me:hidden@db", key="sk-hidden-hidden", exc_info=True)
    logging.getLogger("library").info("not shown")
    logging.getLogger("library").warning("library says %s", "password=hidden")
    out, err = capsys.readouterr()
    assert out == ""
    assert "not shown" not in err
    assert "hidden" not in err
    assert "= 'local-variable'" not in err
    assert "RuntimeError" in err
    assert "library says password=***" in err
    if as_json:
        entries = [json.loads(line) for line in err.splitlines()]
        assert [entry["level"] for entry in entries] == ["warning", "warning"]
        assert entries[0]["event"] == "shown postgresql://me:***@db"
        assert entries[0]["timestamp"].endswith("Z")
        assert entries[0]["module"] == "engine"


def test_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(verbose=True, json=False)
    get_logger("engine").info("shown")
    assert "shown" in capsys.readouterr().err


def test_unconfigured_process_is_quiet_and_redacted(capsys: pytest.CaptureFixture[str]) -> None:
    logger = get_logger("engine")
    logger.info("not shown")
    logger.warning("shown", password="hidden")
    out, err = capsys.readouterr()
    assert (out, "not shown" in err, "shown" in err, "hidden" in err) == ("", False, True, False)


def test_dispatch_follows_its_task(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging(verbose=True, json=True)

    async def visit(dispatch: int) -> None:
        with dispatch_bound(dispatch):
            await asyncio.sleep(0)
            get_logger("engine").info("visited", row=dispatch * 10)
        get_logger("engine").info("left", row=dispatch * 10)

    async def both() -> None:
        await asyncio.gather(visit(1), visit(2))

    asyncio.run(both())
    entries = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert {(entry["event"], entry["row"], entry.get("dispatch")) for entry in entries} == {
        ("visited", 10, 1),
        ("visited", 20, 2),
        ("left", 10, None),
        ("left", 20, None),
    }
