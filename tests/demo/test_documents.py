"""The contracts: the same files every time, which say what is known of them, in every format."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from cell_engine.demo.documents import SPEC_FILE, play
from cell_engine.demo.documents.contracts import CONTRACTS, RISKS, Contract, contracts, write_folder
from cell_engine.demo.patience import PatientStore
from cell_engine.demo.run import watch
from cell_engine.demo.stage import Stage
from cell_engine.files import local
from cell_engine.kinds.documents.reader import read_document
from cell_engine.kinds.evidence import Claim, check
from cell_engine.offline_model.answers import complete
from cell_engine.specs import answer_shape, prompt
from cell_engine.specs.compile import compile_file
from cell_engine.store.database import Connection
from tests.demo.test_web_demos import Heard
from tests.engine import offline_model, running_worker

PAGED = {"pdf": 3, "docx": 3, "txt": 3, "html": 1, "md": 1}


def test_the_folder_is_the_same_every_time_and_written_once(tmp_path: Path) -> None:
    made = write_folder(tmp_path)
    assert len({contract.path for contract in made}) == CONTRACTS
    assert {contract.path for contract in made} == {
        path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()
    }
    assert len({contract.risk for contract in made}) == 5
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*")}
    (tmp_path / made[0].path).write_bytes(b"changed")
    os.utime(tmp_path / made[0].path, ns=(0, 0))
    assert write_folder(tmp_path) == made
    changed = [path for path, time in times.items() if path.stat().st_mtime_ns != time]
    assert changed == [tmp_path / made[0].path]


@pytest.mark.parametrize("suffix", PAGED)
def test_the_offline_model_reads_in_each_format_what_is_true_of_a_contract(suffix: str) -> None:
    of_format = [found for found in contracts() if found[0].path.endswith(f".{suffix}")]
    with_risk = next(found for found in of_format if found[0].risk)
    without = next(found for found in of_format if not found[0].risk)
    for contract, content in (with_risk, without):
        document = read_document(contract.path, content)
        assert len(document.pages) == PAGED[suffix]
        answers = _answers("\f".join(document.pages))
        unsaid = {"not_found": "The text does not say."}
        said = {column: None if answer["value"] == unsaid else answer["value"] for column, answer in answers.items()}
        assert said == contract.facts()
        quotes = [" ".join(one["quote"].split()) for one in answers["risk"]["evidence"]]
        assert quotes == ([RISKS[contract.risk]] if contract.risk else [])
        texts = {"text": "\f".join(document.pages)}
        for answer in answers.values():
            claims = [Claim(one["column"], one["quote"]) for one in answer["evidence"]]
            assert not check(claims, dict(texts)).missing


def _answers(text: str) -> dict[str, Any]:
    """What the demo's columns come to over this text."""
    spec = compile_file(SPEC_FILE)
    ids = {column.key: number for number, column in enumerate(spec.columns)}
    cells: dict[int, Any] = {ids["text"]: text}
    answers = {}
    for column in spec.columns:
        if column.kind == "llm":
            names = {number: key for key, number in ids.items()}
            user = prompt.render(prompt.bind(column.settings["prompt"], ids), cells, names)  # type: ignore[arg-type]
            shape = answer_shape.schema(column.type, column.settings, ["text"])
            schema = {"name": "cell", "strict": True, "schema": shape}
            request = {
                "model": "any",
                "messages": [{"role": "user", "content": user}],
                "response_format": {"type": "json_schema", "json_schema": schema},
            }
            answers[column.name] = json.loads(complete(request).content)
    return answers


def test_the_demo_reads_what_it_has_written(
    database: str, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOFILL_FILES", str(tmp_path))
    monkeypatch.setattr("cell_engine.demo.documents.contracts.CONTRACTS", 10)
    monkeypatch.setattr(local, "SETTLED_SECONDS", 0.0)
    monkeypatch.setattr(play, "SETTLED_SECONDS", 0.0)
    heard = Heard()
    with (
        offline_model(monkeypatch),
        running_worker(database),
        PatientStore(database, "demo", time.sleep) as store,
    ):
        watched = watch(connection, compile_file(SPEC_FILE))
        monkeypatch.setattr(play, "needs_offline_model", lambda: True)
        assert play.play(Stage(tmp_path, database, watched, store, time.sleep, heard)) == []
    said = "\n".join(heard.lines)
    assert "60 of 60 facts were read as they were written" in said
    assert f"2024/01-supply.pdf, page 2: unlimited liability: {RISKS['unlimited liability']}" in said


def test_what_was_read_otherwise_is_named() -> None:
    first: Contract = next(contracts())[0]
    read = {first.path: {**first.facts(), "law": "Bavaria"}}
    wrong, right = play.compared([first], read)
    assert right == 5
    assert wrong == [f"{first.path}: law is {first.law!r}, and was read as 'Bavaria'"]
    assert len(play.compared([first], {})[0]) == 6


def test_a_contract_knows_what_is_true_of_it() -> None:
    first: Contract = next(contracts())[0]
    assert first.facts().keys() == {"counterparty", "starts", "ends", "amount", "law", "risk"}
