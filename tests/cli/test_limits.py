"""`autofill limits`, and what a limit that refuses looks like."""

import json

from cell_engine.store.database import Connection

from .conftest import Run


def test_limits_are_shown_and_set(run: Run, things: str) -> None:
    assert run("limits", "set", "cap=40000").stdout == "everything: cap 40,000\n"
    assert run("limits", "set", "test", "cap=1000", "weight=3").stdout == "test: cap 1,000, weight 3\n"
    assert run("limits", "set", things, "cap=50", "backlog=none").stdout == "test/things: cap 50, backlog none\n"
    assert json.loads(run("limits", "show", "--json").stdout) == [
        {"scope": "everything", "held": 0, "cap": 40000},
        {"scope": "test", "held": 0, "cap": 1000, "weight": 3, "dispatches": 300},
        {"scope": "test/things", "held": 0, "cap": 50, "dispatches": 100, "backlog": None},
    ]
    shown = run("limits", "show", things)
    assert shown.exit_code == 0
    assert "everything" not in shown.stdout
    assert "none" in shown.stdout


def test_limits_say_what_is_wrong_with_them(run: Run, things: str) -> None:
    for arguments, why in (
        (("set", "test"), "nothing to set"),
        (("set", "test", "cap=many"), "'cap=many' is no limit: write NAME=NUMBER or NAME=none"),
        (("set", "test", "speed=3"), "test has no limit 'speed'; it has: cap, weight, dispatches"),
        (("set", "best", "cap=3"), "no namespace or collection 'best' (there are: test, test/things)"),
        (("show", "best"), "no namespace or collection 'best'"),
    ):
        result = run("limits", *arguments)
        assert (result.exit_code, why in result.stderr) == (2, True), result.output


def test_a_refused_edit_says_when_to_come_back(run: Run, things: str, connection: Connection) -> None:
    connection.execute("update autofill.pass set used_at = now() + interval '10 s'")
    result = run("edit", things, "1", "title=mine")
    assert result.exit_code == 6
    assert result.stderr.startswith("test/things takes 100 dispatches a second, and has had them: try again in 1")
    assert "`autofill limits show test/things`" in result.stderr
