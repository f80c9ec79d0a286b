"""What a look into the inbox takes for complete, and what it remembers."""

import os
from pathlib import Path

import pytest

from autofill_defs import inbox
from autofill_defs.inbox import Marks, Memory, look_into
from cell_engine.errors import AutofillError


def write(folder: Path, name: str, text: str = "a\n1\n", changed: int = 1_000) -> Path:
    path = folder / name
    path.write_text(text)
    os.utime(path, ns=(changed, changed))
    return path


def settled(memory: Memory, folder: Path) -> list[inbox.Found]:
    return memory.inbox.look(look_into(folder).files)


def look(memory: Memory, folder: Path) -> list[str]:
    return [file.name for file in settled(memory, folder)]


def test_a_file_is_loaded_once_two_looks_find_it_the_same(tmp_path: Path) -> None:
    memory = Memory()
    write(tmp_path, "f.csv")
    assert look(memory, tmp_path) == []
    memory = Memory.parse(memory.dump())
    assert look(memory, tmp_path) == ["f.csv"]


@pytest.mark.parametrize(("text", "changed"), [("a\n1\n2\n", 1_000), ("a\n1\n", 2_000)])
def test_a_file_that_still_changes_is_waited_for(tmp_path: Path, text: str, changed: int) -> None:
    memory = Memory()
    write(tmp_path, "f.csv")
    look(memory, tmp_path)
    write(tmp_path, "f.csv", text, changed)
    assert look(memory, tmp_path) == []
    assert look(memory, tmp_path) == ["f.csv"]


def test_what_is_settled_and_not_taken_stays_settled(tmp_path: Path) -> None:
    memory = Memory()
    write(tmp_path, "f.csv")
    look(memory, tmp_path)
    assert look(memory, tmp_path) == ["f.csv"]
    assert look(memory, tmp_path) == ["f.csv"]


def test_a_loaded_file_is_remembered_until_it_changes_or_goes(tmp_path: Path) -> None:
    memory = Memory()
    path = write(tmp_path, "f.csv")
    look(memory, tmp_path)
    memory.inbox.load(settled(memory, tmp_path)[0])
    memory = Memory.parse(memory.dump())
    assert look(memory, tmp_path) == look(memory, tmp_path) == []
    assert memory.inbox.seen == set()
    write(tmp_path, "f.csv", "a\n2\n", 3_000)
    look(memory, tmp_path)
    assert look(memory, tmp_path) == ["f.csv"]
    path.unlink()
    look(memory, tmp_path)
    assert memory == Memory()


def test_a_refused_file_is_not_tried_again_until_it_changes_or_the_definition_does(tmp_path: Path) -> None:
    memory = Memory()
    write(tmp_path, "f.csv")
    look(memory, tmp_path)
    memory.inbox.refuse(settled(memory, tmp_path)[0], "no\x00 good \ud800" + "x" * 1000)
    memory = Memory.parse(memory.dump())
    assert look(memory, tmp_path) == look(memory, tmp_path) == []
    reason = memory.inbox.reasons["f.csv"]
    assert reason.startswith("no good x")
    assert len(reason) == 300
    memory.reconsider()
    assert look(memory, tmp_path) == ["f.csv"]
    memory.inbox.refuse(settled(memory, tmp_path)[0], "no")
    write(tmp_path, "f.csv", changed=5_000)
    assert look(memory, tmp_path) == []
    assert look(memory, tmp_path) == ["f.csv"]
    assert memory.inbox == Marks(seen=memory.inbox.seen)


def test_files_come_in_the_order_they_changed(tmp_path: Path) -> None:
    for name, changed in (("c.csv", 3_000), ("b.csv", 1_000), ("a.csv", 1_000)):
        write(tmp_path, name, changed=changed)
    assert [file.name for file in look_into(tmp_path).files] == ["a.csv", "b.csv", "c.csv"]


def test_unfinished_hidden_and_linked_files_are_none_nor_are_folders_in_folders(tmp_path: Path) -> None:
    outside = write(tmp_path, "outside.csv")
    inbox = tmp_path / "inbox"
    (inbox / "folder" / "deeper").mkdir(parents=True)
    (inbox / ".hidden").mkdir()
    (inbox / "folder.tmp").mkdir()
    write(inbox / "folder" / "deeper", "nested.csv")
    for below in ("folder", ".hidden", "folder.tmp"):
        write(inbox / below, "nested.csv")
    for name in (".hidden.csv", "~lock.csv", "_skip.csv", "f.csv.tmp", "f.parquet.PART", "f.crdownload"):
        write(inbox, name)
        write(inbox / "folder", name)
    (inbox / "link.csv").symlink_to(outside)
    (inbox / "gone.csv").symlink_to(tmp_path / "nowhere")
    (inbox / "linked").symlink_to(tmp_path)
    os.mkfifo(inbox / "pipe.csv")
    found = look_into(inbox)
    assert [file.name for file in found.files] == ["folder/nested.csv"]
    assert found.too_deep == ["folder/deeper"]


def test_files_of_one_name_in_two_folders_are_two(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder, "f.csv")
    memory = Memory()
    look(memory, tmp_path)
    assert look(memory, tmp_path) == ["one/f.csv", "two/f.csv"]


def test_an_inbox_of_too_many_files_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "MOST_FILES", 2)
    for name in "abc":
        write(tmp_path, name)
    with pytest.raises(AutofillError, match="holds 3 files, more than 2"):
        look_into(tmp_path)


def test_odd_names_survive_the_cursor(tmp_path: Path) -> None:
    names = ["ünïcode 文件.csv", 'quo"te\n.csv', os.fsdecode(b"latin-\xe9.csv")]
    for name in names:
        write(tmp_path, name)
    memory = Memory()
    look(memory, tmp_path)
    memory = Memory.parse(memory.dump())
    found = settled(memory, tmp_path)
    assert sorted(file.name for file in found) == sorted(names)
    for file in found:
        memory.inbox.load(file)
    assert look(Memory.parse(memory.dump()), tmp_path) == []


@pytest.mark.parametrize("cursor", [None, "", "17", "null", "[]", "{}", '{"spec": 1}', '{"loaded": "?"}', "not json"])
def test_an_unreadable_cursor_is_an_empty_one(cursor: str | None) -> None:
    assert Memory.parse(cursor) == Memory()


def test_thousands_of_loaded_files_fit_into_a_cursor(tmp_path: Path) -> None:
    memory = Memory()
    for number in range(5_000):
        write(tmp_path, f"a-rather-long-name-as-exports-have-{number:06}.csv", "a\n")
    look(memory, tmp_path)
    for file in settled(memory, tmp_path):
        memory.inbox.load(file)
    assert len(memory.inbox.loaded) == 5_000
    assert len(memory.dump()) < 60_000


def test_thousands_of_new_and_of_bad_files_fit_into_a_cursor(tmp_path: Path) -> None:
    memory = Memory()
    for number in range(2_000):
        write(tmp_path, f"a-rather-long-name-as-exports-have-{number:06}.csv", "a\n")
    look(memory, tmp_path)
    assert len(memory.dump()) < 25_000
    for file in settled(memory, tmp_path):
        memory.inbox.refuse(file, "no good " * 40)
    assert len(memory.dump()) < 45_000
    memory = Memory.parse(memory.dump())
    assert look(memory, tmp_path) == []
    assert (len(memory.inbox.refused), len(memory.inbox.reasons)) == (2_000, 50)
