"""What a place gives, and what it does not: nothing outside it, nothing half written, nothing beyond a limit."""

from __future__ import annotations

import hashlib
import os
import threading
import time
import unicodedata
from pathlib import Path

import pytest

from cell_engine.errors import BadValueError
from cell_engine.files import FileError, Growing, Missing, Outside, Place, TooLarge, local

SECRET = b"not for you"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "2024").mkdir(parents=True)
    (root / "2024" / "acme.pdf").write_bytes(b"hello")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.pdf").write_bytes(SECRET)
    return root


def test_a_file_comes_with_what_is_known_of_it(root: Path, settled_files: None) -> None:
    os.utime(root / "2024" / "acme.pdf", (1_700_000_000, 1_700_000_000))
    found = Place(root).read("2024/acme.pdf", 5)
    assert (found.path, found.name, found.size, found.data) == ("2024/acme.pdf", "acme.pdf", 5, b"hello")
    assert found.digest == hashlib.sha256(b"hello").hexdigest()
    assert found.modified.isoformat() == "2023-11-14T22:13:20+00:00"
    assert Place(root).facts("2024/acme.pdf").digest == found.digest


@pytest.mark.parametrize(
    "path",
    ["../outside/secret.pdf", "2024/../../outside/secret.pdf", "/etc/passwd", "..\\outside\\secret.pdf", "a\0b", "",
     "./2024/acme.pdf", "2024//acme.pdf", "2024/acme.pdf/", "file:///etc/passwd", "\udcff.pdf", "a\nb"],
)  # fmt: skip
def test_no_path_leads_out(root: Path, settled_files: None, path: str) -> None:
    with pytest.raises(Outside):
        Place(root).read(path, 100)


def test_an_absolute_path_to_a_file_inside_is_refused_too(root: Path, settled_files: None) -> None:
    with pytest.raises(Outside, match="absolute"):
        Place(root).read(str(root / "2024" / "acme.pdf"), 100)


def test_no_link_leads_out_neither_of_a_file_nor_of_a_folder(root: Path, settled_files: None) -> None:
    (root / "link.pdf").symlink_to(root.parent / "outside" / "secret.pdf")
    (root / "folder").symlink_to(root.parent / "outside")
    place = Place(root)
    for path in ("link.pdf", "folder/secret.pdf"):
        with pytest.raises(Outside, match="symbolic link"):
            place.read(path, 100)
    assert [str(found) for found in place.walk()] == [
        "folder: it is a symbolic link, which is not followed",
        "link.pdf: it is a symbolic link, which is not followed",
        "2024/acme.pdf",
    ]
    with pytest.raises(Outside, match="symbolic link"):
        Place(root, "folder").read("secret.pdf", 100)
    # one that the pattern does not mean is none of those that could not be read
    assert [str(found) for found in place.walk("**/*.pdf")] == [
        "link.pdf: it is a symbolic link, which is not followed",
        "2024/acme.pdf",
    ]
    assert list(place.walk("2024/*")) == ["2024/acme.pdf"]


@pytest.mark.parametrize("swapped", ["file", "folder"])
def test_a_link_swapped_in_between_the_look_and_the_open_is_not_followed(
    root: Path, settled_files: None, monkeypatch: pytest.MonkeyPatch, swapped: str
) -> None:
    """The look at a file's kind is where a check would stand; what is opened after it must not be another file."""
    real = os.stat
    (root.parent / "outside" / "acme.pdf").write_bytes(SECRET)

    def look(path: str, **how: object) -> os.stat_result:
        found = real(path, **how)  # type: ignore[arg-type]
        if path == "acme.pdf" and not (root / "moved").exists():
            if swapped == "file":
                (root / "2024" / "acme.pdf").rename(root / "moved")
                (root / "2024" / "acme.pdf").symlink_to(root.parent / "outside" / "secret.pdf")
            else:
                (root / "2024").rename(root / "moved")
                (root / "2024").symlink_to(root.parent / "outside")
        return found

    monkeypatch.setattr("cell_engine.files.local.os.stat", look)
    if swapped == "file":
        with pytest.raises(Outside, match="symbolic link"):
            Place(root).read("2024/acme.pdf", 100)
    else:
        assert Place(root).read("2024/acme.pdf", 100).data == b"hello"
    assert (root / "moved").exists()


def test_a_folder_swapped_for_a_link_while_it_is_listed_is_not_entered(root: Path, settled_files: None) -> None:
    (root / "2023").mkdir()
    (root / "2023" / "old.pdf").write_bytes(b"x")
    found = Place(root).walk()
    assert next(found) == "2023/old.pdf"
    (root / "2024").rename(root / "moved")
    (root / "2024").symlink_to(root.parent / "outside")
    rest = list(found)
    assert [type(one) for one in rest] == [Outside]


def test_a_file_just_written_is_growing_and_later_is_not(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "new.pdf").write_bytes(b"half")
    os.utime(root / "new.pdf", (1_700_000_000, 1_700_000_000))  # what a copying tool says is not believed
    with pytest.raises(Growing) as caught:
        Place(root).read("new.pdf", 100)
    assert 0 < caught.value.retry_after <= local.SETTLED_SECONDS
    later = time.time() + local.SETTLED_SECONDS
    monkeypatch.setattr("cell_engine.files.local.time.time", lambda: later)
    assert Place(root).read("new.pdf", 100).data == b"half"


def test_a_file_written_to_while_it_is_read_is_growing(
    root: Path, settled_files: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = root / "2024" / "acme.pdf"
    real = local.LocalFile.read

    def read(self: local.LocalFile, most: int) -> bytes:
        chunk = real(self, most)
        if not chunk:
            with path.open("r+b") as file:  # of the same size
                file.write(b"HELLO")
            os.utime(path, (1_600_000_000, 1_600_000_000))
        return chunk

    monkeypatch.setattr(local.LocalFile, "read", read)
    with pytest.raises(Growing):
        Place(root).read("2024/acme.pdf", 100)


def test_a_limit_is_kept_also_by_a_file_that_grows(
    root: Path, settled_files: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TooLarge) as caught:
        Place(root).read("2024/acme.pdf", 4)
    assert (caught.value.size, caught.value.limit) == (5, 4)
    monkeypatch.setattr(local.LocalFile, "read", lambda self, most: b"x" * most)  # never ends
    with pytest.raises(Growing):
        Place(root).read("2024/acme.pdf", 100)


def test_what_is_no_regular_file_is_not_opened(root: Path, settled_files: None) -> None:
    os.mkfifo(root / "pipe")
    done = threading.Event()

    def read() -> None:
        with pytest.raises(FileError, match="no regular file"):
            Place(root).read("pipe", 100)
        done.set()

    threading.Thread(target=read, daemon=True).start()
    assert done.wait(5)
    with pytest.raises(FileError, match="folder"):
        Place(root).read("2024", 100)
    assert [str(one) for one in Place(root).walk()] == ["pipe: it is no regular file", "2024/acme.pdf"]


def test_what_is_not_there_is_missing(root: Path, settled_files: None) -> None:
    for path in ("2024/other.pdf", "2025/acme.pdf", "2024/acme.pdf/page"):
        with pytest.raises(Missing, match="no such file"):
            Place(root).read(path, 100)
    with pytest.raises(Missing, match="is not there"):
        Place(root.parent / "nowhere").read("acme.pdf", 100)
    assert [type(one) for one in Place(root.parent / "nowhere").walk()] == [Missing]


def test_a_name_is_one_however_its_accents_are_written(root: Path, settled_files: None) -> None:
    name = "caf\u00e9.pdf"
    (root / unicodedata.normalize("NFD", name)).write_bytes(b"x")
    assert [str(one) for one in Place(root).walk("*.pdf")] == [name]
    for form in (name, unicodedata.normalize("NFD", name)):
        assert Place(root).read(form, 100).path == name


def test_names_that_no_cell_could_hold_are_told_and_the_others_come(root: Path, settled_files: None) -> None:
    (root / "a\\b.pdf").write_bytes(b"x")
    (root / os.fsdecode(b"\xff.pdf")).write_bytes(b"x")
    found = list(Place(root).walk())
    assert [str(one) for one in found if isinstance(one, str)] == ["2024/acme.pdf"]
    assert [type(one) for one in found if not isinstance(one, str)] == [Outside, Outside]


def test_a_pattern_chooses_and_hidden_or_unfinished_files_are_passed_over(root: Path) -> None:
    for name in ("TOP.PDF", ".hidden.pdf", "~$open.docx", "x.pdf.part", "notes.txt", "2024/deep.txt"):
        (root / name).write_bytes(b"x")
    (root / ".git").mkdir()
    (root / ".git" / "x.pdf").write_bytes(b"x")
    place = Place(root)
    assert list(place.walk()) == ["TOP.PDF", "notes.txt", "2024/acme.pdf", "2024/deep.txt"]
    assert list(place.walk("**/*.pdf")) == ["TOP.PDF", "2024/acme.pdf"]
    assert list(place.walk("*.pdf")) == ["TOP.PDF"]
    assert list(place.walk("202[!3]/**")) == ["2024/acme.pdf", "2024/deep.txt"]
    assert list(place.walk("2024/*.pdf")) == ["2024/acme.pdf"]


def test_a_place_in_a_place_is_no_larger(root: Path, settled_files: None) -> None:
    assert Place(root.parent, "root/2024").read("acme.pdf", 100).data == b"hello"
    with pytest.raises(BadValueError, match="leads elsewhere"):
        Place(root, "../outside")
    with pytest.raises(Outside):
        Place(root, "2024").read("../../outside/secret.pdf", 100)
    with pytest.raises(BadValueError, match="absolute folder"):
        Place("somewhere")


def test_an_object_store_is_a_place_too() -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe("/bucket/contracts/2024/acme.pdf", b"hello")
    memory.pipe("/bucket/other/secret.pdf", SECRET)
    try:
        place = Place("memory://bucket", "contracts")
        assert list(place.walk("**/*.pdf")) == ["2024/acme.pdf"]
        found = place.read("2024/acme.pdf", 5)
        assert (found.data, found.digest) == (b"hello", hashlib.sha256(b"hello").hexdigest())
        with pytest.raises(Missing):
            place.read("2024/other.pdf", 5)
        with pytest.raises(TooLarge):
            place.read("2024/acme.pdf", 4)
        with pytest.raises(Outside):
            place.read("../other/secret.pdf", 100)
        with pytest.raises(FileError, match="folder"):
            place.read("2024", 100)
    finally:
        memory.rm("/bucket", recursive=True)


def test_a_store_whose_package_is_missing_is_named_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(BadValueError, match="pip install s3fs"):
        Place("s3://bucket/contracts")
    for root in ("http://host/x", "simplecache::s3://bucket", "ftp://host/x"):
        with pytest.raises(BadValueError, match="s3, gs"):
            Place(root)
