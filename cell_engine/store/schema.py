"""Which schemas this code works with: `check` refuses a database out of range, naming both numbers.

Migrations expand first and contract later, so old and new processes run side by side: a process works with the schema
it ships and with newer ones, until a contracting migration raises `autofill.schema_range`. With older ones it does not:
its statements name what those lack. So a release begins with `autofill migrate`.
"""

from functools import cache

from cell_engine.errors import SchemaVersionError
from cell_engine.store.database import SQL, Connection, run


@cache
def newest() -> int:
    """The schema that this code ships: the number of its last migration file."""
    return max(int(path.name[:4]) for path in (SQL / "migrations").glob("[0-9]*.sql"))


def check(connection: Connection) -> None:
    """Raises SchemaVersionError, naming both numbers, unless this code can work with the database's schema."""
    if connection.execute("select to_regclass('autofill.schema_range') is null").fetchone() == (True,):
        raise SchemaVersionError(
            f"the database has no schema yet, this program needs {newest()} or newer: run `autofill migrate`"
        )
    found = run(connection, "schema_range").fetchone()
    assert found is not None
    if int(found.schema) < newest():
        raise SchemaVersionError(
            f"the database schema is {found.schema}, this program needs {newest()} or newer: run `autofill migrate`"
        )
    if newest() < found.oldest_code:
        raise SchemaVersionError(
            f"the database schema is {found.schema} and works with programs from schema {found.oldest_code} on; "
            f"this one ships {newest()}: install its newer release"
        )
