"""One statement a file, each used, and SQL nowhere else."""

import re
from pathlib import Path

import pytest

from cell_engine.store.database import SQL

ROOT = SQL.parent
STATEMENTS = sorted((SQL / "statements").glob("*.sql"))
STORE = "\n".join(path.read_text() for path in sorted((ROOT / "cell_engine" / "store").glob("*.py")))
COMMENTS_AND_TEXTS = re.compile(r"--[^\n]*|'(?:[^']|'')*'")


@pytest.mark.parametrize("path", STATEMENTS, ids=lambda path: path.stem)
def test_a_file_is_one_statement_and_the_store_uses_it(path: Path) -> None:
    code = COMMENTS_AND_TEXTS.sub("", path.read_text()).strip()
    assert code.count(";") == 1
    assert code.endswith(";")
    # revert looks for what to undo or redo by name
    name = path.stem.replace("change_find_undo", "change_find_{reason}").replace(
        "change_find_redo", "change_find_{reason}"
    )
    assert f'"{name}"' in STORE, f"nothing in cell_engine/store runs {path.name}"


@pytest.mark.parametrize("folder", ["models", "tests"])
def test_models_and_tests_name_tables_as_dbt_does(folder: str) -> None:
    for path in sorted((SQL / folder).glob("*.sql")):
        text = COMMENTS_AND_TEXTS.sub("", re.sub(r"\{\{.*?\}\}", "given", path.read_text()))
        assert "autofill." not in text, f"{path.name}: tables go by source() and models by ref()"
        assert ";" not in text, f"{path.name}: dbt takes no semicolon"


def test_every_model_is_described() -> None:
    described = (SQL / "models" / "schema.yml").read_text()
    for path in sorted((SQL / "models").glob("*.sql")):
        assert f"- name: {path.stem}\n" in described


def test_sql_is_written_in_the_store_and_nowhere_else() -> None:
    statement = re.compile(r'"(?:select|insert into|update|delete from|with|lock) [^"]*"', re.IGNORECASE)
    for path in sorted((ROOT / "cell_engine").rglob("*.py")) + sorted((ROOT / "autofill_defs").rglob("*.py")):
        if path.parent.name != "store":
            # asking a server which databases it has is no business of the engine's tables
            found = [text for text in statement.findall(path.read_text()) if "pg_database" not in text]
            assert found == [], path


def test_time_is_the_databases_and_the_statements_own() -> None:
    """`now()` is when the transaction began: in a long one what is due later would be late, or early."""
    for path in sorted(SQL.glob("*/*.sql")):
        found = re.findall(
            r"\b(?:now\(\)|current_timestamp|localtimestamp|transaction_timestamp)",
            COMMENTS_AND_TEXTS.sub("", path.read_text()),
            re.IGNORECASE,
        )
        assert found == [], path


def test_nothing_outlives_its_transaction_on_a_connection() -> None:
    """A pooler in transaction mode gives the next transaction another session. Migrations alone need theirs."""
    session = re.compile(r'pg_advisory_lock\(|pg_try_advisory_lock\(|["\n](?:un)?listen |\bcreate temp|\bset session\b')
    paths = [*(SQL / "statements").glob("*.sql"), *(ROOT / "cell_engine").rglob("*.py")]
    found = [path.name for path in paths if session.search(COMMENTS_AND_TEXTS.sub("", path.read_text()))]
    assert found == ["migrating.py"]
