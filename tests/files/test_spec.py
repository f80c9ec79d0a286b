"""What a collection's YAML says of files, and which folders it may say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cell_engine.errors import BadValueError, SpecError
from cell_engine.files.roots import place
from cell_engine.settings import Settings, get_settings
from cell_engine.specs.compile import CompiledSpec, compile_text
from cell_engine.specs.compiled import SpecColumn, SpecDependency
from cell_engine.specs.files import WAIT_SECONDS, FileSource

HEAD = """
namespace: demo
name: contracts
"""
COLUMNS = """
columns:
  - {name: file, type: file}
  - {name: sha256, type: text}
  - {name: bytes, type: integer}
  - {name: title, type: text}
  - {name: words, type: text, kind: function, deps: [file], function: {name: "m:f"}}
  - {name: short, type: text, kind: function, deps: [words, title], function: {name: "m:f"}}
"""
FILES = 'files: {root: contracts, pattern: "**/*.pdf", columns: {file: path, sha256: digest, bytes: size}}\n'


def compiled(files: str = FILES, columns: str = COLUMNS) -> CompiledSpec:
    return compile_text(HEAD + files + columns)


def column(spec: CompiledSpec, name: str) -> SpecColumn:
    return next(one for one in spec.columns if one.name == name)


def test_inputs_take_what_is_declared_and_readers_know_the_root() -> None:
    spec = compiled()
    assert column(spec, "file").files == FileSource("contracts", "**/*.pdf", "path")
    assert column(spec, "sha256").files == FileSource("contracts", None, "digest")
    assert column(spec, "bytes").files == FileSource("contracts", None, "size")
    assert column(spec, "title").files is None
    assert column(spec, "words").files == FileSource("contracts", wait=WAIT_SECONDS)
    assert column(spec, "short").files is None


def test_what_reads_the_file_follows_its_digest_without_being_given_it() -> None:
    words = column(compiled(), "words")
    assert words.deps == (SpecDependency("file", False), SpecDependency("sha256", optional=True, silent=True))
    asked = COLUMNS.replace("deps: [file]", "deps: [file, sha256]")
    assert column(compiled(columns=asked), "words").deps == (
        SpecDependency("file", False),
        SpecDependency("sha256", False),
    )


def test_another_root_is_another_definition_and_another_patience_is_not() -> None:
    words = column(compiled(), "words")
    other = FILES.replace("root: contracts", "root: treaties")
    assert column(compiled(other), "words").hash != words.hash
    patient = compiled(columns=COLUMNS.replace("deps: [file]", "deps: [file], wait: 2d"))
    assert column(patient, "words").hash == words.hash
    assert column(patient, "words").files == FileSource("contracts", wait=2 * 86_400)
    assert patient.hash != compiled().hash


def test_a_short_form_and_none() -> None:
    assert column(compiled("files: a/b/\n"), "words").files == FileSource("a/b", wait=WAIT_SECONDS)
    assert column(compiled(""), "words").files == FileSource("demo/contracts", wait=WAIT_SECONDS)
    assert column(compiled("files: s3://bucket/a/\n"), "words").files == FileSource("s3://bucket/a", wait=WAIT_SECONDS)
    # without columns, and so without a digest that a load fills, there is none to follow
    assert column(compiled(""), "words").deps == (SpecDependency("file", False),)


@pytest.mark.parametrize(
    ("files", "columns", "line", "message"),
    [
        ("files: ../other\n", COLUMNS, 4, "leads elsewhere"),
        ("files: s3://bucket/../other\n", COLUMNS, 4, "leads elsewhere"),
        ("files: /data/../etc\n", COLUMNS, 4, "leads elsewhere"),
        (FILES.replace("**/*.pdf", "../*.pdf"), COLUMNS, 4, "no pattern of paths"),
        (FILES.replace("bytes: size", "byte: size"), COLUMNS, 4, "no column 'byte'"),
        (FILES.replace("bytes: size", "words: size"), COLUMNS, 4, "is computed"),
        (
            FILES.replace("bytes: size", "title: size"),
            COLUMNS,
            4,
            "of type integer, and 'title' is text",
        ),
        (FILES.replace("bytes: size", "bytes: weight"), COLUMNS, 4, "expected 'path'"),
        (FILES.replace("bytes: size", "title: digest"), COLUMNS, 4, "two columns take the digest"),
        ("files: {columns: {file: path}}\n", COLUMNS, 4, "the digest, by which a file that has changed is known"),
        ("files: {roots: a}\n", COLUMNS, 4, "unknown key 'files.roots'; did you mean 'root'"),
        ("files: a\n", COLUMNS.replace("type: file", "type: text"), 4, "no column of type file"),
        ("", COLUMNS.replace("deps: [words, title]", "deps: [words, title], wait: 1h"), 11, "no column of type file"),
        ("", COLUMNS.replace("deps: [file]", "deps: [file], wait: 1y"), 10, "no length of time"),
    ],
)
def test_mistakes_are_named_with_their_line(files: str, columns: str, line: int, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        compiled(files, columns)
    (problem,) = caught.value.problems
    assert problem.line == line
    assert re.search(message, problem.message), problem


def test_only_what_the_operator_allows_is_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a" / "contracts").mkdir(parents=True)
    (tmp_path / "a" / "contracts" / "x.pdf").write_bytes(b"x")
    monkeypatch.setenv("AUTOFILL_FILES", f"{tmp_path / 'a'}, {tmp_path / 'b'},memory://bucket/")
    settings = get_settings()
    assert settings.file_roots == (str(tmp_path / "a"), str(tmp_path / "b"), "memory://bucket")
    assert list(place("contracts", settings).walk()) == ["x.pdf"]
    assert list(place(str(tmp_path / "a" / "contracts"), settings).walk()) == ["x.pdf"]
    assert place(str(tmp_path / "b"), settings).root == str(tmp_path / "b")
    assert place("memory://bucket/x", settings).below == "x"
    for root in (str(tmp_path), str(tmp_path / "ab"), "/etc", "memory://bucket2/x", "s3://bucket/x"):
        with pytest.raises(BadValueError, match="AUTOFILL_FILES allows"):
            place(root, settings)


def test_without_a_setting_files_lie_in_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOFILL_HOME", str(tmp_path))
    assert Settings().file_roots == (str(tmp_path / "files"),)
    for unfit in ("relative/folder", "/data/../etc"):
        monkeypatch.setenv("AUTOFILL_FILES", unfit)
        with pytest.raises(BadValueError, match=r"AUTOFILL_FILES: .*absolute folders"):
            get_settings()
