"""A changed column tried on some rows, from the command line, against the offline model."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from cell_engine.store.changes import edit
from cell_engine.store.database import Connection
from cell_engine.store.models import broken_rules
from tests.cli.conftest import Run
from tests.engine import Claimer, Made, make, offline_model

SPEC = """\
namespace: test
name: tried
columns:
  - {name: a, type: text}
  - name: mood
    type: choice
    choices: [pleased, angry, neutral]
    kind: llm
    llm: {model: gpt-5-mini, prompt: "What mood? {{a}}"}
  - {name: shout, type: text, kind: function, deps: [a], function: {name: "tests.functions:upper"}}
"""
CELLS = "select row_id, column_id, cell::text from autofill.cell order by 1, 2"


@pytest.fixture
def made(connection: Connection) -> Made:
    """Three rows, each pleased; the last has nothing to read."""
    made = make(connection, SPEC, rows=[{"a": "fine"}, {"a": "good"}, {}])
    Claimer(connection).work_off(lambda due: "pleased" if due.column.name == "mood" else "FINE")
    return made


def changed(tmp_path: Path, old: str, new: str) -> str:
    assert old in SPEC
    (tmp_path / "tried.yaml").write_text(SPEC.replace(old, new))
    return str(tmp_path / "tried.yaml")


def test_a_changed_prompt_is_tried_booked_and_touches_no_cell(
    run: Run, made: Made, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = changed(tmp_path, "What mood?", "Which mood is it?")
    edit(connection, made.collection.id, 1, {made.id("mood"): "angry"}, actor="me")
    Claimer(connection).work_off()
    before = connection.execute(CELLS).fetchall()
    with offline_model(monkeypatch):
        result = run("preview", "test/tried", "--column", "mood", "--spec", file, "--json")
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        shown = run("preview", "test/tried", "--column", "mood", "--spec", file, "--row", "1", "--row", "3")
    assert connection.execute(CELLS).fetchall() == before
    assert [(one["row_id"], one["before"]["value"], one["before"]["by_hand"]) for one in sorted(
        found["rows"], key=lambda one: one["row_id"]
    )] == [(1, "angry", True), (2, "pleased", False)]  # fmt: skip
    assert all(one["value"] in ("pleased", "angry", "neutral") and one["cost"] > 0 for one in found["rows"])
    equal = sum(one["value"] == one["before"]["value"] for one in found["rows"])
    assert (found["compared"], found["agreeing"]) == (2, equal)
    assert sum(one["rows"] for one in found["changes"]) == 2
    assert found["cost"] == pytest.approx(sum(one["cost"] for one in found["rows"]))
    (booked,) = connection.execute(
        "select reason, actor <> '' as named, sum(cost)::float8 / 1000000000 as cost, count(*) as calls "
        "from autofill.attempt join autofill.dispatch on dispatch.id = dispatch_id where dispatch_id = %s "
        "group by 1, 2",
        [found["dispatch"]],
    ).fetchall()
    assert booked == ("preview", True, pytest.approx(found["cost"]), 2)
    used = json.loads(run("usage", "test/tried", "--json").stdout)
    assert [(one["column"], one["calls"]) for one in used] == [("mood", 3)]
    assert "row 3 is left out: required input 'a' is missing" in shown.stderr
    assert "* set by hand" in shown.stdout
    assert broken_rules(connection) == {}


def test_what_a_preview_may_cost_is_asked_and_bounded(
    run: Run, made: Made, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = changed(tmp_path, "What mood?", "Which mood is it?")
    wanted = ("preview", "test/tried", "--column", "mood", "--spec", file)
    monkeypatch.setenv("AUTOFILL_ASK_ABOVE", "0")
    asked = run(*wanted)
    assert (asked.exit_code, "nobody is there to ask" in asked.stderr) == (2, True)
    assert "preview of mood on 2 rows of test/tried" in asked.stderr
    with offline_model(monkeypatch):
        assert run("credit", "add", "test", "0.00000001").exit_code == 0
        spent = run(*wanted, "--yes")
        assert spent.exit_code == 1 or "stopped" not in spent.stderr
        refused = run(*wanted, "--yes")
    assert refused.exit_code == 1
    assert "credit" in refused.stderr
    calls = connection.execute("select count(*) from autofill.attempt where model is not null").fetchone()
    assert calls is not None
    assert 1 <= calls[0] <= 2, "what is in flight when credit is spent is all that is spent beyond it"


def test_a_function_is_tried_too_and_mistakes_are_named(run: Run, made: Made, tmp_path: Path) -> None:
    file = changed(tmp_path, "tests.functions:upper", "tests.functions:lower")
    wanted = ("preview", "test/tried", "--spec", file)
    done = run(*wanted, "--column", "shout", "--row", "1")
    assert done.exit_code == 0, done.output
    assert "0 of 1 agree (0 %)" in done.stdout
    assert "booked" not in done.stdout
    wrong = run(*wanted, "--column", "b")
    assert (wrong.exit_code, "no computed column 'b'; it has: mood, shout" in wrong.stderr) == (2, True)
    other = run("preview", "test/tried", "--column", "mood", "--spec", changed(tmp_path, "name: tried", "name: other"))
    assert (other.exit_code, "of the collection test/other" in other.stderr) == (2, True)
    new = changed(tmp_path, "{name: a, type: text}", "{name: n, type: text}\n  - {name: a, type: text}")
    (tmp_path / "tried.yaml").write_text(Path(new).read_text().replace("What mood? {{a}}", "What mood? {{n}}"))
    unknown = run("preview", "test/tried", "--column", "mood", "--spec", new)
    assert (unknown.exit_code, "column 'n' is not in version 1" in unknown.stderr) == (2, True)


def test_what_waits_for_review_says_so_and_what_was_not_found_is_named(
    run: Run, connection: Connection, tmp_path: Path
) -> None:
    spec = SPEC.replace("deps: [a],", "deps: [a], review: required,") + (
        "  - name: loud\n    type: text\n    kind: function\n    deps: [{column: shout, not_found: propagate}]\n"
        '    function: {name: "tests.functions:upper_shout"}\n'
    )
    made = make(connection, spec, rows=[{"a": "fine"}, {"a": "good"}])
    Claimer(connection).work_off(lambda due: "pleased" if due.column.name == "mood" else "FINE")
    connection.execute(
        "update autofill.cell set ai_value = null, error_class = null, error = null, held = null, "
        """details = '{"not_found": "it is not said"}' where row_id = 2 and column_id = %s""",
        [made.id("shout")],
    )
    (tmp_path / "tried.yaml").write_text(spec)
    wanted = ("preview", "test/tried", "--spec", str(tmp_path / "tried.yaml"), "--row", "1", "--row", "2")
    shown = run(*wanted, "--column", "shout")
    assert shown.exit_code == 0, shown.output
    assert "proposed: FINE" in shown.stdout
    read = run(*wanted, "--column", "loud")
    assert "row 1 is left out: an input waits for review" in read.stderr
    assert "row 2 is left out: input 'shout' was not found" in read.stderr


def test_without_a_key_it_says_where_the_offline_model_of_the_stack_is(
    run: Run, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    wanted = ("preview", "test/tried", "--column", "mood", "--spec", changed(tmp_path, "What mood?", "Which mood?"))
    assert "offline model" not in run(*wanted).stderr
    up = SimpleNamespace(is_up=True, urls={"offline model": "http://127.0.0.1:1/v1"})
    monkeypatch.setattr("cell_engine.stack.state.read_state", lambda home: up)
    refused = run(*wanted)
    assert refused.exit_code == 1
    assert "OPENAI_BASE_URL=http://127.0.0.1:1/v1 OPENAI_API_KEY=any" in refused.stderr
