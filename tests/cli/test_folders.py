"""`autofill load` of a folder."""

from __future__ import annotations

import json
from pathlib import Path

from cell_engine.cli import one_row
from cell_engine.specs.compile import compile_text
from cell_engine.specs.version import Version
from cell_engine.store.reading import ShownCell, ShownInput
from tests.cli.conftest import Run

SPEC = """\
namespace: test
name: papers
files: {pattern: "**/*.txt", columns: {file: path, sha256: digest}}
columns:
  - {name: file, type: file}
  - {name: sha256, type: text}
  - {name: words, type: integer, kind: function, deps: [file], function: {name: "tests.files.functions:length"}}
"""


def test_a_folder_is_told_of_file_by_file_and_the_same_again_changes_nothing(
    run: Run, tmp_path: Path, settled_files: None
) -> None:
    (tmp_path / "papers.yaml").write_text(SPEC)
    assert run("apply", str(tmp_path / "papers.yaml")).exit_code == 0
    folder = tmp_path / "files" / "test" / "papers"
    (folder / "more").mkdir(parents=True)
    for name, text in (("a.txt", "one"), ("more/b.txt", "one"), ("c.txt", "two")):
        (folder / name).write_text(text)
    (folder / "link.txt").symlink_to("/etc/hostname")
    planned = run("load", "test/papers", str(folder), "--dry-run")
    assert "would be: 3 new" in planned.output
    loaded = run("load", "test/papers", str(folder))
    assert loaded.exit_code == 5
    assert "test/papers: " in loaded.output
    assert ": 3 new, 0 as they were" in loaded.output
    assert "the same content: a.txt = more/b.txt" in loaded.output
    assert "link.txt: it is a symbolic link, which is not followed\n1 file was not read" in loaded.output
    (folder / "link.txt").unlink()
    (folder / "c.txt").write_text("three")
    again = run("load", "test/papers", str(folder), "--json")
    assert again.exit_code == 0
    told = json.loads(again.stdout)
    assert (told["inserted"], told["updated"], told["unchanged"], told["woken"]) == (0, 1, 2, 0)
    assert told["same"] == [["a.txt", "more/b.txt"]]
    elsewhere = run("load", "test/papers", str(tmp_path))
    assert elsewhere.exit_code == 2
    assert "it does not lie in" in elsewhere.output
    assert run("load", "test/papers", str(folder), "--sync").exit_code == 2


def test_a_waiting_cell_says_which_file_it_waits_for() -> None:
    text = "{name: text, type: text, kind: extract, deps: [file]}"
    shout = '{name: shout, type: text, kind: function, deps: [text], function: {name: "m:f"}}'
    spec = compile_text(SPEC.replace("  - {name: words", f"  - {text}\n  - {shout}\n  - {{name: words"))
    version = Version(1, 1, spec.bind({one.key: number for number, one in enumerate(spec.columns, 1)}))
    waiting = [ShownCell(7, column, None, "waiting", None, None, None, False, None) for column in (3, 4)]
    cells = {1: ShownInput(7, 1, "2024/acme.pdf", False), 3: waiting[0], 4: waiting[1]}
    told = list(one_row.lines(version, [version.by_id[column] for column in (1, 3, 4)], cells))
    assert told == ["file   2024/acme.pdf", "text   [waiting: for 2024/acme.pdf]", "shout  [waiting: for text]"]
