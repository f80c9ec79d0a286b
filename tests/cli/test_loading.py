"""What comes in by the command: synced, repaired, restored; and what is refused."""

import json
from pathlib import Path

import pytest

from .conftest import SPEC, Run


@pytest.fixture
def things(run: Run, tmp_path: Path) -> str:
    (tmp_path / "things.yaml").write_text(SPEC.replace("name: things\n", "name: things\nkey: title\n"))
    assert run("apply", str(tmp_path / "things.yaml")).exit_code == 0
    return "test/things"


def test_a_snapshot_is_synced_repaired_and_restored(run: Run, things: str, tmp_path: Path) -> None:
    file = tmp_path / "things.csv"
    file.write_text("title,amount\none,1\ntwo,2\nthree,3\n")
    would = json.loads(run("load", things, str(file), "--sync", "--dry-run", "--json").stdout)
    assert (would["inserted"], would["estimate"]["cells"], would["estimate"]["cost"]) == (3, 6, 0)
    first = run("load", things, str(file), "--sync")
    assert first.exit_code == 0, first.output
    assert "things.csv: 3 new, 0 as they were" in first.stdout

    file.write_text("title,amount\none,1\ntwo,22\n")
    dry = run("load", things, str(file), "--sync", "--dry-run")
    assert "would be: 1 changed, 1 deleted, 1 as they were" in dry.stdout
    assert "2 cells, about $0.00" in dry.stdout
    done = json.loads(run("load", things, str(file), "--sync", "--json").stdout)
    assert (done["updated"], done["deleted"], done["unchanged"]) == (1, 1, 1)
    back = run("restore", things, "--sync", str(done["number"]))
    assert "1 rows are back" in back.stdout

    file.write_text("title\none\n")
    refused = run("load", things, str(file), "--sync")
    assert refused.exit_code == 2
    assert "lacks 2 of the 3 rows of test/things, more than 50%" in refused.stderr
    assert run("load", things, str(file), "--sync", "--any-deletes").exit_code == 0

    file.write_text("title,amount\none,1\nfour,x\n")
    faulty = run("load", things, str(file), "--sync")
    assert faulty.exit_code == 5
    assert "things.csv:3: column 'amount'" in faulty.stderr
    listed = json.loads(run("rejected", things, "--json").stdout)
    assert [(one["line"], one["raw"], one["fields"]) for one in listed] == [
        (3, "four,x", {"title": "four", "amount": "x"})
    ]
    repaired = tmp_path / "rejected.csv"
    assert "1 rejected lines" in run("rejected", things, "--csv", str(repaired)).stdout
    repaired.write_text(repaired.read_text().replace(",four,x,", ",four,4,"))
    again = run("load", things, str(repaired), "--repair")
    assert again.exit_code == 0, again.output
    assert "1 repaired rows are in, 0 left as they were" in again.stdout
    assert "no rejected lines" in run("rejected", things).stdout


def test_what_does_not_go_together_is_refused(run: Run, things: str, tmp_path: Path) -> None:
    file = tmp_path / "a.sql"
    file.write_text("select 1")
    for arguments, said in (
        (["--any-deletes", "x.csv"], "--any-deletes goes with"),
        (["--repair", "--sync", "x.csv"], "--repair goes with neither"),
        ([], "declares no source, feed or files with columns: name a file"),
        (["https://news.example/feed", "--sync"], "a feed takes none of"),
        (["--query", str(file)], "--query goes with --connection"),
        (["--query", str(file), "--connection", "nowhere"], "AUTOFILL_SOURCE_NOWHERE is not set"),
        (["http://127.0.0.1:9/feed"], "127.0.0.1 is a loopback address"),
        (["x.csv", "--encoding", "no-such"], "x.csv: cannot be read"),
    ):
        refused = run("load", things, *arguments)
        assert refused.exit_code == 2, (arguments, refused.output)
        assert said in refused.stderr
