"""Connections, and the statements of `dbt_like_sql/statements`, one file each."""

from functools import cache
from json import JSONDecoder
from pathlib import Path
from typing import Any, TypeAlias

import psycopg
from psycopg.rows import namedtuple_row
from psycopg.types.json import set_json_loads

SQL = Path(__file__).parents[2] / "dbt_like_sql"

# Rows are named tuples whose fields are the statement's columns; SQL's types are not mypy's to check.
Connection: TypeAlias = psycopg.Connection[Any]
Cursor: TypeAlias = psycopg.Cursor[Any]


def connect(url: str, *, application: str, statement_timeout: float = 0) -> Connection:
    """An autocommit connection; transactions are opened where they are meant. `statement_timeout` is seconds, 0 = none.

    Raises psycopg.OperationalError when the server cannot be reached.
    """
    # Batches are found by key, in pages that are mostly cached: at the default cost of a random page, a few hundred
    # probes are held to be dearer than reading the whole of `work`.
    settings = {
        "statement_timeout": round(statement_timeout * 1000),
        "idle_in_transaction_session_timeout": 60_000,
        "random_page_cost": 1.1,
    }
    connection = psycopg.connect(
        url,
        autocommit=True,
        row_factory=namedtuple_row,
        application_name=f"autofill {application}",
        connect_timeout=10,
        options=" ".join(f"-c {name}={value}" for name, value in settings.items()),
    )
    set_json_loads(_load_json, connection)
    return connection


def _load_json(data: str | bytes) -> Any:
    # What the server sends is one JSON text in UTF-8, without white space around it: `json.loads`, which looks for all
    # of that, takes twice as long (five of them a visit).
    return _DECODER.raw_decode(data if isinstance(data, str) else str(data, "utf-8"))[0]


_DECODER = JSONDecoder()


@cache
def statement(name: str) -> bytes:
    """The text of one statement file. Raises FileNotFoundError for a name that has none."""
    return (SQL / "statements" / f"{name}.sql").read_bytes()


def run(connection: Connection, name: str, /, **parameters: Any) -> Cursor:
    """Execute one statement file. Prepared from the first call on: each is sent many times or not at all."""
    return connection.execute(statement(name), parameters or None)
