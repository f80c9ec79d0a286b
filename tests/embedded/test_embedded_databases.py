"""From settings to a database that every client library of the product can open."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import sqlalchemy
from pydantic import SecretStr

from cell_engine.embedded import database_url, ensure, ensure_database, find_psql, running
from cell_engine.settings import Settings


def test_given_url_starts_nothing(new_home: Path) -> None:
    url = "postgresql://me:secret@db.example/autofill"
    assert database_url(Settings(home=new_home, database_url=SecretStr(url))) == url
    assert not new_home.exists()


def test_embedded_url_opens_everywhere(home: Path) -> None:
    url = database_url(Settings(home=home, database_url=None))
    server = running(home)
    assert server is not None
    assert url == server.dsn("autofill")
    with psycopg.connect(url) as connection:
        assert connection.info.dbname == "autofill"
    engine = sqlalchemy.create_engine(sqlalchemy.make_url(url).set(drivername="postgresql+psycopg"))
    with engine.connect() as alchemy:
        assert alchemy.scalar(sqlalchemy.text("select current_database()")) == "autofill"
    engine.dispose()
    command = [str(find_psql(server.version)), url, "-Atc", "select current_database()"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "autofill\n"


def test_many_create_a_database_at_once(home: Path) -> None:
    server = ensure(home)
    with ThreadPoolExecutor(4) as threads:
        urls = list(threads.map(lambda _: ensure_database(server, "dagster"), range(4)))
    assert urls == [server.dsn("dagster")] * 4
