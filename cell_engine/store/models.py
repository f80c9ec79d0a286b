"""The views for people, and the tests that return zero rows: `dbt_like_sql/models` and `/tests`.

They are written for dbt (`ref()`, `source()`), and this is the few lines of it that they need.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from itertools import takewhile
from typing import Any

import jinja2
import psycopg
import yaml
from psycopg import sql
from psycopg.rows import namedtuple_row

from cell_engine.errors import SchemaVersionError
from cell_engine.store.database import SQL, Connection, run
from cell_engine.store.schema import newest

SCHEMA = "autofill"
_REF = re.compile(r"ref\('(\w+)'\)")
_JINJA = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)  # noqa: S701 (SQL, not HTML)


@dataclass(frozen=True)
class Model:
    """A view for people: what `schema.yml` says of it and, by name, of its columns; which models it is made from, and
    whether of the engine's tables."""

    name: str
    description: str
    columns: Mapping[str, str]
    refs: tuple[str, ...]
    of_tables: bool


def list_models() -> list[Model]:
    """All models, each after those it refers to."""
    described = yaml.safe_load((SQL / "models" / "schema.yml").read_text(encoding="utf-8"))["models"]
    texts = _texts()
    models = {
        one["name"]: Model(
            one["name"],
            one["description"],
            {column["name"]: column["description"] for column in one.get("columns", ())},
            tuple(sorted(set(_REF.findall(texts[one["name"]])))),
            f"source('{SCHEMA}'" in texts[one["name"]],
        )
        for one in described
    }
    return [models[name] for name in _order(texts)]


def create_models(connection: psycopg.Connection[Any]) -> None:
    """Create every model as a view, each after those it refers to, in place of the views there are.

    They stay the same views, with who may read them and what was built on them, unless a column has gone or changed.
    """
    texts = _texts()
    order = _order(texts)
    try:
        with connection.transaction():
            _create(connection, texts, order)
    except psycopg.errors.InvalidTableDefinition:
        with connection.transaction():
            for name in reversed(order):
                connection.execute(sql.SQL("drop view if exists {}").format(sql.Identifier(SCHEMA, name)))
            _create(connection, texts, order)


def recreate_models(connection: Connection) -> None:
    """`create_models` on a database whose schema is this code's own. Raises SchemaVersionError for any other, whose
    views `autofill migrate` makes: those of another release may name columns that are not there."""
    found = run(connection, "schema_range").fetchone()
    assert found is not None
    if found.schema != newest():
        raise SchemaVersionError(
            f"the database schema is {found.schema}, and these views are those of {newest()}: "
            "`autofill migrate`, by the same release, makes them"
        )
    create_models(connection)


def view_columns(connection: Connection, name: str, schema: str = SCHEMA) -> list[tuple[str, str]]:
    """The columns of a view as it is in the database, and their SQL types."""
    return [(one.name, one.type) for one in run(connection, "view_columns", schema=schema, view=name)]


def _texts() -> dict[str, str]:
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted((SQL / "models").glob("*.sql"))}


def _order(texts: Mapping[str, str]) -> list[str]:
    return list(TopologicalSorter({name: _REF.findall(text) for name, text in texts.items()}).static_order())


def _create(connection: psycopg.Connection[Any], texts: Mapping[str, str], order: Sequence[str]) -> None:
    for name in order:
        connection.execute(f"create or replace view {SCHEMA}.{name} as {_rendered(texts[name])}".encode())


def rule_names() -> list[str]:
    """The SQL tests there are."""
    return sorted(path.stem for path in (SQL / "tests").glob("*.sql"))


def rule_description(name: str) -> str:
    """What must hold, in the words that the SQL test begins with."""
    lines = takewhile(lambda line: line.startswith("--"), _rule(name).splitlines())
    return " ".join(line.removeprefix("--").strip() for line in lines)


def broken_rule(connection: psycopg.Connection[Any], name: str) -> list[Any]:
    """Run one SQL test; returns the rows it found, at most 100."""
    query = f"select * from ({_rendered(_rule(name))}) as found limit 100"  # noqa: S608 (our own files)
    with connection.cursor(row_factory=namedtuple_row) as cursor:
        return cursor.execute(query.encode()).fetchall()


def broken_rules(connection: psycopg.Connection[Any]) -> dict[str, list[Any]]:
    """Run the SQL tests; returns those that found rows, by name, with the rows (at most 100 each)."""
    broken = {name: broken_rule(connection, name) for name in rule_names()}
    return {name: rows for name, rows in broken.items() if rows}


def _rule(name: str) -> str:
    return (SQL / "tests" / f"{name}.sql").read_text(encoding="utf-8")


@cache  # the state machine asks after every step: two thirds of its time were rendering
def _rendered(text: str) -> str:
    # rstrip: dbt takes no semicolon, and neither does a subquery
    rendered = _JINJA.from_string(text).render(
        ref=lambda name: f"{SCHEMA}.{name}", source=lambda source, name: f"{source}.{name}"
    )
    return rendered.rstrip().rstrip(";")
