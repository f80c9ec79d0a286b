from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from cell_engine.embedded import ensure, stop

from .helpers import processes_in


@contextmanager
def _reachable_folder() -> Iterator[Path]:
    """A folder that any account can reach, which pytest's own temporary folders are not; no server is left in it."""
    folder = Path(tempfile.mkdtemp(prefix="autofill-test-")).resolve()
    folder.chmod(0o755)
    try:
        yield folder
        stop(folder / "home")
        assert processes_in(folder) == []
    finally:
        for process in processes_in(folder):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        shutil.rmtree(folder)


@pytest.fixture
def new_home() -> Iterator[Path]:
    """The home of an installation that has never run."""
    with _reachable_folder() as folder:
        yield folder / "home"


@pytest.fixture(scope="session")
def _stopped_home() -> Iterator[Path]:
    with _reachable_folder() as folder:
        ensure(folder / "home")
        stop(folder / "home")
        yield folder / "home"


@pytest.fixture
def home(_stopped_home: Path) -> Iterator[Path]:
    """The home of an installation whose server was stopped."""
    with _reachable_folder() as folder:
        subprocess.run(["cp", "-Rp", _stopped_home, folder / "home"], check=True)
        yield folder / "home"
