from __future__ import annotations

from pathlib import Path

import pytest

from cell_engine.kinds import registry
from cell_engine.specs import settings_models
from cell_engine.worker import patience
from tests.files.reading import ReadingKind, ReadingSettings


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settled_files: None) -> Path:
    """The root of a collection `test/contracts`; its columns of kind `reading` give the text of files."""
    monkeypatch.setenv("AUTOFILL_FILES", str(tmp_path / "files"))
    monkeypatch.setitem(settings_models.SETTINGS_MODELS, "reading", ReadingSettings)
    monkeypatch.setitem(registry._KINDS, "reading", ReadingKind)
    monkeypatch.setattr(patience, "LOOK_SECONDS", (0.2, 0.2))
    ReadingKind.looks.clear()
    folder = tmp_path / "files" / "contracts"
    folder.mkdir(parents=True)
    return folder
