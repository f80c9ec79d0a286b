"""The Dagster instance: prepared by any process, without a password in any file, and loadable as it is."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import dagster as dg
import psycopg
import pytest
import sqlalchemy
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from autofill_defs import serve
from autofill_defs.instance import URL_VARIABLE, environment, prepare_instance, socket_path, with_driver
from autofill_defs.launcher import LocalRunLauncher
from cell_engine.errors import AutofillError, UnreachableError
from cell_engine.settings import Settings


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    with TemporaryDirectory() as folder:  # its path is short enough for a socket's, as most homes' are
        yield Settings(home=Path(folder, "home"))


def test_it_is_prepared_by_several_at_once_and_dagster_loads_it(
    settings: Settings, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadPoolExecutor() as pool:
        homes = set(pool.map(lambda _: prepare_instance(settings, database), range(8)))
    [home] = homes
    assert sorted(path.name for path in home.iterdir()) == ["dagster.yaml", "run", "workspace.yaml"]
    for name, value in environment(settings, database).items():
        monkeypatch.setenv(name, value)
    try:
        with dg.DagsterInstance.get() as instance:
            assert instance.root_directory == str(home)
            assert isinstance(instance.run_launcher, LocalRunLauncher)
            assert type(instance.event_log_storage).__name__ == "BatchingEventLogStorage"
            assert instance.run_monitoring_enabled
            assert instance.run_retries_max_retries == 5
            assert not instance.run_retries_retry_on_asset_or_op_failure
            assert not instance.telemetry_enabled
            assert instance.get_runs() == []
    finally:
        with psycopg.connect(database, autocommit=True) as connection:
            name = connection.info.dbname
            connection.execute(f'drop database "{name}_dagster" with (force)'.encode())


def test_the_url_of_a_production_server_keeps_its_options() -> None:
    given = "postgresql://us%20er:p%40ss%2Fw@db.example:6543/autofill?sslmode=require&target_session_attrs=read-write"
    url = sqlalchemy.make_url(environment(Settings(), given)[URL_VARIABLE])
    assert url.drivername == "postgresql+psycopg2"
    assert (url.username, url.password, url.database) == ("us er", "p@ss/w", "autofill_dagster")
    arguments, options = url.get_dialect()().create_connect_args(url)
    assert make_conninfo(*arguments, **{name: value for name, value in options.items() if name != "dbname"})
    assert (options["host"], str(options["port"])) == ("db.example", "6543")
    assert (options["sslmode"], options["target_session_attrs"]) == ("require", "read-write")


def test_a_database_given_for_dagster_is_taken_whatever_its_driver(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for scheme in ("postgresql", "postgresql+psycopg2", "postgres"):
        monkeypatch.setenv(URL_VARIABLE, f"{scheme}://u:p@elsewhere/dags")
        nowhere = f"postgresql:///none?host={tmp_path}"
        prepare_instance(settings, nowhere)  # asks no server to make one
        url = sqlalchemy.make_url(with_driver(environment(settings, nowhere)[URL_VARIABLE]))
        assert (url.drivername, url.database, url.query["host"]) == ("postgresql+psycopg2", "dags", "elsewhere")


def test_no_file_holds_the_password(settings: Settings, database: str) -> None:
    secret = Settings(home=settings.home, database_url=SecretStr("postgresql://u:hunter2@db.example/autofill"))
    os.environ[URL_VARIABLE] = "postgresql://u:hunter2@db.example/dagster"
    try:
        home = prepare_instance(secret, "postgresql://u:hunter2@db.example/autofill")
    finally:
        del os.environ[URL_VARIABLE]
    assert not any(b"hunter2" in path.read_bytes() for path in home.rglob("*") if path.is_file())
    for role in ("code-server", "daemon", "webserver"):
        assert not any("hunter2" in part for part in serve.command(role, secret))


def test_a_deep_home_still_has_a_socket(tmp_path: Path) -> None:
    near, far = socket_path(Settings(home=Path("/srv/a"))), socket_path(Settings(home=tmp_path / ("x" * 90)))
    assert near == Path("/srv/a/dagster/run/code.sock")
    assert len(os.fsencode(far)) < 100


def test_the_module_prints_the_home(settings: Settings, database: str) -> None:
    given = {"AUTOFILL_HOME": str(settings.home), "AUTOFILL_DATABASE_URL": database}
    command = [sys.executable, "-m", "autofill_defs.instance"]
    done = subprocess.run(command, env=os.environ | given, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(settings.home / "dagster")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f'drop database "{connection.info.dbname}_dagster"'.encode())
    failed = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    assert failed.returncode == 2
    assert "AUTOFILL_DATABASE_URL" in failed.stderr


def test_preparing_needs_no_dagster() -> None:
    script = "import sys, autofill_defs.instance, autofill_defs.serve; print('dagster' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_an_instance_without_its_database_is_refused_and_a_check_without_an_instance_is_not(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AUTOFILL_HOME", str(settings.home))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    (tmp_path / "dagster.yaml").write_bytes((Path(serve.__file__).parents[1] / "dagster.yaml").read_bytes())
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert instance.get_runs() == []
    assert (settings.home / "dagster" / "sqlite").is_dir()
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with pytest.raises(AutofillError, match=URL_VARIABLE), dg.DagsterInstance.get() as instance:
        instance.get_runs()


def test_a_server_that_is_away_is_told_without_a_traceback(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    with pytest.raises(UnreachableError, match="AUTOFILL_DATABASE_URL"):
        prepare_instance(settings, f"postgresql:///none?host={settings.home}")


def test_a_second_code_server_does_not_take_the_socket_of_the_first(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOFILL_HOME", str(settings.home))
    monkeypatch.setenv("AUTOFILL_DATABASE_URL", "postgresql:///none")
    monkeypatch.setattr(sys, "argv", ["serve", "code-server"])
    path = socket_path(settings)
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as first:
        first.bind(str(path))
        first.listen()
        with pytest.raises(AutofillError, match="one is enough"):
            serve.main()
