from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cell_engine.cli.main import app
from cell_engine.demo.confirm import estimate
from cell_engine.demo.registry import OFFERED, find_demo
from cell_engine.specs.compile import compile_file


def test_a_demo_that_is_none_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOFILL_HOME", str(tmp_path / "home"))
    result = CliRunner().invoke(app, ["demo", "nope"])
    assert result.exit_code == 2
    assert "no demo 'nope'; there are: packages" in result.stderr
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("offered", OFFERED, ids=lambda one: one.name)
def test_every_demo_compiles_and_can_be_estimated(offered: object) -> None:
    found = find_demo(getattr(offered, "name", ""))
    assert found is offered
    assert found is not None
    spec = compile_file(found.spec_file)
    assert (spec.namespace, spec.name) == ("demo", found.name)
    assert estimate(spec, found.largest_rows(spec)).calls > 0
