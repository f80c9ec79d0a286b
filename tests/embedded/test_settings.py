from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from cell_engine import settings
from cell_engine.errors import BadValueError
from cell_engine.settings import Settings, get_settings


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AUTOFILL_HOME", "AUTOFILL_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)


def test_defaults_to_the_checkout() -> None:
    assert get_settings() == Settings(home=Path(__file__).resolve().parents[2] / ".autofill", database_url=None)


@pytest.mark.parametrize("neighbour", [None, "[project]\nname = 'other'\n", "not toml"])
def test_defaults_to_the_current_folder_when_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, neighbour: str | None
) -> None:
    if neighbour is not None:
        (tmp_path / "pyproject.toml").write_text(neighbour)
    monkeypatch.setattr(settings, "__file__", str(tmp_path / "cell_engine" / "settings.py"))
    monkeypatch.chdir(tmp_path / "..")
    assert get_settings().home == tmp_path.parent.resolve() / ".autofill"


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOFILL_HOME", "~/cells")
    monkeypatch.setenv("AUTOFILL_DATABASE_URL", "postgresql://me:secret@db/autofill")
    monkeypatch.setenv("HOME", "/home/me")
    given = get_settings()
    assert given.home == Path("/home/me/cells")
    assert given.database_url == SecretStr("postgresql://me:secret@db/autofill")
    assert "secret" not in repr(given)


def test_empty_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOFILL_HOME", "")
    monkeypatch.setenv("AUTOFILL_DATABASE_URL", "")
    assert get_settings().database_url is None
    assert get_settings().home.name == ".autofill"


def test_wrong_url_is_named_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOFILL_DATABASE_URL", "mysql://me:secret@db/autofill")
    with pytest.raises(BadValueError, match=r"AUTOFILL_DATABASE_URL: .*must be a URL such as postgresql://") as caught:
        get_settings()
    assert "me:secret" not in str(caught.value)


@pytest.mark.parametrize("wrong", ["acme.cells.", "*", "acme-cells", "acme.*:f", "a:"])
def test_what_is_no_function_and_no_module_is_named(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setenv("AUTOFILL_FUNCTIONS", f"acme.cells, {wrong}")
    with pytest.raises(BadValueError, match=r"AUTOFILL_FUNCTIONS: .*is neither a module"):
        get_settings()
    monkeypatch.setenv("AUTOFILL_FUNCTIONS", "acme.cells,acme.*, other:Class.f,")
    assert get_settings().functions == ("acme.cells", "acme.*", "other:Class.f")
