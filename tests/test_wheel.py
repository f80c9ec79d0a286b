"""The wheel has all that an installation runs from: one without the repository starts as a checkout does."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

PROJECT = Path(__file__).resolve().parents[1]
# What `autofill up`, `autofill migrate` and a run need of files that are no Python.
SCRIPT = """
import pathlib, autofill_defs
from autofill_defs.definitions import defs
from autofill_defs.instance import prepare_instance
from cell_engine.settings import get_settings
from cell_engine.store.schema import newest

assert pathlib.Path(autofill_defs.__file__).is_relative_to(pathlib.Path.cwd()), autofill_defs.__file__
home = prepare_instance(get_settings(), "postgresql:///none")
print(newest(), (home / "dagster.yaml").stat().st_size)
for key in defs().resolve_asset_graph().get_all_asset_keys():
    print(key.to_user_string())
"""


@pytest.mark.slow
def test_an_installed_wheel_migrates_prepares_dagster_and_loads_its_definitions(tmp_path: Path) -> None:
    [wheel] = WheelBuilder(str(PROJECT)).build(directory=str(tmp_path / "dist"))
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as file:
        file.extractall(installed)
    assert not (installed / "pyproject.toml").exists()
    given = {
        "PYTHONPATH": str(installed),
        "AUTOFILL_HOME": str(tmp_path / "home"),
        # No server is asked: Dagster's database is another's business.
        "AUTOFILL_DAGSTER_DATABASE_URL": "postgresql:///none",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=installed, env=os.environ | given, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    first, *keys = done.stdout.splitlines()
    newest = max(int(path.name[:4]) for path in (PROJECT / "dbt_like_sql" / "migrations").glob("[0-9]*.sql"))
    assert first == f"{newest} {(PROJECT / 'dagster.yaml').stat().st_size}"
    assert "demo/packages/summary" in keys
