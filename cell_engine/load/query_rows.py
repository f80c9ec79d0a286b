"""A query of another PostgreSQL as a source of records: read-only, through a cursor of the server's, in one snapshot.

Where that database is comes from the environment, AUTOFILL_SOURCE_<NAME>, and stands in no file, message or log.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from cell_engine.errors import BadValueError
from cell_engine.load.errors import LoadError
from cell_engine.load.rows import Record, match_columns, record, told_of
from cell_engine.load.sync import Synced, sync_rows
from cell_engine.log import redact_text
from cell_engine.specs.text import Json, clean_text
from cell_engine.specs.version import Column, Version
from cell_engine.store.collections import Collection
from cell_engine.store.database import Connection

PREFIX = "AUTOFILL_SOURCE_"
MOST_ROWS = 20_000_000
_FETCHED_ROWS = 1_000
_SECONDS = 600
_QUERY_BYTES = 1_000_000
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")


@dataclass(frozen=True)
class Query:
    """`text`, asked of the database that AUTOFILL_SOURCE_<NAME> leads to; `label` is what people call it."""

    label: str
    text: str
    name: str
    dsn: str

    def __repr__(self) -> str:
        return f"Query({self.source})"

    @property
    def source(self) -> str:
        return clean_text(f"{self.label} of {self.name}")

    @property
    def key(self) -> str:
        return f"query-{sha256(self.text.encode()).hexdigest()[:16]}"

    def records(self, version: Version) -> Iterator[Record]:
        """Its rows, checked against `version`. Raises LoadError."""
        with self._cursor() as cursor:
            columns = match_columns([one.name for one in cursor.description or ()], version, self.source)
            for number, cells in enumerate(cursor, 1):
                if number > MOST_ROWS:
                    raise LoadError(f"{self.source}: it gives more than {MOST_ROWS:,} rows, which is the most")
                yield _record(number, columns, cells)

    @contextmanager
    def _cursor(self) -> Iterator[psycopg.ServerCursor[tuple[Any, ...]]]:
        # Read-only twice: for the transaction, and for whatever the text may begin after it.
        options = f"-c default_transaction_read_only=on -c statement_timeout={_SECONDS * 1000}"
        try:
            with (
                psycopg.connect(
                    self.dsn, connect_timeout=10, options=options, application_name="autofill source"
                ) as connection,
                psycopg.ServerCursor(connection, "autofill") as cursor,
            ):
                connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                connection.read_only = True
                cursor.itersize = _FETCHED_ROWS
                cursor.execute(self.text.encode())
                yield cursor
        except psycopg.Error as error:
            told = redact_text(str(error)).strip() or type(error).__name__
            raise LoadError(f"{self.source}: {told}") from None


def open_query(file: Path, connection: str) -> Query:
    """Raises LoadError for a file that holds no query, BadValueError for a connection that the environment lacks."""
    dsn = _dsn(connection)
    try:
        raw = file.read_bytes()
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise LoadError(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise LoadError(f"{file}: it is not UTF-8 at offset {error.start:,}") from None
    return _query(file.name, text, connection, dsn)


def named_query(text: str, connection: str) -> Query:
    """As `open_query`, of a text that stands in no file of its own."""
    return _query("query", text, connection, _dsn(connection))


def _query(label: str, text: str, connection: str, dsn: str) -> Query:
    text = text.strip().rstrip(";")
    if not text or len(text.encode()) > _QUERY_BYTES:
        raise LoadError(f"{label}: it holds no query, or more than {_QUERY_BYTES:,} bytes")
    return Query(label, text, connection, dsn)


def _dsn(connection: str) -> str:
    if not _NAME.fullmatch(connection):
        # Not quoted: an address may have been given, with its password.
        raise BadValueError(
            f"--connection takes a name of letters, digits and underscores; {PREFIX}<NAME> in the environment says "
            "where that database is"
        )
    variable = PREFIX + connection.upper()
    dsn = os.environ.get(variable)
    if not dsn:
        raise BadValueError(f"{variable} is not set: it says where the database {connection!r} is, postgresql://…")
    return dsn


def sync_query(
    connection: Connection,
    collection: Collection,
    query: Query,
    *,
    actor: str,
    any_deletes: bool = False,
    apply: bool = True,
) -> Synced:
    """`sync_rows` of what a query gives: all that there shall be."""
    return sync_rows(
        connection,
        collection,
        query.records,
        key=query.key,
        source=query.source,
        actor=actor,
        any_deletes=any_deletes,
        apply=apply,
    )


def _record(number: int, columns: list[Column], cells: tuple[Any, ...]) -> Record:
    row: dict[int, Json] = {}
    faults: list[str] = []
    missing: list[int] = []
    for column, cell in zip(columns, cells, strict=True):
        if cell is None:
            missing.append(column.id)
            continue
        try:
            row[column.id] = column.type.accept(_value(cell, column))
        except BadValueError as error:
            faults.append(f"column {column.name!r}: {error}")
    return record(number, row, faults, missing, partial(told_of, list(zip(columns, cells, strict=True))))


def _value(cell: Any, column: Column) -> Any:
    """What the driver gives, as a type of ours takes it: nothing is rounded, and nothing matched to the nearest."""
    if isinstance(cell, UUID):
        return str(cell)
    if isinstance(cell, Decimal) and cell == cell.to_integral_value() and column.type.name == "integer":
        return int(cell)
    if isinstance(cell, date) and column.type.name == "text":
        return cell.isoformat()
    return cell
