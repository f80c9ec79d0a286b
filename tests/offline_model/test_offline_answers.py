"""What the offline model answers: deterministic, fitting the schema, sensible on the demo's columns, cheap."""

from __future__ import annotations

import json
import random
import time
from importlib.metadata import distributions
from typing import Any

import pytest

from cell_engine.offline_model.answers import BadRequestError, complete

LICENCES = ["permissive", "weak copyleft", "copyleft", "proprietary", "unknown"]
AUDIENCES = ["developers", "data scientists", "data engineers", "operators", "web developers", "testers", "other"]

README = """\
[![Build](https://ci.example/badge.svg)](https://ci.example) |docs|

<p align="center"><img src="logo.png"></p>

Pretty
======

.. image:: https://example.org/x.png
   :alt: picture

```python
import pretty
```

**Pretty** prints [tables](https://example.org/tables) in the terminal. It needs no configuration at all, ever.

Installation
------------
Run pip.
"""


def _request(text: str, schema: dict[str, Any], **more: Any) -> dict[str, Any]:
    wrapped = {"type": "object", "properties": {"value": schema}, "required": ["value"], "additionalProperties": False}
    return {
        "model": "any",
        "messages": [{"role": "user", "content": text}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "cell", "strict": True, "schema": wrapped}},
        **more,
    }


def _ask(instruction: str, data: str, schema: dict[str, Any]) -> Any:
    content = complete(_request(f'{instruction}\n<column name="text">{data}</column>', schema)).content
    answer = json.loads(content)
    assert answer.keys() == {"value"}
    return answer["value"]


def _choose(choices: list[str], data: str) -> Any:
    return _ask("Which one?", data, {"type": "string", "enum": choices})


def test_a_summary_is_prose_without_markup_or_instructions() -> None:
    summary = _ask("Summarise the package.", README, {"type": "string"})
    assert summary == "Pretty prints tables in the terminal. It needs no configuration at all, ever."


@pytest.mark.parametrize("data", ["", "   \n\n ", "![x](y)"])
def test_a_text_that_says_nothing_still_gets_an_answer(data: str) -> None:
    assert _ask("Summarise.", data, {"type": "string"})
    assert _choose(AUDIENCES, data) == "other"
    assert _choose(LICENCES, data) == "unknown"


@pytest.mark.parametrize(
    ("licence", "family"),
    [
        ("MIT", "permissive"),
        ("Apache-2.0 OR BSD-3-Clause", "permissive"),
        ("License :: OSI Approved :: Python Software Foundation License", "permissive"),
        ("Copyright (c) 2020 X. All rights reserved. Redistribution and use in source and binary forms", "permissive"),
        ("LGPL-3.0-only", "weak copyleft"),
        ("GNU Library or Lesser General Public License (LGPL)", "weak copyleft"),
        ("MPL-2.0 AND MIT", "weak copyleft"),
        ("GPL-2.0-or-later", "copyleft"),
        ("GNU AFFERO GENERAL PUBLIC LICENSE Version 3", "copyleft"),
        ("Other/Proprietary License", "proprietary"),
        ("Copyright 2020 ACME. All rights reserved.", "proprietary"),
        ("see LICENSE", "unknown"),
    ],
)
def test_licence_families(licence: str, family: str) -> None:
    assert _choose(LICENCES, licence) == family


def test_licence_families_in_other_spellings() -> None:
    assert _choose(["Permissive", "Weak-Copyleft", "Strong-Copyleft", "Other"], "GPLv3") == "Strong-Copyleft"
    assert _choose(["permissive", "copyleft", "public_domain"], "The Unlicense") == "public_domain"
    assert _choose(["permissive", "copyleft"], "LGPL") == "copyleft"


@pytest.mark.parametrize(
    ("summary", "audience"),
    [
        ("A blazingly fast dataframe query engine for analytics.", "data scientists"),
        ("An orchestration platform for data pipelines, assets and backfills.", "data engineers"),
        ("Library for process and system monitoring: CPU, memory, disks, network.", "operators"),
        ("An ASGI web server with websocket support.", "web developers"),
        ("The property-based testing library; finds failing tests.", "testers"),
        ("A library of Python decorators and type annotations.", "developers"),
        ("Lorem ipsum dolor sit amet.", "other"),
    ],
)
def test_audiences(summary: str, audience: str) -> None:
    assert _choose(AUDIENCES, summary) == audience


def test_choices_that_no_word_list_knows_are_found_by_their_own_words() -> None:
    assert _choose(["complaint", "praise", "question"], "I have a question about questions.") == "question"


def test_every_type_of_schema_gets_a_value_that_fits() -> None:
    data = "Released 2024-02-30 and 2024-03-01, see https://example.org/x. It has 3.5 stars and 42 friends."
    assert _ask("Count", data, {"type": "integer"}) == 42
    assert _ask("Count", data, {"type": "number"}) == 3.5
    assert _ask("Count", data, {"type": "integer", "maximum": 5}) == 5
    assert _ask("When", data, {"type": "string", "format": "date"}) == "2024-03-01"
    assert _ask("When", data, {"type": "string", "format": "date-time"}) == "2024-03-01T00:00:00+00:00"
    assert _ask("Where", data, {"type": "string", "description": "A URL."}) == "https://example.org/x"
    assert json.loads(_ask("What", data, {"type": "string", "description": "JSON text"}))
    assert _ask("Tags", data, {"type": "array", "items": {"type": "string"}}) == ["released", "star", "friend"]
    assert _ask("Tags", data, {"type": "array", "items": {"type": "integer"}}) == [42]
    audiences = {"type": "array", "items": {"type": "string", "enum": AUDIENCES}}
    assert _ask("Who", "test a web server", audiences) == ["operators", "web developers", "testers"]
    assert _ask("Is it released?", data, {"type": "boolean"}) is True
    assert _ask("Does it mention penguins?", data, {"type": "boolean"}) is False
    assert _ask("Count", data, {"type": ["null", "integer"]}) == 42
    assert _ask("Count", data, {"anyOf": [{"type": "null"}, {"type": "integer"}]}) == 42
    nested = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": False}
    assert _ask("What", data, nested) == {"a": 1}


def test_the_same_request_gets_the_same_answer() -> None:
    request = _request(README, {"type": "string"})
    assert complete(request) == complete(json.loads(json.dumps(request)))


def test_a_correction_is_answered_from_the_first_question() -> None:
    request = _request('Summarise.\n<column name="text">It is a thing that works.</column>', {"type": "string"})
    first = complete(request).content
    request["messages"] += [{"role": "assistant", "content": first}, {"role": "user", "content": "That does not fit."}]
    assert complete(request).content == first


def test_without_fences_the_data_follows_the_instruction() -> None:
    for separator in ("\n\n", "\n", ": "):
        answer = complete(_request(f"Summarise this{separator}It is a thing that works.", {"type": "string"})).content
        assert json.loads(answer) == {"value": "It is a thing that works."}


def test_plain_text_and_json_object_answers() -> None:
    request: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "It is a thing that works."}]}
    assert complete(request).content == "It is a thing that works."
    request["response_format"] = {"type": "json_object"}
    assert json.loads(complete(request).content) == {"answer": "It is a thing that works."}


def test_a_token_limit_cuts_the_answer_and_says_so() -> None:
    cut = complete(_request(README, {"type": "string"}, max_completion_tokens=3))
    assert cut.finish_reason == "length"
    assert len(cut.content) == 12


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"model": ""}, "model"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0]"),
        ({"stream": True}, "stream"),
        ({"n": 2}, "n"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
    ],
)
def test_a_request_that_breaks_the_protocol_is_refused(change: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError) as refused:
        complete(_request("x", {"type": "string"}) | change)
    assert refused.value.param == param


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": [], "additionalProperties": False},
    ],
)
def test_strict_schemas_are_held_to_strict_rules(schema: dict[str, Any]) -> None:
    request = _request("x", {})
    request["response_format"]["json_schema"]["schema"] = schema
    with pytest.raises(BadRequestError, match="Invalid schema"):
        complete(request)


def test_real_readmes_are_answered_within_20_ms() -> None:
    slowest = 0.0
    for distribution in distributions():
        readme = str(distribution.metadata.json.get("description", ""))
        for _ in range(2):  # the machine may be busy: the better of two
            started = time.process_time()
            assert _ask("Summarise.", readme, {"type": "string"})
            spent = time.process_time() - started
        slowest = max(slowest, spent)
    assert slowest < 0.02


@pytest.mark.parametrize(
    "piece", ["[", "![", "<a", "<!--", "`", "```\n", "<h1>", "|", "* ", "](", "a\n===\n", "-1.", "\n "]
)
def test_no_text_makes_the_extraction_slow(piece: str) -> None:
    text = piece * (141_000 // len(piece))
    started = time.process_time()
    _ask("Summarise.", text, {"type": "string"})
    _choose(AUDIENCES, text)
    _choose(LICENCES, text)
    assert time.process_time() - started < 0.15


def test_random_text_never_breaks_an_answer() -> None:
    draw = random.Random(1)
    for _ in range(300):
        text = "".join(draw.choices("aB1 .\n\t*_`[]()<>|#=-!:é😀\u0000/", k=draw.randrange(400)))
        assert isinstance(_ask("Summarise.", text, {"type": "string"}), str)
        assert _choose(AUDIENCES, text) in AUDIENCES


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("in at most 4 words", "The crane at the …"),
        ("in at most 20 words", "The crane at the north quay, which is old, lifts forty tons again."),
    ],
)
def test_who_asks_for_a_few_words_gets_a_line(asked: str, answered: str) -> None:
    cell = '<column name="a">The crane at the north quay, which is old, lifts forty tons again.</column>'
    text = {"type": "object", "properties": {"value": {"type": "string"}}}
    request = {
        "model": "any",
        "messages": [{"role": "user", "content": f"Write the subject, {asked}: {cell}"}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "cell", "schema": text}},
    }
    assert json.loads(complete(request).content) == {"value": answered}
