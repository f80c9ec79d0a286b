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
    """A folder that any account can reach, which pytest's own temporary folders are not."""
    folder = Path(tempfile.mkdtemp(prefix="autofill-test-")).resolve()
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def _stopped_in_the_end(home: Path) -> Iterator[Path]:
    """Lets a test do what it likes with a home's server; in the end it is stopped and proven gone."""
    try:
        yield home
        stop(home)
        assert processes_in(home) == []
    finally:
        for process in processes_in(home):
            with suppress(psutil.NoSuchProcess):
                process.kill()


@pytest.fixture
def new_home() -> Iterator[Path]:
    """The home of an installation that has never run."""
    with _reachable_folder() as folder, _stopped_in_the_end(folder / "home") as home:
        yield home


@pytest.fixture(scope="session")
def _used_home() -> Iterator[Path]:
    with _reachable_folder() as folder:
        ensure(folder / "home")
        stop(folder / "home")
        yield folder / "home"


@pytest.fixture
def home(_used_home: Path) -> Iterator[Path]:
    """The home, shared by all tests, of an installation that has run before and is stopped now."""
    with _stopped_in_the_end(_used_home) as home:
        yield home


@pytest.fixture
def spare_home(_used_home: Path) -> Iterator[Path]:
    """A copy of `home` for tests that damage it or change its settings."""
    with _reachable_folder() as folder, _stopped_in_the_end(folder / "home") as home:
        subprocess.run(["cp", "-Rp", _used_home, home], check=True)
        yield home
