"""Limits of endpoints from the command line."""

from __future__ import annotations

import json

from .conftest import Run


def test_limits_are_set_shown_and_taken_back(run: Run) -> None:
    address = "https://me:secret@Models.example/v1"
    done = run("provider", "set", address, "m", "--concurrency", "10", "--requests", "600")
    assert done.exit_code == 0, done.output
    assert "calls in flight 10, requests a minute 600, tokens a minute none" in done.stdout
    assert run("provider", "set", address, "m", "--concurrency", "none", "--tokens", "90000").exit_code == 0
    (found,) = json.loads(run("provider", "list", "--json").stdout)
    assert (found["base_url"], found["model"], found["state"]) == ("https://models.example/v1/", "m", "unproven")
    assert (found["concurrency"], found["requests_minute"], found["tokens_minute"]) == (None, 600, 90000)
    listed = run("provider", "list").stdout
    assert "models.example" in listed and "unproven" in listed and "secret" not in listed
    again = run("provider", "set", "https://models.example/v1/", "m", "--reset", "--json")
    assert json.loads(again.stdout)["requests_minute"] == 600


def test_what_makes_no_sense_is_refused(run: Run) -> None:
    for arguments, said in (
        (("m",), "nothing to set"),
        (("m", "--requests", "many"), "is no number"),
        (("m", "--requests", "0"), "at least 1"),
        (("m", "--reset"), "no endpoint http://x/ with model"),
    ):
        refused = run("provider", "set", "http://x", *arguments)
        assert (refused.exit_code, said in refused.stderr) == (2, True), refused.output
