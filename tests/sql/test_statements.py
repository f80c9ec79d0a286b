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
    statement = re.compile(r"""\"(?:select|insert into|update|delete from|with|lock) """, re.IGNORECASE)
    allowed = {"store", "embedded"}  # embedded asks its server for the databases it has
    for path in sorted((ROOT / "cell_engine").rglob("*.py")) + sorted((ROOT / "autofill_defs").rglob("*.py")):
        if path.relative_to(ROOT).parts[1] not in allowed:
            assert not statement.search(path.read_text()), path
