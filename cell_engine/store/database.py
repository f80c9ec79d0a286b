"""Connections, and the statements of `dbt_like_sql/statements`, one file each."""

import re
from functools import cache
from json import JSONDecoder
from pathlib import Path
from typing import Any, TypeAlias

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.rows import namedtuple_row

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
    for name in ("json", "jsonb"):
        connection.adapters.register_loader(name, _JsonLoader)
    return connection


class _JsonLoader(Loader):
    def load(self, data: Buffer) -> Any:
        # What the server sends is one JSON text in UTF-8, without white space around it: `json.loads`, which looks for
        # all of that, takes three times as long (two of them or more a visit).
        return _scan(str(data, "utf-8"), 0)[0]


_scan = JSONDecoder().scan_once  # type: ignore[attr-defined]


@cache
def statement(name: str) -> bytes:
    """The text of one statement file. Raises FileNotFoundError for a name that has none."""
    return (SQL / "statements" / f"{name}.sql").read_bytes()


@cache
def numbered(name: str) -> tuple[bytes, list[str]]:
    """A statement with numbered parameters, as the server takes it, and their names in that order. Where the text is
    long, the driver would look for them in each call anew."""
    text = statement(name).decode()
    names = list(dict.fromkeys(_PARAMETER.findall(text)))
    if names:
        text = _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", text).replace("%%", "%")
    return text.encode(), names


_PARAMETER = re.compile(r"%\((\w+)\)s")


def run(connection: Connection, name: str, /, **parameters: Any) -> Cursor:
    """Execute one statement file. Raises KeyError for a parameter that is missing."""
    text, names = numbered(name)
    cursor = psycopg.RawCursor(connection, row_factory=connection.row_factory)
    return cursor.execute(text, [parameters[one] for one in names] if names else None)
