"""The sensors, each effect twice: overlap, time-outs and kills repeat a tick, and must not repeat its work."""

import threading
from pathlib import Path

import dagster as dg
import psycopg
import pytest

from autofill_defs import sensors
from autofill_defs.inbox import Memory
from autofill_defs.sensors import contiguous, janitor
from cell_engine.store.collections import find_collection
from cell_engine.store.database import Connection, connect
from cell_engine.store.demands import RangeScope, dispatch
from cell_engine.store.reading import recent_dispatches
from cell_engine.store.upkeep import is_alone
from tests.dagster.conftest import SPEC, Locate, Location
from tests.engine import Claimer, running_worker


def drop(location: Location, name: str, *lines: str) -> Path:
    location.defined.inbox.mkdir(exist_ok=True)
    path = location.defined.inbox / name
    path.write_text("\n".join(["a", *lines]) + "\n")
    return path


def loaded(connection: Connection) -> list[tuple[str, int, int]]:
    found = connection.execute("select source, first_row, last_row from autofill.batch order by id").fetchall()
    return [tuple(one) for one in found]


def rows_events(location: Location) -> list[str | None]:
    filter_ = dg.AssetRecordsFilter(asset_key=location.defined.rows_key)
    return [record.partition_key for record in location.instance.fetch_materializations(filter_, limit=100).records]


def reason(result: dg.SensorResult) -> str:
    assert result.skip_reason is not None
    return str(result.skip_reason.skip_message)


def test_a_file_becomes_a_batch_a_partition_and_a_run(location: Location, database: str) -> None:
    first = location.tick(None)
    assert "loaded 0" in reason(first)
    assert find_collection(location.connection, "test/table").version == 1
    drop(location, "f.csv", "x", "y")
    second = location.tick(location.land(first))
    assert "waiting for 1" in reason(second)
    third = location.tick(location.land(second))
    assert loaded(location.connection) == [("f.csv", 1, 2)]
    # nothing is asked for but by the run
    assert recent_dispatches(location.connection, find_collection(location.connection, "test/table").id) == []
    [request] = third.run_requests or []
    [event] = third.asset_events
    key = event.partition
    assert request.tags == {"dagster/asset_partition_range_start": key, "dagster/asset_partition_range_end": key}
    assert set(request.asset_selection or ()) == {location.defined.column_key(name) for name in "bcn"}
    assert event.metadata["dagster/partition_row_count"].value == 2
    cursor = location.land(third)
    assert location.instance.get_dynamic_partitions("test/table") == [key]
    assert "loaded 1" in reason(location.tick(cursor))
    with running_worker(database):
        _, success = location.run(str(key), str(key))
    assert success
    assert location.materialized["c", str(key)]["ready"] == 2


def test_a_tick_that_timed_out_and_the_one_beside_it_do_the_same(location: Location) -> None:
    drop(location, "f.csv", "x")
    cursor = location.tick(None).cursor
    first, second = location.tick(cursor), location.tick(cursor)
    assert [one.run_key for one in first.run_requests or ()] == [one.run_key for one in second.run_requests or ()]
    location.land(second)  # the first one's result went nowhere
    third = location.tick(cursor)
    assert third.asset_events == []
    location.land(third)
    assert len(loaded(location.connection)) == len(rows_events(location)) == 1
    assert len(location.instance.get_dynamic_partitions("test/table")) == 1


def test_a_tick_killed_between_its_load_and_its_cursor_is_done_again(location: Location) -> None:
    drop(location, "f.csv", "x")
    cursor = location.tick(None).cursor
    location.tick(cursor)  # killed before the daemon heard of it
    again = location.tick(cursor)
    assert len(again.run_requests or ()) == len(again.asset_events) == 1
    for event in again.asset_events:  # killed after the events
        location.instance.report_runless_asset_event(event)
    third = location.tick(cursor)
    assert third.asset_events == []
    assert [one.run_key for one in third.run_requests or ()] == [one.run_key for one in again.run_requests or ()]
    location.land(third)
    assert len(loaded(location.connection)) == len(rows_events(location)) == 1


def test_a_lost_cursor_loads_nothing_twice(location: Location) -> None:
    drop(location, "f.csv", "x")
    result = location.tick(location.tick(None).cursor)
    location.land(result)
    again = location.tick(location.tick(None).cursor)
    location.land(again)
    assert len(loaded(location.connection)) == len(rows_events(location)) == 1
    assert [one.run_key for one in again.run_requests or ()] == [one.run_key for one in result.run_requests or ()]


def test_the_same_content_under_another_name_is_the_same_batch(location: Location) -> None:
    drop(location, "f.csv", "x")
    first = location.tick(location.tick(None).cursor)
    cursor = location.land(first)
    drop(location, "g.csv", "x")
    second = location.tick(location.tick(cursor).cursor)
    location.land(second)
    assert len(loaded(location.connection)) == len(rows_events(location)) == 1
    # Dagster makes no second run for a known key.
    assert [one.run_key for one in first.run_requests or ()] == [one.run_key for one in second.run_requests or ()]


def test_a_bad_file_is_reported_once_and_stops_no_other(location: Location) -> None:
    bad = drop(location, "bad.csv")
    bad.write_bytes("a\nété\n".encode("latin-1"))
    drop(location, "wrong.csv").write_text("nosuch\n1\n")
    drop(location, "good.csv", "x")
    result = location.tick(location.tick(None).cursor)
    assert [source for source, _, _ in loaded(location.connection)] == ["good.csv"]
    assert len(result.run_requests or ()) == 1
    observed = {str(event.metadata["path"].value): event for event in result.asset_events if "reason" in event.metadata}
    assert observed.keys() == {str(bad), str(bad.with_name("wrong.csv"))}
    assert "UTF-8" in str(observed[str(bad)].description)
    again = location.tick(location.land(result))
    assert again.asset_events == []
    assert "not loaded until they change 2" in reason(again)
    assert "nosuch" in reason(again)
    bad.write_text("a\nfixed\n")
    fixed = location.tick(location.tick(again.cursor).cursor)
    location.land(fixed)
    assert [source for source, _, _ in loaded(location.connection)] == ["good.csv", "bad.csv"]


def test_rejected_lines_are_shown_beside_the_good_ones(locate: Locate) -> None:
    location = locate(SPEC.replace("{name: a, type: text}", "{name: a, type: text}\n  - {name: i, type: integer}"))
    location.defined.inbox.mkdir()
    (location.defined.inbox / "f.csv").write_text("a,i\nx,1\ny,no\nz,3\n")
    result = location.tick(location.tick(None).cursor)
    [event] = result.asset_events
    assert event.metadata["dagster/partition_row_count"].value == 2
    assert event.metadata["rejected_lines"].value == 1
    assert "| 3 |" in str(event.metadata["rejected"].value)


def test_files_of_one_tick_are_one_run(location: Location) -> None:
    for number in range(5):
        drop(location, f"{number}.csv", f"x{number}")
    result = location.tick(location.tick(None).cursor)
    location.land(result)
    [request] = result.run_requests or []
    partitions = location.instance.get_dynamic_partitions("test/table")
    assert len(partitions) == 5
    assert (partitions[0], partitions[-1]) == (
        request.tags["dagster/asset_partition_range_start"],
        request.tags["dagster/asset_partition_range_end"],
    )


def test_a_tick_is_bounded_and_the_next_goes_on(location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensors, "_BATCHES_A_TICK", 2)
    for number in range(5):
        drop(location, f"{number}.csv", f"x{number}")
    cursor = location.tick(None).cursor
    for expected in (2, 4, 5):
        result = location.tick(cursor)
        cursor = location.land(result)
        assert len(loaded(location.connection)) == expected
    assert len(location.instance.get_dynamic_partitions("test/table")) == 5


def test_ranges_take_in_only_what_is_wanted() -> None:
    assert contiguous(["a", "b", "c", "d", "e"], {"a", "c", "d"}) == [["a"], ["c", "d"]]
    assert contiguous([], set()) == []


def test_columns_by_schedule_or_by_hand_are_not_requested(locate: Locate) -> None:
    location = locate(SPEC.replace("name: n, type", "name: n, mode: never, type"))
    drop(location, "f.csv", "x")
    [request] = location.tick(location.tick(None).cursor).run_requests or []
    assert {key.path[-1] for key in request.asset_selection or ()} == {"b", "c"}
    inputs_only = locate("namespace: test\nname: plain\ncolumns:\n  - {name: a, type: text}\n")
    result = inputs_only.tick(inputs_only.tick(None).cursor)
    assert not result.run_requests
    assert len(result.asset_events) == 1


def test_an_overlapping_tick_leaves_the_loading_to_the_first(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, leave = threading.Event(), threading.Event()

    def slow(*_arguments: object) -> dg.SensorResult:
        entered.set()
        assert leave.wait(30)
        return dg.SensorResult()

    monkeypatch.setattr(sensors, "look", slow)
    sensor = sensors.build_inbox_sensor(location.defined)
    first = threading.Thread(target=lambda: sensor(dg.build_sensor_context(instance=location.instance)))
    first.start()
    try:
        assert entered.wait(30)
        second = sensor(dg.build_sensor_context(instance=location.instance))
    finally:
        leave.set()
        first.join()
    assert isinstance(second, dg.SkipReason)
    assert "still loading" in str(second.skip_message)


def test_a_reloaded_definition_is_applied_once_and_refused_files_are_tried_again(locate: Locate) -> None:
    older = locate(SPEC)
    older.defined.inbox.mkdir()
    (older.defined.inbox / "f.csv").write_text("a,extra\nx,1\n")
    cursor = older.tick(older.tick(None).cursor).cursor
    assert Memory.parse(cursor).refused.keys() == {"f.csv"}
    newer = locate(SPEC.replace("- {name: a, type: text}", "- {name: a, type: text}\n  - {name: extra, type: text}"))
    result = newer.tick(cursor)
    assert find_collection(newer.connection, "test/table").version == 2
    assert len(result.run_requests or ()) == 1


def test_a_definition_applied_elsewhere_meanwhile_is_left_alone(locate: Locate) -> None:
    older, newer = locate(SPEC), locate(SPEC.replace("tests.functions:length", "tests.functions:boom"))
    cursor = older.tick(None).cursor
    newer.load("one")  # applied by hand, while this code location still holds the older one
    older.tick(cursor)
    assert find_collection(older.connection, "test/table").version == 2


def test_a_tick_without_a_database_says_so_and_the_next_goes_on(
    location: Location, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drop(location, "f.csv", "x")
    cursor = location.tick(None).cursor
    monkeypatch.setenv("AUTOFILL_DATABASE_URL", f"postgresql:///none?host={tmp_path}")
    with pytest.raises(psycopg.OperationalError):
        location.tick(cursor)
    monkeypatch.setenv("AUTOFILL_DATABASE_URL", database)
    assert len(location.tick(cursor).run_requests or ()) == 1


def test_the_janitor_gives_back_what_dead_workers_held(location: Location) -> None:
    location.load("one")
    collection = find_collection(location.connection, "test/table")
    dispatch(location.connection, collection.id, RangeScope(((1, 3),)), reason="test", actor="test")
    assert len(Claimer(location.connection, lease=0.0).claim()) == 3
    assert "workers ended: 1, visits given back: 3" in tick_janitor()


def test_one_round_of_the_janitor_at_a_time(location: Location, database: str) -> None:
    with connect(database, application="other") as other, other.transaction():
        assert is_alone(other, "autofill.janitor.sensor")
        assert "another round" in tick_janitor()
    assert "dispatches ended: 0" in tick_janitor()


def tick_janitor() -> str:
    result = janitor(dg.build_sensor_context())
    assert isinstance(result, dg.SkipReason)
    return str(result.skip_message)
