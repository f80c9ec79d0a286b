"""Answers with evidence through a real worker and the offline model: found, not found, passed on, and made up."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cell_engine.cli.main import app
from cell_engine.offline_model import OfflineModel, Switches
from cell_engine.store.database import Connection
from cell_engine.store.demands import RangeScope, dispatch
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import Progress, page, progress, recent_dispatches
from tests.engine import Made, eventually, make, offline_model, running_worker

ENDED = "select ended_at is not null from autofill.dispatch where id = %s"

SPEC = """
namespace: test
name: contracts
llm: {model: gpt-5-mini, evidence: required}
columns:
  - {name: contract, type: text}
  - {name: begins, type: date, kind: llm, llm: {prompt: "When does it begin? {{contract}}"}}
  - name: year
    type: text
    kind: function
    deps: [{column: begins, not_found: propagate}]
    function: {name: "tests.functions:upper_begins"}
  - name: strict
    type: text
    kind: function
    deps: [begins]
    function: {name: "tests.functions:upper_begins"}
  - name: lenient
    type: text
    kind: function
    deps: [{column: begins, not_found: run}]
    function: {name: "tests.functions:upper_begins"}
"""
ROWS = [{"contract": "Page one.\fIt begins on 2024-05-03."}, {"contract": "It begins some day."}]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[OfflineModel]:
    with offline_model(monkeypatch) as model:
        yield model


def shown(connection: Connection, made: Made) -> list[tuple[str, str, object]]:
    names = {one.id: one.name for one in made.version.columns}
    return [(names[one.column_id], one.status, one.value) for one in page(connection, made.collection.id)[1]]


def ended(connection: Connection, dispatch_id: int) -> Progress:
    eventually(connection, ENDED, dispatch_id, seconds=60)
    done = progress(connection, dispatch_id)
    assert done is not None
    return done


def again(connection: Connection, made: Made) -> Progress:
    asked = dispatch(
        connection, made.collection.id, RangeScope(((1, 2),)), columns=[made.id("begins")], force=True,
        reason="reprocess", actor="me",
    )  # fmt: skip
    return ended(connection, asked)


def test_R8_what_is_found_says_where_what_is_not_says_why_and_dependents_do_as_they_declare(
    connection: Connection, database: str, model: OfflineModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = make(connection, SPEC, rows=ROWS)
    load = recent_dispatches(connection, made.collection.id)[-1].id
    with running_worker(database):
        assert ended(connection, load).outcomes == {"ready": 5, "not_found": 2, "blocked": 1}
        assert shown(connection, made) == [
            ("begins", "ready", "2024-05-03"), ("year", "ready", "2024-05-03"), ("strict", "ready", "2024-05-03"),
            ("lenient", "ready", "2024-05-03"),
            ("begins", "not_found", None), ("year", "not_found", None), ("strict", "blocked", None),
            ("lenient", "ready", "NONE"),
        ]  # fmt: skip
        assert model.stats.arrived == 2
        cells = page(connection, made.collection.id)[1]
        assert cells[0].details == {
            "evidence": [{"column": "contract", "quote": "It begins on 2024-05-03.", "start": 10, "end": 34, "page": 2}]
        }
        assert [one.details for one in cells[4:6]] == [
            {"not_found": "The text does not say."}, {"not_found": "input 'begins' was not found"},
        ]  # fmt: skip
        assert cells[6].error == "required input 'begins' is not found"

        # the same is answered: nothing that reads it is called, nor passed on once more
        assert again(connection, made).outcomes == {"unchanged": 1, "not_found": 1}

        # equal cells elsewhere take the answer from the cache, also the one that there is none
        calls = model.stats.arrived
        copy = make(connection, SPEC.replace("contracts", "copies"), rows=ROWS)
        loaded = ended(connection, recent_dispatches(connection, copy.collection.id)[-1].id)
        assert (model.stats.arrived, loaded.done) == (calls, 8)
        assert [state for _, state, _ in shown(connection, copy)] == [state for _, state, _ in shown(connection, made)]

        # made-up quotes are an error that says what was claimed; what was not found is none
        model.switches = Switches(unsupported=1)
        assert again(connection, made).outcomes["unsupported"] == 1
        cells = page(connection, made.collection.id)[1]
        assert (cells[0].error_class, cells[0].details) == ("unsupported", None)
        assert "answered '2024-05-03'" in str(cells[0].error)
        assert "2024-05-03. on begins It indeed so" in str(cells[0].error)
        assert cells[4].status == "not_found"
    assert broken_rules(connection) == {}

    monkeypatch.setenv("AUTOFILL_DATABASE_URL", database)
    monkeypatch.setenv("AUTOFILL_HOME", str(tmp_path))
    told = CliRunner().invoke(app, ["show", "test/copies", "--row", "1"])
    assert "begins    2024-05-03\n          from contract, page 2: “It begins on 2024-05-03.”" in told.output
    told = CliRunner().invoke(app, ["show", "test/copies", "--row", "2"])
    assert "begins    [not_found: The text does not say.]" in told.output
    assert "strict    [blocked: required input 'begins' is not found]" in told.output
    assert "not_found" in CliRunner().invoke(app, ["show", "test/copies"]).output
    assert json.loads(CliRunner().invoke(app, ["show", "test/copies", "--row", "2", "--json"]).stdout)[0]["row"] == 2
    assert CliRunner().invoke(app, ["show", "test/copies", "--row", "3"]).exit_code != 0
