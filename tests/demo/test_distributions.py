from __future__ import annotations

from importlib.metadata import distributions
from pathlib import Path

import polars as pl

from cell_engine.demo import SPEC_FILE
from cell_engine.demo.distributions import Installed, installed, write_file
from cell_engine.demo.functions import word_count
from cell_engine.specs.compile import compile_file


def test_every_installed_distribution_is_one_row() -> None:
    rows = installed()
    names = [row.name.lower().replace("_", "-").replace(".", "-") for row in rows]
    assert names == sorted(set(names))
    assert len(rows) == len(
        {one.metadata["Name"].lower().replace("_", "-").replace(".", "-") for one in distributions()}
    )
    polars = next(row for row in rows if row.name == "polars")
    assert polars.version == pl.__version__
    assert polars.licence is not None
    assert "DataFrame" in (polars.readme or "")
    assert (polars.home_page or "").startswith("https://")
    assert all(row.readme is None or row.readme.strip() for row in rows)


def test_the_spec_takes_every_value() -> None:
    spec = compile_file(SPEC_FILE)
    inputs = {column.name: column.type for column in spec.columns if column.kind is None}
    assert list(inputs) == list(Installed.__dataclass_fields__)
    for row in installed():
        for name, type_ in inputs.items():
            value = getattr(row, name)
            if value is not None:
                type_.accept(value)


def test_the_file_appears_whole_and_the_same_content_leaves_it_alone(tmp_path: Path) -> None:
    rows = [
        Installed("a", "0870", "MIT", ["Topic :: Utilities"], "https://example.org", "Text — with ünïcode"),
        Installed("b", "1", None, None, None, None),
    ]
    file = write_file(rows, tmp_path / "inbox", tmp_path)
    assert [path.name for path in (tmp_path / "inbox").iterdir()] == [file.name]
    frame = pl.read_parquet(file)
    assert frame["version"].to_list() == ["0870", "1"]
    assert frame["readme"].to_list() == ["Text — with ünïcode", None]
    assert frame["classifiers"].to_list() == [["Topic :: Utilities"], None]
    before = file.stat()
    write_file(rows, tmp_path / "inbox", tmp_path)
    after = file.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    write_file(rows[:1], tmp_path / "inbox", tmp_path)
    assert pl.read_parquet(file).height == 1
    assert [path.name for path in tmp_path.iterdir()] == ["inbox"]


def test_words_are_counted() -> None:
    assert word_count("") == 0
    assert word_count("It's a read-me: 3 words, naïve ones.") == 7
