"""What the processes of one machine are given, and which of them what is secret."""

from pathlib import Path

import pytest

from cell_engine.settings import Settings
from cell_engine.stack.services import plan_services


def test_a_secret_is_in_the_environment_of_who_needs_it_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOFILL_SOURCE_SHOP", "postgresql://u:hunter2@h/shop")
    monkeypatch.setenv("OPENAI_API_KEY", "hunter3")
    plan = plan_services(Settings(home=tmp_path), "postgresql://h/engine")
    holders = {
        secret: [one.name for one in plan.services if secret in one.environment]
        for secret in ("AUTOFILL_SOURCE_SHOP", "OPENAI_API_KEY")
    }
    # Runs are the code server's: those that refresh sources read them.
    assert holders == {"AUTOFILL_SOURCE_SHOP": ["Dagster code server"], "OPENAI_API_KEY": ["worker"]}
    assert not any("hunter" in part for one in plan.services for part in one.command)
