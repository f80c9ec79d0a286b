"""The kind: files of a column's place, read by page, once for the same content, and never more than they are."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cell_engine.errors import AutofillError, SpecError
from cell_engine.files import local
from cell_engine.kinds.base import Answer, Call, Failure, Outcome, Previous
from cell_engine.kinds.extract import ExtractKind
from cell_engine.specs.compile import compile_text
from cell_engine.specs.text import Json
from cell_engine.specs.version import Column
from tests.data import make
from tests.kinds.helpers import call

pytestmark = pytest.mark.anyio

FIRST, SECOND = "\n".join(make.FIRST), make.SECOND[0]
SPEC = """
namespace: demo
name: contracts
columns:
  - {name: file, type: file}
  - {name: text, type: TYPE, kind: extract, deps: [file], extract: {SETTINGS}}
"""


def column(value_type: str = "text", settings: str = "") -> Column:
    spec = compile_text(SPEC.replace("TYPE", value_type).replace("SETTINGS", settings))
    return spec.bind({"file": 1, "text": 2})[1]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The corpus, as the files of the collection."""
    monkeypatch.setenv("AUTOFILL_FILES", str(tmp_path))
    monkeypatch.setattr(local, "SETTLED_SECONDS", 0.0)
    return Path(shutil.copytree(make.FOLDER, tmp_path / "demo" / "contracts"))


@pytest.fixture
async def extract() -> AsyncIterator[ExtractKind]:
    kind = ExtractKind()
    yield kind
    await kind.close()


def answer(outcome: Outcome) -> Answer:
    assert isinstance(outcome, Answer), outcome
    return outcome


def details(outcome: Outcome) -> dict[str, Any]:
    return dict(answer(outcome).details or {})


async def test_pages_are_apart_by_form_feeds_and_what_is_known_stands_beside(
    extract: ExtractKind, folder: Path
) -> None:
    found = await extract.compute(call(column(), "two-pages.pdf"))
    assert answer(found).value == f"{FIRST}\f{SECOND}"
    assert {name: details(found)[name] for name in ("path", "media_type", "page_count", "bytes", "metadata")} == {
        "path": "two-pages.pdf",
        "media_type": "application/pdf",
        "page_count": 2,
        "bytes": (folder / "two-pages.pdf").stat().st_size,
        "metadata": {"title": "Supply (2026)", "created": "2026-01-02T03:04:05+00:00"},
    }
    # one process for what follows: starting one costs most of this test
    whole = await extract.compute(call(column("json"), "two-pages.docx"))
    assert answer(whole).value == {
        "text": f"{FIRST}\f{SECOND}",
        "pages": [FIRST, SECOND],
        "page_count": 2,
        "metadata": {"title": "Supply", "author": "Ann", "created": "2026-01-02T03:04:05Z"},
    }
    told = await extract.compute(call(column(), "half-scanned.pdf"))
    assert details(told)["pages_without_text"] == "2"
    refused = await extract.compute(call(column(), "scanned.pdf"))
    assert isinstance(refused, Failure)
    assert refused.error_class == "bad_input"
    assert refused.message.startswith("scanned.pdf: None of its pages (2) has a text layer")
    charset = await extract.compute(call(column(settings="charset: windows-1252"), "french-cp1252.txt"))
    assert answer(charset).value == make.FRENCH


async def test_the_same_content_is_not_parsed_again_and_another_is(extract: ExtractKind, folder: Path) -> None:
    first = answer(await extract.compute(call(column(), "two-pages.txt")))
    assert first.details is not None
    known = Previous("as it was", first.details)
    again = await extract.compute(_after(call(column(), "two-pages.txt"), known))
    assert answer(again).value == "as it was"
    assert details(again)["page_count"] == 2
    for other in (
        call(column(settings="max_bytes: 1000000"), "two-pages.txt"),  # another definition
        call(column(), "pdf-as.txt"),
    ):
        assert answer(await extract.compute(_after(other, known))).value != "as it was"
    (folder / "two-pages.txt").write_text("now this")
    changed = await extract.compute(_after(call(column(), "two-pages.txt"), known))
    assert answer(changed).value == "now this"


def _after(asked: Call, previous: Previous) -> Call:
    return replace(asked, previous=previous)


async def test_what_is_not_there_is_waited_for_and_what_is_too_large_or_outside_is_not_read(
    extract: ExtractKind, folder: Path
) -> None:
    failures = {
        path: await extract.compute(call(column(settings="max_bytes: 100"), path))
        for path in ("not-yet.pdf", "two-pages.pdf", "../contracts/prices.csv", "/etc/passwd")
    }
    assert {path: failed.error_class for path, failed in failures.items() if isinstance(failed, Failure)} == {
        "not-yet.pdf": "waiting",
        "two-pages.pdf": "too_long",
        "../contracts/prices.csv": "bad_input",
        "/etc/passwd": "bad_input",
    }


def test_a_place_that_is_not_allowed_is_told_when_a_worker_starts(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = compile_text("files: {root: /elsewhere}" + SPEC.replace("TYPE", "text").replace("SETTINGS", ""))
    with pytest.raises(AutofillError, match=r"'text'.*AUTOFILL_FILES"):
        ExtractKind().check(spec.bind({"file": 1, "text": 2})[1])


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (SPEC.replace("type: file", "type: text").replace("TYPE", "text"), "kind extract reads a column of type file"),
        (SPEC.replace("TYPE", "number"), "kind extract makes values of type text or json"),
        (SPEC.replace("TYPE", "text").replace("SETTINGS", "charset: klingon"), "no charset 'klingon'"),
    ],
)
def test_columns_that_cannot_be_are_refused(spec: str, problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        compile_text(spec.replace("SETTINGS", ""))


def test_another_way_of_writing_a_charset_is_no_other_definition() -> None:
    definitions: list[Json] = [
        column(settings=f"charset: {name}").settings["charset"] for name in ("cp1252", "Windows-1252")
    ]
    assert definitions == ["cp1252", "cp1252"]
