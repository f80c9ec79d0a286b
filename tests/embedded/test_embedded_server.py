"""The server's life, on real servers: what any account must be able to rely on. Also run as another user."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import psutil
import psycopg
import pytest

from cell_engine.embedded import ensure, ensure_database, running, stop
from cell_engine.errors import AutofillError

from .helpers import alive, kill_server, postmaster_pid, postmasters_in, processes_in, query, start_python, wait_until

ENSURE = "import sys; from pathlib import Path; from cell_engine.embedded import ensure; "
ENSURE += "server = ensure(Path(sys.argv[1])); print((server.data_dir / 'postmaster.pid').read_text().split()[0])"


def test_starts_once_keeps_data_and_stops(new_home: Path) -> None:
    assert running(new_home) is None
    assert stop(new_home) is False
    server = ensure(new_home)
    assert (ensure(new_home), running(new_home)) == (server, server)
    assert ensure_database(server, "Auto fill") == ensure_database(server, "Auto fill") == server.dsn("Auto fill")
    query(server, "create table kept as select 42 as answer", "Auto fill")

    process = psutil.Process(postmaster_pid(server))
    assert stop(new_home) is True
    assert not alive(process)
    assert processes_in(new_home) == []
    assert running(new_home) is None
    assert query(ensure(new_home), "select answer from kept", "Auto fill") == [(42,)]


def test_settings(home: Path) -> None:
    server = ensure(home)
    names = ("listen_addresses", "max_connections", "shared_buffers", "timezone", "fsync", "shared_preload_libraries")
    shown = [query(server, f"show {name}")[0][0] for name in names]
    assert shown == ["", "100", "128MB", "UTC", "on", "pg_stat_statements"]
    assert query(server, "show server_encoding") == [("UTF8",)]
    assert (server.data_dir / "PG_VERSION").read_text().strip() == str(server.version)
    assert server.socket_dir.stat().st_mode & 0o777 == 0o700
    assert server.socket_dir.stat().st_uid == server.data_dir.stat().st_uid


def test_caller_leaves_no_secret_and_takes_nothing_along(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("PGDATA", "/nowhere")
    monkeypatch.setenv("PGPORT", "1")
    server = ensure(home)
    environment = psutil.Process(postmaster_pid(server)).environ()
    assert not {"OPENAI_API_KEY", "PGPORT"} & environment.keys()


def test_full_server_counts_as_running(spare_home: Path) -> None:
    query(ensure(spare_home), "alter system set max_connections = 5")
    stop(spare_home)
    server = ensure(spare_home)
    assert query(server, "show max_connections") == [("5",)], "ALTER SYSTEM wins over our settings"
    connections = []
    try:
        with pytest.raises(psycopg.OperationalError, match="too many clients"):
            for _ in range(6):
                connections.append(psycopg.connect(server.dsn()))
        assert ensure(spare_home) == server
    finally:
        for connection in connections:
            connection.close()


def test_killed_server_recovers(home: Path) -> None:
    server = ensure(home)
    query(server, "create table survivor as select 42 as answer")
    kill_server(server)
    began = time.monotonic()
    assert query(ensure(home), "select answer from survivor") == [(42,)]
    assert time.monotonic() - began < 5


def test_long_computation_of_a_killed_server_is_no_obstacle(home: Path) -> None:
    server = ensure(home)
    busy = psycopg.connect(server.dsn(), autocommit=True)

    def compute() -> None:
        with pytest.raises(psycopg.OperationalError):
            busy.execute("do $$ begin loop perform 1; end loop; end $$")

    thread = threading.Thread(target=compute)
    thread.start()
    loops = "select 1 from pg_stat_activity where query like 'do %' and state = 'active'"
    wait_until(lambda: query(server, loops) != [])
    kill_server(server)
    orphan = psutil.Process(busy.info.backend_pid)

    assert ensure(home) == server
    assert not alive(orphan)
    thread.join(10)
    assert not thread.is_alive()


def test_stop_after_the_server_was_killed(home: Path) -> None:
    server = ensure(home)
    kill_server(server)
    stop(home)
    assert processes_in(home) == []


@pytest.mark.parametrize("stage", ["data.new-*/global", "data", "data/postmaster.pid"])
def test_starter_killed_on_the_way(new_home: Path, stage: str) -> None:
    starter = start_python(ENSURE, new_home)
    wait_until(lambda: list((new_home / "postgres").glob(stage)))
    starter.kill()
    server = ensure(new_home)
    starter.communicate()
    assert query(server, "select 1") == [(1,)]
    assert postmasters_in(new_home) == [postmaster_pid(server)]


def test_many_starters_one_server_that_outlives_them(new_home: Path) -> None:
    starters = [start_python(ENSURE, new_home) for _ in range(3)]
    printed = {starter.communicate(timeout=60)[0] for starter in starters}
    assert [starter.returncode for starter in starters] == [0, 0, 0], printed
    server = running(new_home)
    assert server is not None
    assert printed == {f"{postmaster_pid(server)}\n"}


def test_recycled_pid(home: Path) -> None:
    server = ensure(home)
    text = (server.data_dir / "postmaster.pid").read_text()
    kill_server(server)
    wait_until(lambda: processes_in(home) == [])
    # PostgreSQL takes only processes of its own account for a server that may be running.
    owner = server.data_dir.stat().st_uid
    stranger = subprocess.Popen(["sleep", "60"], user=owner if os.geteuid() == 0 else None)
    try:
        _, *rest = text.splitlines()
        (server.data_dir / "postmaster.pid").write_text("\n".join([str(stranger.pid), *rest]) + "\n")
        assert running(home) is None
        assert query(ensure(home), "select 1") == [(1,)]
        stop(home)
        assert stranger.poll() is None, "a stranger is left alone"
    finally:
        stranger.kill()
        stranger.wait()


def test_pid_file_cut_off(home: Path) -> None:
    server = ensure(home)
    kill_server(server)
    (server.data_dir / "postmaster.pid").write_text("")
    assert ensure(home) == server


def test_half_finished_initdb_and_a_narrow_umask(new_home: Path) -> None:
    new_home.mkdir()
    partial = new_home / "postgres" / "data.new-0123"
    (partial / "global").mkdir(parents=True)
    (partial / "PG_VERSION").write_text("18\n")
    narrow = os.umask(0o077)
    try:
        server = ensure(new_home)
    finally:
        os.umask(narrow)
    assert server.data_dir == new_home / "postgres" / "data"
    assert query(server, "select 1") == [(1,)]
    assert not partial.exists()


def test_long_path_has_its_socket_elsewhere(new_home: Path) -> None:
    long = new_home / ("x" * 100) / "comma, space and ü"
    server = ensure(long)
    try:
        assert not server.socket_dir.is_relative_to(new_home)
        assert query(server, "select 1") == [(1,)]
        assert ensure(long) == server

        for file in server.socket_dir.iterdir():  # what cleans up /tmp
            file.unlink()
        assert running(long) is None
        assert query(ensure(long), "select 1") == [(1,)]

        query(server, "create table gone ()")
        shutil.rmtree(long)  # and its server has not noticed yet
        assert running(long) is None
        assert query(ensure(long), "select to_regclass('gone')") == [(None,)]
        assert postmasters_in(new_home) == [postmaster_pid(server)]
        kill_server(server)
    finally:
        stop(long)
    assert not server.socket_dir.exists()


def test_data_of_another_version_is_refused(spare_home: Path) -> None:
    server = ensure(spare_home)
    stop(spare_home)
    (server.data_dir / "PG_VERSION").write_text("9\n")
    with pytest.raises(AutofillError, match=r"created by PostgreSQL 9; no other version can open it.*AUTOFILL_HOME"):
        ensure(spare_home)
    (server.data_dir / "PG_VERSION").unlink()
    with pytest.raises(AutofillError, match="not a PostgreSQL data directory"):
        ensure(spare_home)


def test_start_failure_shows_the_log(spare_home: Path) -> None:
    server = ensure(spare_home)
    stop(spare_home)
    with (server.data_dir / "postgresql.auto.conf").open("a") as settings:
        settings.write("shared_preload_libraries = 'no_such_library'\n")
    with pytest.raises(AutofillError, match="no_such_library"):
        ensure(spare_home)


def test_ctrl_c_of_the_starter_does_not_reach_the_server(home: Path) -> None:
    code = ENSURE + "; import os, signal; os.killpg(0, signal.SIGINT)"
    starter = start_python(code, home, before=("setsid",))
    starter.communicate(timeout=60)
    assert starter.returncode == -signal.SIGINT
    assert running(home) is not None
