from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cell_engine.cli.main import app
from cell_engine.demo.confirm import describe, estimate
from cell_engine.specs.compile import compile_text

SPEC = """\
namespace: test
name: packages
columns:
  - {name: readme, type: text}
  - {name: licence, type: text}
  - {name: summary, type: text, kind: llm, llm: {model: small, prompt: "{{readme}}"}}
  - name: family
    type: text
    kind: llm
    deps: [{column: licence, optional: true}]
    llm: {model: large, prompt: "{{licence}}"}
  - {name: audience, type: text, kind: llm, llm: {model: small, prompt: "{{summary}}"}}
"""


def row(readme: str | None, licence: str | None = None) -> dict[str, str | None]:
    return {"readme": readme, "licence": licence}


def test_calls_are_those_whose_required_inputs_are_there() -> None:
    spec = compile_text(SPEC)
    assert estimate(spec, [row("x"), row("y", "MIT"), row("z")]).calls == 9
    # A row without README: its summary is blocked; the audience is estimated all the same, being "at most".
    assert estimate(spec, [row(None)]).calls == 2
    assert estimate(spec, [row("x")]).models == ("small", "large")


def test_tokens_follow_the_characters() -> None:
    spec = compile_text(SPEC)
    short, long = estimate(spec, [row("")]), estimate(spec, [row("x" * 4_000)])
    assert long.tokens_in - short.tokens_in == 1_000


def test_the_question_names_the_api_and_no_secret() -> None:
    found = estimate(compile_text(SPEC), [row("x")])
    assert "https://api.openai.com/v1" in describe(found, {})
    told = describe(found, {"OPENAI_BASE_URL": "https://me:hunter2@host/v1"})
    assert "@host/v1" in told
    assert "hunter2" not in told


@pytest.fixture
def real_api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    monkeypatch.setenv("AUTOFILL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-real-one")
    return monkeypatch


def test_without_anybody_to_ask_nothing_is_started(real_api: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["demo"])
    assert result.exit_code == 2
    assert "say --yes" in result.stderr
    assert "gpt-5-mini at https://api.openai.com/v1" in result.stdout
    assert "sk-not" not in result.output
    assert not (tmp_path / "home").exists()


def test_a_base_url_needs_a_key_beside_it(real_api: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real_api.delenv("OPENAI_API_KEY")
    real_api.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    result = CliRunner().invoke(app, ["demo", "--yes"])
    assert result.exit_code == 2
    assert "OPENAI_API_KEY is not" in result.stderr
    assert not (tmp_path / "home").exists()


def test_what_it_costs_is_said_where_every_model_has_a_price() -> None:
    assert "about an unknown amount" in describe(estimate(compile_text(SPEC), [row("x")]), {})
    priced = SPEC.replace("model: small", "model: gpt-5-mini").replace("model: large", "model: gpt-5-nano")
    found = estimate(compile_text(priced), [row("x" * 4_000_000)])
    assert found.cost is not None
    assert 0.25 < found.cost / 1e9 < 0.26
    assert "about $0.25" in describe(found, {})
