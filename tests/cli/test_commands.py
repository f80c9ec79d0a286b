"""Every command of people, on a real database, and the exit code of each way to fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cell_engine.cli.main import app

from .conftest import SPEC, Run


def cells(run: Run, *arguments: str) -> dict[int, dict[str, Any]]:
    result = run("show", "test/things", "--json", *arguments)
    assert result.exit_code == 0, result.output
    return {row["row"]: row["cells"] for row in json.loads(result.stdout)}


def test_apply_makes_a_version_once(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "things.yaml"
    file.write_text(SPEC)
    first = run("apply", str(file))
    assert (first.exit_code, first.stdout) == (0, "test/things: version 1\n")
    again = run("apply", str(file))
    assert (again.exit_code, again.stdout) == (0, "test/things: unchanged, version 1\n")


def test_apply_says_what_it_recomputes(run: Run, things: str, tmp_path: Path) -> None:
    file = tmp_path / "things.yaml"
    file.write_text(SPEC.replace("deps: [words]", "deps: [{column: words, optional: true}]"))
    result = run("apply", str(file))
    assert result.exit_code == 0
    assert "test/things: version 2\nrecomputing doubled in dispatch " in result.stdout
    assert "no worker for function is running" in result.stderr


def test_apply_lists_every_problem_with_its_line(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(SPEC.replace("deps: [title]", "deps: [titel]").replace("type: text", "type: string"))
    result = run("apply", str(file))
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert any(line.startswith(f"{file}:4: ") for line in lines)
    assert any(line.startswith(f"{file}:9: ") and "titel" in line for line in lines)


def test_apply_refuses_functions_that_cannot_fit_their_columns(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "things.yaml"
    file.write_text(SPEC.replace("    type: integer\n    kind: function", "    type: number\n    kind: function", 1))
    result = run("apply", str(file))
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        f"{file}:15: column 'doubled': function: tests.cli.functions:double: its argument words is annotated "
        "int | None, and column words of type number gives float"
    ]
    # What this process cannot import, the workers may.
    file.write_text(SPEC.replace("tests.cli.functions:count", "no_such_module_at_all:f"))
    assert run("apply", str(file)).exit_code == 0


def test_loading_the_same_file_again_changes_nothing(run: Run, things: str, tmp_path: Path) -> None:
    result = run("load", things, str(tmp_path / "things.csv"))
    assert result.exit_code == 0
    assert "was loaded before" in result.stdout
    assert len(cells(run)) == 3


def test_rejected_lines_are_named_and_the_others_go_in(run: Run, things: str, tmp_path: Path) -> None:
    file = tmp_path / "more.csv"
    file.write_text("title,amount\ngood,4\nbad,007\nfine,5\n")
    result = run("load", things, str(file))
    assert result.exit_code == 5
    assert "2 rows from more.csv" in result.stdout
    assert "computing what they make due in dispatch " in result.stdout
    assert f"{file}:3: " in result.stderr
    assert "1 line was rejected" in result.stderr
    assert [cells(run)[row]["title"]["value"] for row in (4, 5)] == ["good", "fine"]


def test_cells_are_computed_and_an_edit_recomputes_its_dependents(run: Run, things: str, worker: None) -> None:
    done = run("reprocess", things, "--wait")
    assert done.exit_code == 0, done.output
    before = cells(run)
    assert before[1]["words"] == {
        "value": 2,
        "status": "ready",
        "error_class": None,
        "error": None,
        "model": None,
        "inputs_moved": False,
        "details": None,
        "proposed": None,
        "waits_for": None,
    }
    assert before[1]["doubled"]["value"] == 4
    assert before[2]["words"]["status"] == "blocked"
    edited = run("edit", things, "1", "title=a b c d", "--wait")
    assert edited.exit_code == 0, edited.output
    assert "recomputing words, doubled" in edited.stdout
    after = cells(run)
    assert (after[1]["words"]["value"], after[1]["doubled"]["value"]) == (4, 8)
    assert after[1]["title"] == {"value": "a b c d", "edited": True}
    assert after[3] == before[3]


def test_a_cell_set_by_hand_stays(run: Run, things: str, worker: None) -> None:
    assert run("edit", things, "1", "words=50", "--wait").exit_code == 0
    assert run("reprocess", things, "--force", "--wait").exit_code == 0
    row = cells(run)[1]
    assert (row["words"]["value"], row["words"]["status"], row["doubled"]["value"]) == (50, "overridden", 100)
    assert not row["words"]["inputs_moved"]
    assert "inputs changed" not in run("show", things).stdout
    assert run("edit", things, "1", "title=another one", "--wait").exit_code == 0
    row = cells(run)[1]
    assert (row["words"]["value"], row["words"]["inputs_moved"]) == (50, True)
    shown = run("show", things).stdout
    assert "*50" in shown
    assert shown.splitlines()[-1] == "* inputs changed since you edited: row 1 words"
    assert "inputs changed" not in run("show", things, "--column", "title").stdout


def test_waiting_for_cells_in_error_fails(run: Run, things: str, worker: None) -> None:
    result = run("edit", things, "1", "words=13", "--wait")
    assert result.exit_code == 1
    assert "in error: 1 function_error" in result.stdout
    assert cells(run)[1]["doubled"]["error_class"] == "function_error"
    shown = run("show", things, "--column", "doubled")
    assert "error: " in shown.stdout


def test_an_empty_text_is_a_value_and_a_blank_is_none(run: Run, things: str, worker: None) -> None:
    assert run("edit", things, "2", "title=", "--wait").exit_code == 0
    assert cells(run)[2]["title"] == {"value": "", "edited": True}
    assert cells(run)[2]["words"]["value"] == 0
    assert run("edit", things, "1", "--blank", "title", "--wait").exit_code == 0
    assert cells(run)[1]["title"] == {"value": None, "edited": True}
    assert cells(run)[1]["words"]["status"] == "blocked"


def test_an_edit_keeps_leading_zeros_and_equals_signs_of_text(run: Run, things: str) -> None:
    assert run("edit", things, "1", "title=0870=x", "amount=-5").exit_code == 0
    row = cells(run)[1]
    assert (row["title"]["value"], row["amount"]["value"]) == ("0870=x", -5)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["amount=0870"], "column 'amount': type integer"),
        (["amount="], "--blank amount"),
        (["colour=red"], "no column 'colour'; there are: title, amount, words, doubled"),
        (["title"], "'title' is no COLUMN=VALUE"),
        (["title=a", "title=b"], "column 'title' is given twice"),
        (["title=a", "--blank", "title"], "column 'title' is given twice"),
        ([], "nothing to change"),
    ],
)
def test_an_edit_that_does_not_fit_changes_nothing(run: Run, things: str, arguments: list[str], told: str) -> None:
    before = cells(run)
    result = run("edit", things, "1", *arguments)
    assert result.exit_code == 2
    assert told in result.stderr
    assert cells(run) == before


def test_an_edit_of_a_row_that_is_not_there(run: Run, things: str) -> None:
    result = run("edit", things, "99", "title=x")
    assert result.exit_code == 2
    assert "no such row: 99" in result.stderr


def test_reprocess_takes_columns_rows_and_batches(run: Run, things: str, worker: None) -> None:
    status = json.loads(run("status", things, "--json").stdout)
    assert [one["reason"] for one in status["collections"][0]["dispatches"]] == ["load"]
    assert run("reprocess", things, "--wait").exit_code == 0
    forced = run("reprocess", things, "--column", "words", "--row", "1", "--force", "--wait")
    assert forced.exit_code == 0, forced.output
    latest = json.loads(run("status", things, "--json").stdout)["collections"][0]["dispatches"][0]
    assert (latest["columns"], latest["total"], latest["outcomes"]) == (["words"], 1, {"unchanged": 1})


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--column", "title"], "column 'title' is an input"),
        (["--column", "nothing"], "no column 'nothing'"),
        (["--batch", "nothing"], "has no batch nothing"),
        (["--row", "99"], "no such row: 99"),
        (["--row", "1", "--batch", "x"], "exclude each other"),
    ],
)
def test_a_reprocess_of_what_is_not_there(run: Run, things: str, arguments: list[str], told: str) -> None:
    result = run("reprocess", things, *arguments)
    assert result.exit_code == 2
    assert told in result.stderr


def test_a_reprocess_without_rows_has_nothing_to_do(run: Run, tmp_path: Path) -> None:
    (tmp_path / "things.yaml").write_text(SPEC)
    run("apply", str(tmp_path / "things.yaml"))
    result = run("reprocess", "test/things", "--wait")
    assert result.exit_code == 0
    assert "nothing to do" in result.stdout


def test_asking_without_a_worker_says_that_it_waits(run: Run, things: str) -> None:
    result = run("reprocess", things)
    assert result.exit_code == 0
    assert "no worker for function is running" in result.stderr


def test_show_pages_and_picks_columns(run: Run, things: str) -> None:
    first = run("show", things, "--rows", "2", "--column", "title")
    assert "one two" in first.stdout
    assert "amount" not in first.stdout
    assert "next page: --after 2" in first.stdout
    second = run("show", things, "--rows", "2", "--after", "2")
    assert "three" in second.stdout
    assert "next page" not in second.stdout


def test_cells_cannot_steer_the_terminal(run: Run, things: str) -> None:
    run("edit", things, "1", "title=\x1b[31mred\x1b[0m [bold]not markup[/bold] [/] \x07\nnext")
    shown = run("show", things, "--column", "title").stdout
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "[31mred [0m [bold]not markup[/bold] [/] next" in shown


def test_status_shows_collections_cells_and_queue(run: Run, things: str) -> None:
    shown = run("status")
    assert shown.exit_code == 0
    for expected in ("worker: none", "test/things: version 1, 3 rows", "3 rows queued", "words", "load"):
        assert expected in shown.stdout
    told = json.loads(run("status", "--json").stdout)
    assert told["workers"] == []
    assert told["collections"][0]["cells"]["words"] == {"queued": 3}
    assert told["lanes"] == []
    run("edit", things, "1", "title=x")
    told = json.loads(run("status", "--json").stdout)
    assert told["collections"][0]["cells"]["words"] == {"queued": 3}
    assert [(lane["collection"], lane["job_type"], lane["queued"]) for lane in told["lanes"]] == [
        ("things", "function", 1)
    ]


def test_status_shows_no_password(run: Run, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOFILL_DATABASE_URL", database.replace("postgres@", "postgres:hunter2@"))
    for arguments in (["status"], ["status", "--json"]):
        result = run(*arguments)
        assert result.exit_code == 0
        assert "hunter2" not in result.output
        assert "***" in result.output


@pytest.mark.parametrize("command", [["show", "things"], ["status", "a/b/c"], ["reprocess", "/x"], ["load", "x/", "f"]])
def test_a_collection_is_named_with_its_namespace(run: Run, command: list[str]) -> None:
    result = run(*command)
    assert result.exit_code == 2
    assert "write namespace/name" in result.stderr


def test_an_unknown_collection_is_not_found(run: Run, things: str) -> None:
    result = run("show", "test/nothing")
    assert result.exit_code == 2
    assert "there are: test/things" in result.stderr


def test_a_database_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOFILL_DATABASE_URL", "postgresql://me:hunter2@127.0.0.1:1/nothing")
    result = CliRunner().invoke(app, ["show", "test/things"])
    assert result.exit_code == 4
    assert "cannot be reached" in result.stderr
    assert "hunter2" not in result.stderr


def test_a_database_without_schema_is_refused_and_migrate_mends_it(
    server: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import psycopg

    name = f"empty_{os.getpid()}"
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(f"create database {name}")
        try:
            monkeypatch.setenv("AUTOFILL_DATABASE_URL", server.dsn(name))
            refused = CliRunner().invoke(app, ["status"])
            assert refused.exit_code == 3
            assert "autofill migrate" in refused.stderr
            assert CliRunner().invoke(app, ["migrate"]).exit_code == 0
            assert "newest already" in CliRunner().invoke(app, ["migrate"]).stdout
            assert CliRunner().invoke(app, ["status"]).exit_code == 0
        finally:
            connection.execute(f"drop database {name} with (force)")


@pytest.mark.parametrize("command", ["worker", "janitor"])
def test_a_single_process_needs_a_database_given(command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AUTOFILL_DATABASE_URL", raising=False)
    monkeypatch.setenv("AUTOFILL_HOME", str(tmp_path / "none"))
    result = CliRunner().invoke(app, [command])
    assert result.exit_code == 2
    assert "AUTOFILL_DATABASE_URL is not set" in result.stderr
    assert not (tmp_path / "none").exists()


def test_an_unknown_job_type_fails_loudly(run: Run) -> None:
    result = run("worker", "--job-type", "nonsense")
    assert result.exit_code == 2
    assert "nonsense" in result.stderr


def test_looking_starts_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AUTOFILL_DATABASE_URL", raising=False)
    monkeypatch.setenv("AUTOFILL_HOME", str(tmp_path / "none"))
    assert "Nothing is running" in CliRunner().invoke(app, ["status"]).stdout
    assert "was running" in CliRunner().invoke(app, ["stop"]).stdout
    assert not (tmp_path / "none").exists()


def test_help_names_every_command_and_exit_code() -> None:
    told = CliRunner().invoke(app, ["--help"]).stdout
    commands = "up demo migrate apply load edit reprocess show status worker janitor stop psql"
    assert all(f" {command} " in told for command in commands.split())
    assert "Exit codes" in told


def test_the_command_line_starts_without_anything_heavy() -> None:
    heavy = "{'polars', 'openai', 'alembic', 'sqlalchemy', 'dagster', 'psycopg', 'aiohttp', 'pydantic', 'rich', 'yaml'}"
    code = f"import sys, cell_engine.cli.main; print(sorted({heavy} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded == "[]\n"


def test_psql_passes_its_arguments_on(run: Run, database: str) -> None:
    environment = os.environ | {"AUTOFILL_DATABASE_URL": database.replace("postgres@", "postgres:secret@")}
    command = [sys.executable, "-m", "cell_engine.cli", "psql", "-Atc", "select current_database(), 1 + 1"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.endswith("|2\n")
