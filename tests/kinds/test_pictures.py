"""Pictures in prompts: by content, at their place, and what will not do."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from cell_engine.errors import SpecError
from cell_engine.kinds import llm_request
from cell_engine.kinds.base import Answer, Call, Failure
from cell_engine.kinds.llm import LlmKind
from cell_engine.kinds.pictures import MOST_BYTES, content, picture_type, with_places
from cell_engine.offline_model import OfflineModel
from cell_engine.offline_model.media import CANNOT_SEE, seen
from cell_engine.specs.compile import compile_text
from cell_engine.specs.files import FileSource
from cell_engine.specs.text import Json
from tests.kinds.helpers import Script, ScriptedProvider, call, completion, llm_column
from tests.kinds.media import png, wav

pytestmark = pytest.mark.anyio

SPEC = """
namespace: test
name: photos
columns:
  - {name: photo, type: file}
  - {name: note, type: text}
  - {name: seen, type: text, kind: llm, llm: {model: m, prompt: "What is on {{photo}}? {{note}}"}}
"""
JPEG = b"\xff\xd8\xff\xe0" + bytes(20)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settled_files: None) -> Path:
    monkeypatch.setenv("AUTOFILL_FILES", str(tmp_path))
    (tmp_path / "photos").mkdir()
    return tmp_path / "photos"


def _call(*inputs: Json) -> Call:
    prompt: list[Json] = ["Look at ", {"column": 1}, " and ", {"column": 2}, ".\n", {"column": 1}]
    column = llm_column(prompt=prompt, files=["a"])
    return call(replace(column, files=FileSource("photos", wait=60)), *inputs)


def _url(data: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


async def test_a_picture_stands_where_its_column_does(
    folder: Path, provider: ScriptedProvider, scripted: LlmKind
) -> None:
    (folder / "one.png").write_bytes(png())
    (folder / "two").write_bytes(JPEG)  # no name says what it is
    provider.script = [Script(completion('{"value": "a cat"}'))]
    outcome = await scripted.compute(_call(["one.png", "two", "three.pdf"], "two.png"))
    assert isinstance(outcome, Answer)
    assert outcome.value == "a cat"
    assert provider.requests[0]["messages"][-1]["content"] == [
        {"type": "text", "text": 'Look at <column name="a">'},
        {"type": "image_url", "image_url": {"url": _url(png())}},
        {"type": "text", "text": "\n"},
        {"type": "image_url", "image_url": {"url": _url(JPEG, "image/jpeg")}},
        # What is no picture, and what stood there before, is its path; a text that looks like a path is a text.
        {
            "type": "text",
            "text": '\nthree.pdf</column> and <column name="b">two.png</column>.\n'
            '<column name="a">one.png\ntwo\nthree.pdf</column>',
        },
    ]


async def test_a_text_in_parts_is_answered_beside_its_picture_whose_name_is_nothing_to_quote(
    folder: Path, provider: ScriptedProvider, scripted: LlmKind
) -> None:
    def said(value: str, quote: str) -> Script:
        evidence = [{"column": "a", "quote": quote}]
        return Script(completion(json.dumps({"evidence": evidence, "value": value})))

    (folder / "plan.png").write_bytes(png())
    reference: list[Json] = [{"column": 1}, {"column": 2}]
    settings: dict[str, Json] = {
        "prompt": reference,
        "map": [{"column": 1}],
        "reduce": reference,
        "chunks": {"size": 200, "overlap": 0, "failed": "fail"},
        "evidence": "required",
        "files": ["b"],
    }
    asking = replace(llm_column(**settings), files=FileSource("photos", wait=60))
    text = "The house is red. " * 20
    parts = [said("see plan.png", "The house is red.")] * 2
    provider.script = [*parts, said("red", "The house is red.")]
    assert isinstance(await scripted.compute(call(asking, text, "plan.png")), Answer)
    *asked, last = [request["messages"][-1]["content"] for request in provider.requests]
    assert all(isinstance(one, str) for one in asked)
    assert {"type": "image_url", "image_url": {"url": _url(png())}} in last
    provider.script = [*parts, said("red", "plan.png")]  # it stands in what the parts came to, and is the file's name
    outcome = await scripted.compute(call(asking, text, "plan.png"))
    assert isinstance(outcome, Failure)
    assert outcome.error_class == "unsupported"


async def test_without_a_picture_a_prompt_is_text(folder: Path, provider: ScriptedProvider, scripted: LlmKind) -> None:
    (folder / "notes").write_bytes(b"text")
    provider.script = [Script(completion('{"value": "x"}'))]
    for path in ("a.pdf", "notes", None):
        assert isinstance(await scripted.compute(_call(path, "y")), Answer)
    assert all(isinstance(request["messages"][-1]["content"], str) for request in provider.requests)


async def test_what_will_not_do_is_not_sent(folder: Path, provider: ScriptedProvider, scripted: LlmKind) -> None:
    (folder / "page.png").write_bytes(b"<html>")
    (folder / "large.png").write_bytes(png() + bytes(MOST_BYTES))
    classes: Mapping[str, str] = {
        "page.png": "bad_input",
        "large.png": "too_long",
        "none.png": "waiting",
        "../a.png": "bad_input",
    }
    for path, error_class in classes.items():
        outcome = await scripted.compute(_call(path, "x"))
        assert isinstance(outcome, Failure)
        assert (path, outcome.error_class) == (path, error_class)
    assert provider.requests == []


async def test_the_offline_model_reads_what_a_picture_says_of_itself(
    folder: Path, llm: LlmKind, model: OfflineModel
) -> None:
    (folder / "a.png").write_bytes(png("A red bicycle leans on a wall."))
    (folder / "b.jpg").write_bytes(JPEG)
    known, unknown = [await llm.compute(_call(path, "")) for path in ("a.png", "b.jpg")]
    assert isinstance(known, Answer)
    assert known.value == "A red bicycle leans on a wall."
    assert isinstance(unknown, Answer)
    assert "cannot see" in str(unknown.value)
    assert model.stats.billed.total() == 2


def test_no_text_of_a_cell_is_taken_for_a_place() -> None:
    placed, urls = with_places({1: "a.png", 2: "0", 3: None}, {1: {"a.png": "data:1"}})
    assert placed == {1: "\x000\x00", 2: "0", 3: None}
    assert content("none at all", []) == "none at all"
    assert content("x \x000\x00 0 y", urls) == [
        {"type": "text", "text": "x "},
        {"type": "image_url", "image_url": {"url": "data:1"}},
        {"type": "text", "text": " 0 y"},
    ]


def test_files_are_noted_in_the_definition_and_are_nothing_to_quote() -> None:
    spec = compile_text(SPEC)
    assert spec.columns[2].settings["files"] == ["photo"]
    bound = spec.bind({"photo": 1, "note": 2, "seen": 3})[2]
    asked = replace(call(bound, "a.png", "it says so"), names={1: "photo", 2: "note"})
    assert llm_request.quotable(asked) == {"note": "it says so"}
    assert "files" not in compile_text(SPEC.replace("{{photo}}", "{{note}}")).columns[2].settings
    with pytest.raises(SpecError, match=":7: column 'seen': evidence is quoted from text, and it reads files alone"):
        compile_text(SPEC.replace("? {{note}}", "").replace("model: m", "model: m, evidence: required"))


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (png(), "image/png"),
        (JPEG, "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (wav("x"), None),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", None),
        (b"%PDF-1.7", None),
        (b"", None),
    ],
)
def test_a_picture_is_known_by_its_content(data: bytes, found: str | None) -> None:
    assert picture_type(data) == found


@pytest.mark.parametrize(
    "url", ["https://example.com/a.png", "data:image/png;base64,***", None, "data:text/plain;base64,eA=="]
)
def test_the_offline_model_takes_no_other_picture(url: object) -> None:
    with pytest.raises(ValueError, match="picture"):
        seen(url)
    assert seen(_url(JPEG)) == seen(_url(png())) == CANNOT_SEE
