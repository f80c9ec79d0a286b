import json
from dataclasses import replace
from graphlib import CycleError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cell_engine.specs.files import FileSource
from cell_engine.specs.schedule import Schedule
from cell_engine.specs.text import Json
from cell_engine.specs.types import ColumnType
from cell_engine.specs.version import Column, Dependency, Version

TEXT = ColumnType("text")


def column(id: int, *deps: int) -> Column:
    return Column(
        id=id,
        key=f"k{id}",
        name=f"n{id}",
        type=TEXT,
        kind="llm" if deps else None,
        mode="on_change",
        deps=tuple(Dependency(dep, optional=False) for dep in deps),
        timeout=30.0,
        attempts=4,
        settings={},
        hash=bytes(16),
    )


# A → B → C, A → E, (C, E) → D, the readers before the read in the file.
A, B, C, D, E = 10, 20, 30, 40, 50
DIAMOND = Version(1, 1, (column(D, C, E), column(C, B), column(A), column(E, A), column(B, A)))


def test_computed_columns_come_after_what_they_read_then_in_file_order() -> None:
    assert [column.id for column in DIAMOND.computed] == [E, B, C, D]
    assert [column.id for column in DIAMOND.input_columns] == [A]


def test_dependents_are_transitive_and_in_the_order_of_computing() -> None:
    assert DIAMOND.dependents(A) == (E, B, C, D)
    assert DIAMOND.dependents(B) == (C, D)
    assert DIAMOND.dependents(E) == (D,)
    assert DIAMOND.dependents(D) == ()
    with pytest.raises(KeyError):
        DIAMOND.dependents(99)


def test_columns_are_found_by_id_and_name() -> None:
    assert DIAMOND.by_id[C].name == "n30"
    assert DIAMOND.by_name["n30"].id == C


def test_a_cycle_that_came_past_the_compiler_is_loud() -> None:
    with pytest.raises(CycleError):
        _ = Version(1, 1, (column(1, 2), column(2, 1))).computed


def test_versions_and_columns_are_values() -> None:
    again = replace(DIAMOND)
    assert again == DIAMOND
    assert len({again.columns[0], DIAMOND.columns[0]}) == 1


def test_job_type_is_the_kind_and_an_input_has_none() -> None:
    assert column(1, 2).job_type == "llm"
    with pytest.raises(ValueError, match="'n1' is an input"):
        _ = column(1).job_type


@st.composite
def versions(draw: st.DrawFn) -> Version:
    """Any DAG of up to ten columns, listed in any order."""
    ids = draw(st.lists(st.integers(1, 2**63 - 1), min_size=1, max_size=10, unique=True))
    columns = [
        column(id, *draw(st.lists(st.sampled_from(ids[:place]), unique=True)) if place else ())
        for place, id in enumerate(ids)
    ]
    return Version(1, 1, tuple(draw(st.permutations(columns))))


@given(versions())
def test_the_order_and_the_dependents_of_any_dag(version: Version) -> None:
    order = {column.id: place for place, column in enumerate(version.computed)}
    assert sorted(order) == sorted(column.id for column in version.columns if column.kind)
    for reader in version.computed:
        for dep in reader.deps:
            assert order.get(dep.column, -1) < order[reader.id]
    for source in version.columns:
        expected: set[int] = set()
        frontier = {source.id}
        while frontier:
            frontier = {c.id for c in version.columns for dep in c.deps if dep.column in frontier} - expected
            expected |= frontier
        assert version.dependents(source.id) == tuple(sorted(expected, key=order.__getitem__))


json_values: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
column_types = st.one_of(
    st.sampled_from(["text", "number", "integer", "boolean", "date", "datetime", "json", "url", "file"]).map(
        lambda name: ColumnType(name)  # type: ignore[arg-type]
    ),
    st.lists(st.text(min_size=1), min_size=1, max_size=4).map(lambda choices: ColumnType("choice", tuple(choices))),
    st.sampled_from(["text", "integer", "json"]).map(
        lambda items: ColumnType("list", items=items)  # type: ignore[arg-type]
    ),
)
columns = st.builds(
    Column,
    id=st.integers(1, 2**63 - 1),
    key=st.text(),
    name=st.text(),
    type=column_types,
    kind=st.none() | st.text(),
    mode=st.sampled_from(["on_change", "cron", "never"]),
    deps=st.lists(st.builds(Dependency, st.integers(), st.booleans(), st.booleans()), max_size=4).map(tuple),
    files=st.none() | st.builds(FileSource, st.text(), wait=st.none() | st.floats(0, 1e6)),
    timeout=st.floats(0, 1e6),
    attempts=st.integers(0, 100),
    settings=st.dictionaries(st.text(), json_values, max_size=4),
    hash=st.binary(min_size=16, max_size=16),
    schedule=st.none() | st.builds(Schedule, st.text(), st.text()),
)


@given(columns)
def test_columns_survive_json(original: Column) -> None:
    stored: Any = json.loads(json.dumps(original.to_json(), allow_nan=False))
    restored = Column.from_json(stored)
    assert restored == original
    assert hash(restored) == hash(original)
