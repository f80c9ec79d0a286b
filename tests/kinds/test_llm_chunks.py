"""Long texts by part: nothing is left out, one reduce, and what failed is said."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from typing import Any

import pytest

from cell_engine.errors import SpecError
from cell_engine.kinds import llm_chunks
from cell_engine.kinds.base import Answer, Call, Failure
from cell_engine.kinds.chunking import parts
from cell_engine.kinds.llm import LlmKind
from cell_engine.specs.compile import compile_text
from cell_engine.specs.text import Json
from cell_engine.specs.types import ColumnType
from cell_engine.specs.version import Column
from tests.engine import offline_model
from tests.kinds.helpers import Script, ScriptedProvider, call, completion, llm_column

pytestmark = pytest.mark.anyio

PAGES = [" ".join(f"Page {page} sentence {number} is here." for number in range(12)) for page in range(1, 5)]
TEXT = "\f".join(PAGES)
DATE = ColumnType("date")


def column(column_type: ColumnType = DATE, **chunks: Json) -> Column:
    reference: Json = {"column": 1}
    settings: dict[str, Json] = {
        "map": ["What of it? ", reference],
        "reduce": ["When, after all? ", reference],
        "chunks": {"size": 400, "overlap": 0, "failed": "fail", **chunks},
        "system": "Be brief.",
    }
    return llm_column(column_type, **settings)


def answers(*values: Json) -> list[Script]:
    return [Script(completion(json.dumps({"value": value}))) for value in values]


def asked(provider: ScriptedProvider) -> list[str]:
    return [request["messages"][1]["content"] for request in provider.requests]


def test_parts_hold_all_of_the_text_and_overlap_as_far_as_they_say() -> None:
    chance = random.Random(5)
    for _ in range(200):
        letters = [chr(0x4E00 + at) for at in range(chance.randrange(1, 900))]  # each once, so that places are known
        text = "".join(letter + chance.choice(("", "", "", " ", "\n", ". ", "\f")) for letter in letters)
        size = chance.randrange(10, 200)
        overlap = chance.randrange(0, size // 2 + 1)
        found = parts(text, size, overlap)
        assert [part.number for part in found] == list(range(1, len(found) + 1))
        assert all(len(part.text) <= size for part in found)
        end = 0
        for part in found:  # each begins in the one before, at most so far back, or right behind it
            start = text.index(part.text)
            assert max(0, end - overlap) <= start <= end
            end = start + len(part.text)
        assert end == len(text)


def test_parts_end_where_the_text_pauses_and_know_their_pages() -> None:
    found = parts(TEXT, 400, 40)
    assert [(part.name, part.text[-1]) for part in found] == [
        ("Part 1 of 4 (page 1)", "\f"),
        ("Part 2 of 4 (pages 1-2)", "\f"),
        ("Part 3 of 4 (pages 2-3)", "\f"),
        ("Part 4 of 4 (pages 3-4)", "."),
    ]
    assert found[1].text.startswith("10 is here. Page 1 sentence 11 is here.\fPage 2 sentence 0")
    assert parts("word " * 100, 60, 0)[0].name == "Part 1 of 9"
    assert [len(part.text) for part in parts("x" * 100, 30, 0)] == [30, 30, 30, 10]


async def test_a_text_that_fits_is_asked_for_at_once(scripted: LlmKind, provider: ScriptedProvider) -> None:
    provider.script = answers("2026-03-01")
    outcome = await scripted.compute(call(column(size=len(TEXT)), TEXT))
    assert isinstance(outcome, Answer)
    assert (outcome.value, outcome.details) == ("2026-03-01", None)
    assert asked(provider) == [f'Summarise.\n<column name="a">{TEXT}</column>']


async def test_each_part_is_asked_for_once_and_then_all_of_them_once(
    scripted: LlmKind, provider: ScriptedProvider
) -> None:
    provider.script = answers("nothing", "from March", "until May", "nothing", "2026-03-01")
    outcome = await scripted.compute(call(column(), TEXT))
    assert isinstance(outcome, Answer)
    assert (outcome.value, outcome.details) == ("2026-03-01", {"chunks": {"count": 4, "failed": []}})
    assert (outcome.tokens_in, outcome.tokens_out) == (50, 25)
    *mapped, reduced = asked(provider)
    assert [re.sub("<.*?>", "", text, flags=re.DOTALL) for text in mapped] == [
        f"What of it? {page}" for page in (*(f"{page}\f" for page in PAGES[:3]), PAGES[3])
    ]
    assert reduced == (
        'When, after all? <column name="a">Part 1 of 4 (page 1):\nnothing\n\nPart 2 of 4 (page 2):\nfrom March\n\n'
        "Part 3 of 4 (page 3):\nuntil May\n\nPart 4 of 4 (page 4):\nnothing</column>"
    )
    systems = [request["messages"][0]["content"] for request in provider.requests]
    assert "Be brief.\n\nThe text is too long for one reading. This is Part 2 of 4 (page 2)" in systems[1]
    # a part is asked for in words, whatever the column's type is
    types = [
        request["response_format"]["json_schema"]["schema"]["properties"]["value"] for request in provider.requests
    ]
    assert types == [{"type": "string"}] * 4 + [DATE.json_schema()]


async def test_a_part_that_fails_fails_the_cell_and_is_named(scripted: LlmKind, provider: ScriptedProvider) -> None:
    refusal = Script(completion(None, refusal="No."))
    provider.script = [*answers("one"), refusal]
    outcome = await scripted.compute(call(column(), TEXT))
    assert isinstance(outcome, Failure)
    assert (outcome.error_class, outcome.tokens_in) == ("refused", 20)
    assert outcome.message == "Part 2 of 4 (page 2): The model refused: No."
    assert len(provider.requests) == 2


async def test_a_part_is_left_out_where_the_column_says_so_and_that_is_told(
    scripted: LlmKind, provider: ScriptedProvider
) -> None:
    refusal = Script(completion(None, refusal="No."))
    provider.script = [*answers("one"), refusal, *answers("three", "four", "2026-03-01")]
    outcome = await scripted.compute(call(column(failed="leave_out"), TEXT))
    assert isinstance(outcome, Answer)
    assert outcome.details == {
        "chunks": {"count": 4, "failed": [{"part": 2, "class": "refused", "message": "The model refused: No."}]}
    }
    assert "Part 2 of 4 (page 2): it could not be read.\n\nPart 3" in asked(provider)[-1]


async def test_no_part_at_all_is_no_answer(scripted: LlmKind, provider: ScriptedProvider) -> None:
    provider.script = [Script(completion(None, refusal="No."))]
    outcome = await scripted.compute(call(column(failed="leave_out"), TEXT))
    assert isinstance(outcome, Failure)
    assert outcome.error_class == "refused"
    assert outcome.message.startswith("None of its 4 parts could be read")
    assert len(provider.requests) == 4


async def test_a_part_that_fails_in_passing_is_asked_for_again(
    scripted: LlmKind, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llm_chunks, "_PAUSE_SECONDS", 0.01)
    provider.script = [*answers("one"), Script({}, status=500), *answers("two", "three", "four", "2026-03-01")]
    outcome = await scripted.compute(call(column(), TEXT))
    assert isinstance(outcome, Answer)
    assert len(provider.requests) == 6


@pytest.mark.parametrize(("status", "error_class"), [(429, "rate_limited"), (401, "auth")])
async def test_what_is_no_parts_fault_leaves_none_out_and_what_was_paid_is_kept(
    scripted: LlmKind, provider: ScriptedProvider, status: int, error_class: str
) -> None:
    provider.script = [*answers("one", "two"), Script({}, status=status)]
    asking = call(column(failed="leave_out"), TEXT)
    outcome = await scripted.compute(asking)
    assert isinstance(outcome, Failure)
    assert (outcome.error_class, outcome.tokens_in) == (error_class, 20)
    provider.requests.clear()
    provider.script = answers("three", "four", "2026-03-01")
    outcome = await scripted.compute(asking)
    assert isinstance(outcome, Answer)
    assert (len(provider.requests), outcome.tokens_in) == (3, 30)
    assert ":\none\n\nPart 2" in asked(provider)[-1]
    # once it has an answer nothing is kept: asked by force, each part is asked for again
    provider.requests.clear()
    provider.script = answers("one", "two", "three", "four", "2026-03-01")
    await scripted.compute(asking)
    assert len(provider.requests) == 5


async def test_quotes_of_the_last_answer_stand_in_the_text_itself(
    scripted: LlmKind, provider: ScriptedProvider
) -> None:
    def said(value: Json, *quotes: str, not_found: str | None = None) -> Script:
        evidence = [{"column": "a", "quote": quote} for quote in quotes]
        return Script(
            completion(
                json.dumps({"evidence": evidence, "value": value if not_found is None else {"not_found": not_found}})
            )
        )

    asking = replace(column(), settings={**column().settings, "evidence": "required"})
    script = [
        said(None, not_found="No date."),
        said("It begins.", "Page 2 sentence 3 is here."),
        *[said(None, not_found="-")] * 2,
    ]
    provider.script = [*script, said("2026-03-01", "Page 2 sentence 3 is here.", "It begins.")]
    outcome = await scripted.compute(call(asking, TEXT))
    assert isinstance(outcome, Answer)
    assert outcome.details is not None
    # the words of a note are no quote, though they stood in what was read last
    start = TEXT.index("Page 2 sentence 3 is here.")
    evidence = {"column": "a", "quote": "Page 2 sentence 3 is here.", "start": start, "end": start + 26, "page": 2}
    assert outcome.details["evidence"] == [evidence]
    assert "Part 1 of 4 (page 1):\nNothing: No date." in asked(provider)[-1]
    assert "It begins.\nQuote: Page 2 sentence 3 is here." in asked(provider)[-1]
    provider.script = [*script, said("2026-03-01", "It begins.")]
    outcome = await scripted.compute(call(asking, TEXT))
    assert isinstance(outcome, Failure)
    assert outcome.error_class == "unsupported"


@pytest.mark.parametrize("column_type", [DATE, ColumnType("text"), ColumnType("integer")], ids=lambda one: one.name)
async def test_the_offline_model_quotes_the_text_and_not_what_was_made_of_it(
    monkeypatch: pytest.MonkeyPatch, column_type: ColumnType
) -> None:
    """Else whoever tries chunks with evidence on it sees nothing but `unsupported`."""
    text = TEXT.replace("is here", "is here on 2027-04-30")
    asking = replace(column(column_type), settings={**column().settings, "evidence": "required"})
    with offline_model(monkeypatch) as model:
        kind = LlmKind()
        outcome = await kind.compute(call(asking, text))
        await kind.close()
    assert isinstance(outcome, Answer), outcome
    assert model.stats.billed.total() >= 4
    assert outcome.details is not None
    assert outcome.details["evidence"]
    if column_type == DATE:
        assert outcome.value == "2027-04-30"
        (evidence,) = outcome.details["evidence"]
        assert (evidence["page"], evidence["quote"]) == (1, "Page 1 sentence 0 is here on 2027-04-30.")


async def test_a_call_that_takes_too_long_says_how_far_it_came(
    scripted: LlmKind, provider: ScriptedProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llm_chunks, "_PAUSE_SECONDS", 60)
    provider.script = [*answers("one", "two"), Script({}, status=500)]
    outcome = await scripted.compute(replace(call(column(), TEXT), deadline=4))
    assert isinstance(outcome, Failure)
    assert outcome.error_class == "transient"
    assert "2 of 4 parts were answered" in outcome.message


SPEC = """
namespace: demo
name: documents
columns:
  - {name: text, type: text}
  - name: ends
    type: date
    kind: llm
    llm:
      model: m
      prompt: "When? {{text}}"
"""


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("map: 'x {{text}}'", "chunks: map without chunks"),
        ("chunks: {size: 8000}", "chunks: chunks need map and reduce"),
        ("chunks: {size: 8000}\nmap: 'x {{text}}'", "chunks: chunks need reduce"),
        ("chunks: {size: 8000}\nmap: x\nreduce: 'y {{text}}'", "map refers to one column"),
        ("chunks: {size: 8000}\nmap: 'x {{text}}'\nreduce: y", "reduce does not refer to {{text}}"),
        ("chunks: {size: 8000, overlap: 5000}\nmap: 'x {{text}}'\nreduce: 'y {{text}}'", "more than half of the size"),
        ("chunks: {sise: 8000}\nmap: 'x {{text}}'\nreduce: 'y {{text}}'", "sise"),
        ("chunks: {size: 8000}\nmap: 'x {{txt}}'\nreduce: 'y {{txt}}'", "txt"),
    ],
)
def test_chunks_that_do_not_go_together_are_refused(more: str, problem: str) -> None:
    with pytest.raises(SpecError, match=re.escape(problem)):
        compile_text(SPEC + "".join(f"      {line}\n" for line in more.splitlines()))


async def test_a_spec_with_chunks_makes_calls_in_parts(scripted: LlmKind, provider: ScriptedProvider) -> None:
    more = "chunks: {size: 400}\nmap: 'x {{text}}'\nreduce: 'y {{text}}'"
    spec = compile_text(SPEC + "".join(f"      {line}\n" for line in more.splitlines()))
    (bound,) = (one for one in spec.bind({"text": 7, "ends": 8}) if one.kind == "llm")
    provider.script = answers("a", "b", "c", "d", "2026-03-01")
    asking = Call(bound, {7: TEXT}, {7: "text"}, "demo/documents", 1, ("key",), 10)
    outcome: Any = await scripted.compute(asking)
    assert outcome.value == "2026-03-01"
