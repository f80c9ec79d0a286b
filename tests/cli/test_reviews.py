"""Answers that wait for a person, from the command line."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cell_engine.cli.render import proposed_of
from cell_engine.cli.reviews import _answer
from cell_engine.specs.text import Json
from cell_engine.store.database import Connection
from cell_engine.store.reading import ShownCell
from cell_engine.store.reviews import Proposal
from tests.engine import Claimer, make, sheet

from .conftest import SPEC, Run


def cells(run: Run, column: str) -> list[tuple[Any, Any]]:
    rows = json.loads(run("show", "test/things", "--json").stdout)
    return [(row["cells"][column]["status"], row["cells"][column]["value"]) for row in rows]


def test_review_accept_and_reject(run: Run, things: str, tmp_path: Path, worker: None) -> None:
    reviewed = SPEC.replace("    deps: [title]\n", "    deps: [title]\n    review: {when: {above: 0}}\n")
    (tmp_path / "things.yaml").write_text(reviewed)
    assert run("reprocess", things, "--wait").exit_code == 0  # loaded before: shown as it is
    assert run("apply", str(tmp_path / "things.yaml")).exit_code == 0
    assert cells(run, "words") == [("ready", 2), ("blocked", None), ("ready", 1)]
    assert run("edit", things, "1", "title=a b c", "--wait").exit_code == 0
    assert run("edit", things, "2", "title=b", "--wait").exit_code == 0
    assert cells(run, "words") == [("proposed", None), ("proposed", None), ("ready", 1)]
    assert cells(run, "doubled") == [("waiting", 4), ("waiting", None), ("ready", 2)]
    assert "proposed: 3" in run("show", things).stdout
    assert json.loads(run("status", things, "--json").stdout)["collections"][0]["cells"]["words"]["proposed"] == 2

    row = run("show", things, "--row", "2").stdout
    assert "[proposed: 1; waits for review]" in row
    assert "[waiting: for the review of words]" in row, "the reason why it was blocked is one no more"
    both = run("show", things, "--row", "3", "--row", "1").stdout.splitlines()
    assert [line for line in both if line.startswith("row ")] == ["row 1", "row 3"]
    assert [line.split(maxsplit=1)[1] for line in both if line.startswith("title")] == ["a b c [overridden]", "three"]
    told = json.loads(run("show", things, "--row", "3", "--row", "1", "--json").stdout)
    assert [(one["row"], one["cells"]["doubled"]["waits_for"]) for one in told] == [
        (1, "the review of words"), (3, None),
    ]  # fmt: skip
    assert "has no row 4" in run("show", things, "--row", "3", "--row", "4").stderr

    listed = json.loads(run("review", things, "--json").stdout)
    assert [(one["row_id"], one["column"], one["value"], one["accepted"], one["then"]) for one in listed] == [
        (1, "words", 3, 2, "wait"),
        (2, "words", 1, None, "wait"),
    ]
    assert "words" in run("review", things, "--row", "1").stdout
    unsaid = run("accept", things)
    assert (unsaid.exit_code, "say which" in unsaid.stderr) == (2, True)
    assert "nothing of that waits" in run("accept", things, "--column", "words", "--value", "7").stdout
    accepted = run("accept", things, "--column", "words", "--value", "3", "--wait")
    assert (accepted.exit_code, "1 answer accepted: dispatch " in accepted.stdout) == (0, True), accepted.output
    assert cells(run, "doubled") == [("ready", 6), ("waiting", None), ("ready", 2)]
    assert run("reject", things, "--row", "2", "--why", "not a word", "--wait").exit_code == 0
    assert cells(run, "words") == [("ready", 3), ("rejected", None), ("ready", 1)]
    assert cells(run, "doubled")[1] == ("blocked", None)
    row = run("show", things, "--row", "2").stdout
    assert "[blocked: required input 'words' is in error, rejected or blocked]" in row
    decided = json.loads(run("review", things, "--decided", "--json").stdout)
    assert [(one["row_id"], one["accepted"], one["value"], one["why"]) for one in decided] == [
        (2, False, 1, "not a word"),
        (1, True, 3, None),
    ]
    assert "not a word" in run("review", things, "--decided").stdout
    assert "nothing waits for review" in run("review", things).stdout
    assert run("edit", things, "2", "title=b c", "--wait").exit_code == 0
    assert run("edit", things, "2", "words=9", "--wait").exit_code == 0
    assert "[overridden]" in run("show", things, "--row", "2").stdout
    assert "nothing to do" in run("reprocess", things, "--only", "errors", "--wait").stdout
    assert cells(run, "doubled")[1] == ("ready", 18)
    assert "nothing waits for review" in run("review", things).stdout


def test_that_nothing_was_found_is_listed_with_its_reason() -> None:
    def listed(value: Json, **details: Json) -> str:
        return _answer(Proposal(1, 2, value, None, None, 1, datetime(2026, 1, 1, tzinfo=UTC), details))

    assert listed(None, not_found="It does not say.") == "not found: It does not say."
    assert listed(3) == "3"
    held = ("proposed", "proposed", "waits for review", "m", False)
    assert proposed_of(ShownCell(1, 2, None, *held, {"not_found": "no date"})) == "not found: no date"
    assert proposed_of(ShownCell(1, 2, None, *held, {"not_found": "no date"}, proposed=3)) == 3


def test_accepting_asks_before_what_it_makes_due_costs_much(
    run: Run, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(connection, sheet("a", "b*: a", "c!llm: b", "d!llm: c"), rows=[{"a": f"{n}"} for n in range(3)])
    assert Claimer(connection).work_off() == ["b"] * 3
    dry = json.loads(run("accept", "test/sheet", "--all", "--dry-run", "--json").stdout)
    assert {one["column"]: one["cells"] for one in dry["columns"]} == {"c": 3, "d": 3}
    dry = json.loads(run("accept", "test/sheet", "--column", "b", "--value", "b(1)", "--dry-run", "--json").stdout)
    assert dry["cells"] == 2
    monkeypatch.setenv("AUTOFILL_ASK_ABOVE", "0")
    asked = run("accept", "test/sheet", "--all")
    assert (asked.exit_code, "6 cells, an unknown amount" in asked.stderr) == (2, True), asked.output
    assert "0 answers" not in run("review", "test/sheet").stdout
    assert "1 answer accepted" in run("accept", "test/sheet", "--row", "1", "--yes").stdout
    monkeypatch.delenv("AUTOFILL_ASK_ABOVE")
    assert "2 answers accepted" in run("accept", "test/sheet", "--all").stdout
