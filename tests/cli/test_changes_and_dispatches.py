"""Taking changes back, and stopping dispatches, from the command line."""

from __future__ import annotations

import json
from typing import Any

from cell_engine.store.database import Connection
from cell_engine.store.models import rule_names

from .conftest import Run


def title(run: Run) -> Any:
    result = run("show", "test/things", "--json", "--rows", "1")
    return json.loads(result.stdout)[0]["cells"]["title"]["value"]


def test_reset_undo_redo_and_history(run: Run, things: str) -> None:
    assert run("edit", things, "1", "title=mine").exit_code == 0
    undone = run("undo", things)
    assert undone.exit_code == 0
    assert "row 1, title: mine → (not set by hand)\nundo of dispatch " in undone.stdout
    assert title(run) == "one two"
    redone = run("redo", things)
    assert redone.exit_code == 0
    assert "row 1, title: (not set by hand) → mine\nredo of dispatch " in redone.stdout
    assert title(run) == "mine"
    assert run("reset", things, "1", "title").exit_code == 0
    assert title(run) == "one two"
    nothing = run("reset", things, "1", "title")
    assert (nothing.exit_code, "nothing to reset" in nothing.stderr) == (2, True)
    listed = json.loads(run("history", things, "--json").stdout)
    assert [entry["change"] for entry in listed] == ["reset", "redo", "undo", "edit"]
    assert listed[-1]["before"] == {"set": False, "value": None}
    assert listed[-1]["after"] == {"set": True, "value": "mine"}
    assert "mine" in run("history", things, "--row", "1", "--column", "title").stdout
    assert run("history", things, "--row", "2").stdout.count("edit") == 0


def test_pause_resume_cancel_watch_and_check(run: Run, things: str) -> None:
    asked = run("reprocess", things, "--column", "words")
    dispatch = asked.stdout.split("dispatch ")[1].split()[0]
    assert run("pause", dispatch).exit_code == 0
    again = run("pause", dispatch)
    assert (again.exit_code, "is paused already" in again.stderr) == (1, True)
    assert run("resume", dispatch).exit_code == 0
    assert run("cancel", dispatch).exit_code == 0
    canceled = run("cancel", dispatch)
    assert (canceled.exit_code, "has ended: there is nothing to cancel" in canceled.stderr) == (1, True)
    watched = json.loads(run("watch", dispatch, "--json").stdout)
    assert watched["canceled_at"] is not None
    assert watched["ended_at"] is not None
    unknown = run("watch", "999")
    assert (unknown.exit_code, "no dispatch 999" in unknown.stderr) == (2, True)
    checked = run("check")
    assert checked.exit_code == 0
    assert "BROKEN" not in checked.stdout
    assert "holds" in checked.stdout
    assert checked.stdout.splitlines()[-1] == f"all {len(rule_names())} rules hold"


def test_a_broken_rule_is_counted_and_shown(run: Run, things: str, connection: Connection) -> None:
    connection.execute("update autofill.dispatch set ended_at = now()")  # with rows of it still to come
    checked = run("check")
    assert checked.exit_code == 1
    assert checked.stdout.splitlines()[-1] == f"1 of {len(rule_names())} rules broken"
    assert "BROKEN  r7 ended dispatches own nothing" in checked.stdout


def test_retry_and_only_ask_for_those_cells(run: Run, things: str, worker: None) -> None:
    assert run("reprocess", things, "--wait").exit_code == 0
    retried = run("retry", things, "--class", "function_error", "--wait")
    assert retried.exit_code == 0, retried.output
    dispatch = retried.stdout.split("dispatch ")[1].split()[0]
    told = json.loads(run("watch", dispatch, "--json").stdout)
    assert (told["attempts"], told["total"], told["aim"], told["done"]) == ({}, 6, 0, 0)
    assert "0 of 0 cells: nothing to do: no cell is what was asked for" in retried.stdout
    unknown = run("retry", things, "--class", "sad")
    assert (unknown.exit_code, "it is one of" in unknown.stderr) == (2, True)
    forced = run("reprocess", things, "--only", "outdated", "--force", "--wait")
    assert forced.exit_code == 0, forced.output
    dispatch = forced.stdout.split("dispatch ")[1].split()[0]
    assert json.loads(run("watch", dispatch, "--json").stdout)["attempts"] == {}
    wrong = run("reprocess", things, "--only", "old")
    assert (wrong.exit_code, "not_found, errors" in wrong.stderr) == (2, True)


def test_attempts_and_answers_tell_what_happened(run: Run, things: str, worker: None) -> None:
    assert run("reprocess", things, "--wait").exit_code == 0
    assert run("edit", things, "1", "title=a b c", "--wait").exit_code == 0
    calls = json.loads(run("attempts", things, "--column", "words", "--json").stdout)
    assert {call["outcome"] for call in calls} == {"succeeded"}
    assert "succeeded" in run("attempts", things).stdout
    (earlier,) = json.loads(run("answers", things, "1", "words", "--json").stdout)
    assert earlier["was"] == 2
    assert run("answers", things, "1", "words").exit_code == 0


def test_progress_is_told_in_words_and_in_numbers(run: Run, things: str, worker: None) -> None:
    assert run("reprocess", things, "--wait").exit_code == 0
    again = run("reprocess", things, "--column", "words", "--wait")
    assert "2 up to date already" in again.stdout
    forced = run("reprocess", things, "--column", "words", "--force", "--wait")
    assert "2 answered as before" in forced.stdout
    watched = json.loads(run("watch", forced.stdout.split("dispatch ")[1].split()[0], "--json").stdout)
    assert (watched["done"], watched["running"], watched["queued"], watched["waiting"]) == (3, 0, 0, 0)
    assert (watched["failed"], watched["superseded"], watched["eta_seconds"]) == ({}, 0, None)
    assert watched["saved"] == {"cached": 0, "fresh": 0, "unchanged": 2}
    listed = json.loads(run("status", things, "--json").stdout)["collections"][0]["dispatches"][0]
    assert listed["columns"] == ["words"]
    assert listed["saved"] == watched["saved"]
    assert "answered as before" in run("status", things).stdout
