"""Root, other users, and what they can and cannot reach."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from cell_engine.embedded import ensure, place, running, stop
from cell_engine.embedded.account import default_account
from cell_engine.errors import AutofillError

from .helpers import PROJECT, postmaster_pid, query, start_python

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has to lend the server another account")

ENSURE_AND_STOP = """
import sys
from pathlib import Path
from cell_engine.embedded import ensure, stop
home = Path(sys.argv[1])
ensure(home), ensure(home), stop(home)
"""


@pytest.fixture
def reachable_by_all(new_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where root's servers go if their home is closed, in place of the real folder of this machine."""
    monkeypatch.setattr(place, "REACHABLE_BY_ALL", new_home.parent / "everyone")
    return new_home.parent / "everyone"


@pytest.fixture
def closed_home(new_home: Path, reachable_by_all: Path) -> Path:
    """A home below a folder that only its owner can enter, as everything below /root."""
    home = new_home / "closed" / "project" / ".autofill"
    home.parent.mkdir(parents=True)
    (new_home / "closed").chmod(0o700)
    return home


def run_as_nobody(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python as nobody with what this test run imports. Skips where nobody cannot reach an interpreter or them."""
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        pytest.skip("this system has no user 'nobody'")
    environment = {
        "HOME": "/nonexistent",
        "PATH": os.defpath,
        "PYTHONPATH": os.pathsep.join([str(PROJECT), *(entry for entry in sys.path if "site-packages" in entry)]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }

    def run(interpreter: str, *command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [interpreter, *command],
            cwd="/",
            env=environment,
            capture_output=True,
            text=True,
            user=nobody.pw_uid,
            group=nobody.pw_gid,
            extra_groups=[],
        )

    for interpreter in (sys.executable, shutil.which("python3", path=os.defpath)):
        try:
            if (
                interpreter
                and run(interpreter, "-c", "import cell_engine.embedded, psycopg_binary, pytest").returncode == 0
            ):
                return run(interpreter, *arguments)
        except PermissionError:
            continue
    pytest.skip("user 'nobody' can reach no Python that loads this project's packages")


@as_root
def test_life_of_a_server_as_nobody() -> None:
    chosen = "keeps_data or killed_server_recovers or (killed_on_the_way and global) or recycled_pid"
    ended = run_as_nobody(
        *("-m", "pytest", PROJECT / "tests/embedded/test_embedded_server.py", "-k", chosen),
        *("-p", "no:cacheprovider", f"--rootdir={PROJECT}", f"--confcutdir={PROJECT / 'tests/embedded'}"),
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "4 passed" in ended.stdout


@as_root
def test_root_lends_another_account(home: Path) -> None:
    server = ensure(home)
    process = psutil.Process(postmaster_pid(server))
    assert process.uids().real == server.data_dir.stat().st_uid != 0
    assert process.gids().real != 0
    assert query(server, "select 1") == [(1,)]


@as_root
def test_closed_home(closed_home: Path, reachable_by_all: Path) -> None:
    above = [*closed_home.parents]
    modes = [folder.stat().st_mode for folder in above]
    server = ensure(closed_home)
    try:
        assert server.data_dir.is_relative_to(reachable_by_all)
        query(server, "create table kept as select 42 as answer")
        assert [folder.stat().st_mode for folder in above] == modes
        assert running(closed_home) == ensure(closed_home) == server

        closed_home.parents[1].chmod(0o755)  # the data stays where it is
        assert stop(closed_home) is True
        moved = closed_home.rename(closed_home.with_name("moved"))
        assert query(ensure(moved), "select answer from kept") == [(42,)]
        stop(moved)
        shutil.rmtree(moved)  # which is how people start afresh
        assert running(closed_home) is None
        assert list(reachable_by_all.iterdir()) == [server.data_dir.parent]
    finally:
        stop(closed_home)


@as_root
def test_closed_home_and_no_other_place(closed_home: Path, reachable_by_all: Path) -> None:
    reachable_by_all.mkdir()
    reachable_by_all.chmod(0o700)
    place.REACHABLE_BY_ALL /= "below"
    with pytest.raises(AutofillError, match=r"can reach neither .* Set AUTOFILL_HOME"):
        ensure(closed_home)


@as_root
def test_data_behind_a_closed_door(home: Path) -> None:
    home.chmod(0o700)
    try:
        with pytest.raises(AutofillError, match="cannot reach that folder"):
            ensure(home)
    finally:
        home.chmod(0o755)


@as_root
def test_data_of_root(home: Path) -> None:
    data = home / "postgres" / "data"
    owner = data.stat().st_uid
    os.chown(data, 0, -1)
    try:
        with pytest.raises(AutofillError, match=r"belongs to root.*chown -R"):
            ensure(home)
    finally:
        os.chown(data, owner, -1)


@as_root
def test_data_of_somebody_else(home: Path) -> None:
    ended = run_as_nobody("-c", ENSURE_AND_STOP, home)
    assert "nobody" not in home.owner()
    assert "AutofillError" in ended.stderr
    assert "belongs to user id" in ended.stderr or "postgres is missing" in ended.stderr


@as_root
def test_home_of_somebody_else(new_home: Path) -> None:
    new_home.mkdir()
    ended = run_as_nobody("-c", ENSURE_AND_STOP, new_home)
    assert "Set AUTOFILL_HOME to a folder that you can write to" in ended.stderr


@as_root
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv to drop a capability")
def test_root_of_a_container(home: Path) -> None:
    """Containers take CAP_SYS_PTRACE from root, and with it the sight of other accounts' working directories."""
    without = ("setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace")
    first = start_python(ENSURE_AND_STOP, home, before=without)
    output, _ = first.communicate(timeout=60)
    assert (first.returncode, output) == (0, "")


@as_root
def test_server_of_another_container_is_left_alone(home: Path) -> None:
    elsewhere = ("unshare", "--pid", "--fork", "--mount-proc")
    if subprocess.run([*elsewhere, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("cannot create a pid namespace here")
    server = ensure(home)
    other = start_python(ENSURE_AND_STOP, home, before=elsewhere)
    output, _ = other.communicate(timeout=60)
    assert "perhaps in another container, still serves the database" in output
    assert query(server, "select 1") == [(1,)]


def test_socket_folder_taken_by_somebody_else(tmp_path: Path) -> None:
    long = place.Place(tmp_path / ("x" * 100))
    long.socket_dir.symlink_to(tmp_path)
    try:
        with pytest.raises(AutofillError, match="Remove it, or set AUTOFILL_HOME"):
            long.give_socket_dir(default_account())
    finally:
        long.socket_dir.unlink()
