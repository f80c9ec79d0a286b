"""What things cost, at the command line: dry runs, being asked first, usage."""

import json
from pathlib import Path

import pytest

from cell_engine.plan import plan
from cell_engine.store.collections import load_version
from cell_engine.store.database import Connection
from tests.cli.conftest import Run
from tests.engine import Claimer

SPEC = """\
namespace: test
name: priced
columns:
  - {name: a, type: text}
  - {name: b, type: text, kind: llm, llm: {model: gpt-5-mini, prompt: "{{a}}"}}
  - {name: c, type: text, kind: llm, llm: {model: house-model, prompt: "{{b}}"}}
"""


@pytest.fixture
def priced(run: Run, tmp_path: Path) -> str:
    (tmp_path / "priced.yaml").write_text(SPEC)
    (tmp_path / "priced.csv").write_text("a\none\ntwo\nthree\n")
    assert run("apply", str(tmp_path / "priced.yaml")).exit_code == 0
    assert run("load", "test/priced", str(tmp_path / "priced.csv")).exit_code == 0
    return "test/priced"


def dispatches(connection: Connection) -> int:
    return len(connection.execute("select from autofill.dispatch").fetchall())


def test_a_dry_run_tells_and_does_nothing(run: Run, priced: str, connection: Connection) -> None:
    before = dispatches(connection)
    told = run("reprocess", priced, "--dry-run")
    assert told.exit_code == 0
    assert "6 cells, about $0.0" in told.output
    assert "without house-model, which no price is known for" in told.output
    assert "four characters a token" in told.output
    found = json.loads(run("reprocess", priced, "--dry-run", "--json").output)
    assert (found["cells"], found["rows"], found["sampled"], found["unpriced"]) == (6, 3, 3, ["house-model"])
    assert found["low"] < found["cost"] < found["high"] < found["at_most"] < 1
    by_column = {one["column"]: one for one in found["columns"]}
    assert by_column["b"]["cost"] == found["cost"] > 0
    assert by_column["c"]["cost"] is None
    assert "nothing is due" in run("retry", priced, "--dry-run").output
    assert dispatches(connection) == before


def test_what_costs_more_than_set_asks_and_is_refused_where_nobody_answers(
    run: Run, priced: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dispatches(connection)
    monkeypatch.setenv("AUTOFILL_ASK_ABOVE", "0")
    refused = run("reprocess", priced)
    assert refused.exit_code == 2
    for said in ("6 cells, about $", "more than $0.00 (AUTOFILL_ASK_ABOVE)", "Nothing was done; --yes goes ahead"):
        assert said in refused.output
    assert dispatches(connection) == before
    assert run("reprocess", priced, "--yes").exit_code == 0
    monkeypatch.delenv("AUTOFILL_ASK_ABOVE")
    assert run("reprocess", priced).exit_code == 0, "under a dollar nobody is asked"
    assert dispatches(connection) == before + 2


def test_usage_is_told(run: Run, priced: str, connection: Connection) -> None:
    assert json.loads(run("usage", "--json").output) == []
    connection.execute(
        "insert into autofill.usage_delta (namespace_id, collection_id, column_id, model, dispatch_id, calls, failed, "
        "tokens_in, tokens_cached, tokens_out, tokens_reasoning, cost, unpriced) "
        "values (1, 1, 2, 'gpt-5-mini', 1, 1500, 3, 100000, 4000, 2000, 1000, 1234567890, 0), "
        "(1, 1, 3, 'house-model', 1, 7, 0, 70, 0, 7, 0, 0, 7)"
    )
    told = run("usage")
    for said in ("test/priced", "1,500", "100,000", "$1.23", "unknown (7 calls)", "in all $1.23 + unknown (7 calls)"):
        assert said in told.output
    (one,) = json.loads(run("usage", "test/priced", "--by", "namespace", "--since", "2026-01-01", "--json").output)
    assert (one["namespace"], one["calls"], one["cost"], one["unpriced"]) == ("test", 1507, 1.23456789, 7)
    assert run("usage", "--by", "colour").exit_code == 2
    assert run("usage", "--since", "2999-01-01", "--json").output.strip() == "[]"


def test_costs_stand_in_status_watch_and_attempts(run: Run, priced: str, connection: Connection) -> None:
    claimer = Claimer(connection)
    reading = claimer.claim()[0]

    steps = plan(reading.row, load_version(connection, 1), reading.asked)
    answer = claimer.answer(reading, 2, "B", steps, model="gpt-5-mini", tokens_in=10, tokens_out=1, cost=1_500_000_000)
    claimer.flush([answer])
    assert "$1.50" in run("status", priced).output
    assert "$1.50" in run("attempts", priced).output
    watched = json.loads(run("watch", str(reading.dispatch_id), "--json").output)
    assert (watched["cost"], watched["unpriced"], watched["max_cost"]) == (1.5, 0, None)


def test_credit_is_given_and_shown(run: Run, priced: str) -> None:
    assert "no credit is set" in run("credit", "show").output
    assert "test: credit of $12.50, $0.00 spent, $12.50 left" in run("credit", "add", "test", "12.50").output
    assert "$15.00" in run("credit", "add", "test", "2.5").output
    shown = run("credit", "show", "test").output
    assert "test: $15.00, $0.00 spent, $15.00 left" in shown
    found = json.loads(run("credit", "show", "--json").output)
    assert [one["amount"] for one in found["given"]] == [2.5, 12.5]
    assert (found["credit"][0]["left"], found["credit"][0]["period"]) == (15, "credit")
    assert run("credit", "add", "nobody", "1").exit_code == 2
    assert run("credit", "add", "test", "much").exit_code == 2


def test_budgets_are_set_shown_and_removed(run: Run, priced: str) -> None:
    assert run("budget", "show").output.strip() == "no budget is set"
    assert run("budget", "set", "test", "100").exit_code == 0
    assert "test/priced column 'b': $5.00 a day" in run("budget", "set", priced, "5", "--column", "b", "--day").output
    rows = json.loads(run("budget", "show", "--json").output)
    found = [(one["collection"], one["column"], one["period"], one["left"]) for one in rows]
    assert sorted(found, key=str) == [("priced", "b", "day", 5.0), (None, None, "ever", 100.0)]
    assert "priced" in run("budget", "show", "test").output
    assert run("budget", "remove", priced, "--column", "b").exit_code == 2, "not the one for ever"
    assert run("budget", "remove", priced, "--column", "b", "--day").exit_code == 0
    for wrong in (["test", "1", "--column", "b"], [priced, "1", "--column", "a"], ["nobody/at-all", "1"], ["77", "1"]):
        assert run("budget", "set", *wrong).exit_code == 2


def test_a_dispatch_with_a_cap(run: Run, priced: str, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOFILL_ASK_ABOVE", "0.5")
    assert run("reprocess", priced, "--force", "--max-cost", "0.25").exit_code == 0
    found = connection.execute("select max(id) as id, max(max_cost) as cost from autofill.dispatch").fetchone()
    assert found is not None
    assert found.cost == 250_000_000
    assert run("budget", "set", str(found.id), "3").exit_code == 0
    assert json.loads(run("watch", str(found.id), "--json").output)["max_cost"] == 3.0
    assert run("budget", "set", str(found.id), "3", "--day").exit_code == 2
    assert run("budget", "remove", str(found.id)).exit_code == 0


def test_a_load_can_be_dry(run: Run, priced: str, connection: Connection, tmp_path: Path) -> None:
    (tmp_path / "more.csv").write_text("a\nfour\nfive\nsix,6\n")
    before = dispatches(connection)
    found = json.loads(run("load", priced, str(tmp_path / "more.csv"), "--dry-run", "--json").output)
    assert (found["rows"], found["cells"]) == (2, 4)
    assert dispatches(connection) == before
