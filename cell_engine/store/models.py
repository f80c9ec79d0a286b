"""The views for people, and the tests that return zero rows: `dbt_like_sql/models` and `/tests`.

They are written for dbt (`ref()`, `source()`), and this is the few lines of it that they need.
"""

import re
from functools import cache
from graphlib import TopologicalSorter
from typing import Any

import jinja2
import psycopg
from psycopg import sql
from psycopg.rows import namedtuple_row

from cell_engine.store.database import SQL

SCHEMA = "autofill"
_REF = re.compile(r"ref\('(\w+)'\)")
_JINJA = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False)  # noqa: S701 (SQL, not HTML)


def create_models(connection: psycopg.Connection[Any]) -> None:
    """Create every model as a view, each after those it refers to, in place of the views of the last migration."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted((SQL / "models").glob("*.sql"))}
    order = list(TopologicalSorter({name: _REF.findall(text) for name, text in texts.items()}).static_order())
    with connection.transaction():
        for name in reversed(order):
            connection.execute(sql.SQL("drop view if exists {}").format(sql.Identifier(SCHEMA, name)))
        for name in order:
            connection.execute(f"create view {SCHEMA}.{name} as {_rendered(texts[name])}".encode())


def rule_names() -> list[str]:
    """The SQL tests there are."""
    return sorted(path.stem for path in (SQL / "tests").glob("*.sql"))


def broken_rules(connection: psycopg.Connection[Any]) -> dict[str, list[Any]]:
    """Run the SQL tests; returns those that found rows, by name, with the rows (at most 100 each)."""
    broken: dict[str, list[Any]] = {}
    for name in rule_names():
        test = _rendered((SQL / "tests" / f"{name}.sql").read_text(encoding="utf-8"))
        query = f"select * from ({test}) as found limit 100"  # noqa: S608 (our own files)
        with connection.cursor(row_factory=namedtuple_row) as cursor:
            rows: list[Any] = cursor.execute(query.encode()).fetchall()
        if rows:
            broken[name] = rows
    return broken


@cache  # the state machine asks after every step: two thirds of its time were rendering
def _rendered(text: str) -> str:
    # rstrip: dbt takes no semicolon, and neither does a subquery
    rendered = _JINJA.from_string(text).render(
        ref=lambda name: f"{SCHEMA}.{name}", source=lambda source, name: f"{source}.{name}"
    )
    return rendered.rstrip().rstrip(";")
