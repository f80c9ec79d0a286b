"""The sensors, each effect twice: overlap, time-outs and kills repeat a tick, and must not repeat its work."""

import os
import threading
from pathlib import Path

import dagster as dg
import psycopg
import pytest

from autofill_defs import arrivals, sensors
from autofill_defs.inbox import Memory
from autofill_defs.janitor import janitor
from autofill_defs.sensors import contiguous
from cell_engine.store.applying import apply
from cell_engine.store.batches import add_batch, make_batch
from cell_engine.store.collections import find_collection, load_version
from cell_engine.store.database import Connection, connect
from cell_engine.store.demands import RangeScope, dispatch
from cell_engine.store.reading import recent_dispatches
from cell_engine.store.upkeep import is_alone
from tests.dagster.conftest import SPEC, Locate, Location, beside
from tests.engine import Claimer, eventually, running_worker


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
    assert request.asset_check_keys is None  # their checks come along: a page without a verdict says nothing
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
    assert not again.run_requests


def test_a_cursor_lost_with_its_tick_loses_no_run(location: Location) -> None:
    drop(location, "f.csv", "x")
    location.tick(location.tick(None).cursor)  # loaded, and killed before the daemon heard of it
    assert len(location.tick(None).run_requests or ()) == 1


def test_the_same_content_under_another_name_is_the_same_batch(location: Location) -> None:
    drop(location, "f.csv", "x")
    first = location.tick(location.tick(None).cursor)
    cursor = location.land(first)
    drop(location, "g.csv", "x")
    second = location.tick(location.tick(cursor).cursor)
    location.land(second)
    assert len(loaded(location.connection)) == len(rows_events(location)) == 1
    assert not second.run_requests


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
    said = str(observed[str(bad.with_name("wrong.csv"))].description)
    assert said.startswith("wrong.csv was not loaded: line 1: header 1, 'nosuch'")
    assert "\n" not in said
    again = location.tick(location.land(result))
    assert again.asset_events == []
    assert "not loaded until they change 2" in reason(again)
    assert "nosuch" in reason(again)
    bad.write_text("a\nfixed\n")
    fixed = location.tick(location.tick(again.cursor).cursor)
    location.land(fixed)
    assert [source for source, _, _ in loaded(location.connection)] == ["good.csv", "bad.csv"]


def test_a_bad_file_whose_name_is_no_text_is_reported_as_text(location: Location) -> None:
    location.defined.inbox.mkdir(parents=True)
    for name in (b"caf\xe9.csv", b"caf\xe9/caf\xe9/deep.csv"):
        path = location.defined.inbox / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    cursor = location.land(location.tick(None))
    result = location.tick(cursor)
    [event] = result.asset_events
    assert isinstance(event, dg.AssetObservation)
    again = location.tick(location.land(result))
    assert result.skip_reason is not None
    assert again.skip_reason is not None
    shown = [str(event.description), *(str(one.value) for one in event.metadata.values())]
    said = [str(result.skip_reason.skip_message), str(again.skip_reason.skip_message)]
    for text in [*shown, *said]:
        text.encode()  # as the webserver does: a lone surrogate costs the whole page
    assert "caf.csv" in shown[0]
    assert all("caf.csv" in text or "caf/caf" in text for text in said)


def test_rejected_lines_are_shown_beside_the_good_ones(locate: Locate) -> None:
    location = locate(SPEC.replace("{name: a, type: text}", "{name: a, type: text}\n  - {name: i, type: integer}"))
    location.defined.inbox.mkdir()
    (location.defined.inbox / "f.csv").write_text("a,i\nx,1\ny,no\nz,3\n")
    result = location.tick(location.tick(None).cursor)
    [event] = result.asset_events
    assert event.metadata["dagster/partition_row_count"].value == 2
    assert event.metadata["rejected_lines"].value == 1
    assert "| 3 |" in str(event.metadata["rejected"].value)


def test_small_files_of_one_tick_are_one_batch(location: Location) -> None:
    for number in range(5):
        drop(location, f"{number}.csv", f"x{number}")
    result = location.tick(location.tick(None).cursor)
    location.land(result)
    [request] = result.run_requests or []
    [key] = location.instance.get_dynamic_partitions("test/table")
    assert request.tags["dagster/asset_partition_range_end"] == key
    assert loaded(location.connection) == [("0.csv and 4 more", 1, 5)]
    [event] = result.asset_events
    assert "| 3.csv | 1 | 0 |" in str(event.metadata["files"].value)


def test_large_files_of_one_tick_are_a_batch_each_and_one_run(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cell_engine.load.together.SMALL_BYTES", 1)
    for number in range(3):
        drop(location, f"{number}.csv", f"x{number}")
    result = location.tick(location.tick(None).cursor)
    location.land(result)
    [request] = result.run_requests or []
    partitions = location.instance.get_dynamic_partitions("test/table")
    assert [source for source, _, _ in loaded(location.connection)] == ["0.csv", "1.csv", "2.csv"]
    assert (partitions[0], partitions[-1]) == (
        request.tags["dagster/asset_partition_range_start"],
        request.tags["dagster/asset_partition_range_end"],
    )


def test_a_tick_is_bounded_and_the_next_goes_on(location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "_FILES_A_TICK", 2)
    for number in range(5):
        drop(location, f"{number}.csv", f"x{number}")
    cursor = location.tick(None).cursor
    for expected in (2, 4, 5):
        result = location.tick(cursor)
        cursor = location.land(result)
        assert sum(last - first + 1 for _, first, last in loaded(location.connection)) == expected
    assert len(location.instance.get_dynamic_partitions("test/table")) == 3


def test_what_a_tick_hands_over_is_bounded_and_the_next_goes_on(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensors, "_BATCHES_A_TICK", 2)
    monkeypatch.setattr("cell_engine.load.together.SMALL_BYTES", 1)
    cursor = location.tick(None).cursor
    by_hand(location, "by hand 1", "by hand 2", "by hand 3")
    for number in range(5):
        drop(location, f"{number}.csv", f"x{number}")
    requested = 0
    for _ in range(6):
        result = location.tick(cursor)
        assert len(result.asset_events) <= 2
        requested += len(result.run_requests or ())
        cursor = location.land(result)
    assert len(rows_events(location)) == len(location.instance.get_dynamic_partitions("test/table")) == 8
    assert requested >= 3


def test_a_tick_killed_after_its_load_goes_on_with_other_files(
    location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        drop(location, f"{name}.csv", name)
    cursor = location.tick(None).cursor
    with monkeypatch.context() as patched:
        patched.setattr(arrivals, "_FILES_A_TICK", 2)
        location.tick(cursor)  # killed before the daemon heard of it
    result = location.tick(cursor)
    assert [source for source, _, _ in loaded(location.connection)] == ["a.csv and 1 more", "c.csv"]
    [request] = result.run_requests or []
    assert location.land(result) is not None
    assert len(rows_events(location)) == 2
    first, last = location.instance.get_dynamic_partitions("test/table")
    assert set(request.tags.values()) == {first, last}


def test_a_daemon_killed_between_the_partitions_and_the_cursor_requests_the_run_again(location: Location) -> None:
    drop(location, "f.csv", "x")
    cursor = location.tick(None).cursor
    killed = location.tick(cursor)
    location.land(killed)  # all but the cursor and the run, which are written together
    again = location.tick(cursor)
    assert again.asset_events == []
    assert [one.run_key for one in again.run_requests or ()] == [one.run_key for one in killed.run_requests or ()] != []


def test_two_code_servers_that_look_at_once_load_each_file_once(location: Location, database: str) -> None:
    for name in "abc":
        drop(location, f"{name}.csv", name)
    cursor = location.tick(None).cursor
    results: list[dg.SensorResult] = []
    with connect(database, application="holder") as holder:
        holder.execute("begin")
        holder.execute("lock table autofill.row in exclusive mode")
        # Neither knows of the other: each has a lock of its own.
        with (
            beside(lambda: results.append(location.tick(cursor))),
            beside(lambda: results.append(location.tick(cursor))),
        ):
            eventually(
                location.connection,
                "select count(*) = 2 from pg_stat_activity where application_name = 'autofill dagster inbox' "
                "and wait_event_type = 'Lock' and datname = current_database()",
            )
            holder.execute("commit")
    for result in results:
        location.land(result)
    # Each has reserved row ids before either was in: the loser's are a gap, and may be the first.
    [(source, first, last)] = loaded(location.connection)
    assert (source, last - first + 1) == ("a.csv and 2 more", 3)
    rows = location.connection.execute("select inputs ->> '1' as a from autofill.row order by row_id").fetchall()
    assert [row.a for row in rows] == ["a", "b", "c"]
    assert len(location.instance.get_dynamic_partitions("test/table")) == 1
    assert len({one.run_key for result in results for one in result.run_requests or ()}) == 1


def by_hand(location: Location, *keys: str) -> None:
    """As `autofill load` does: with its own demand, and Dagster knows nothing of it."""
    apply(location.connection, location.defined.spec, actor="ann")
    collection = find_collection(location.connection, "test/table")
    version = load_version(location.connection, collection.id)
    for key in keys:
        rows = [{version.by_name["a"].id: key}]
        add_batch(location.connection, version, key, rows, source=f"{key}.csv", actor="ann")


def test_what_came_in_by_hand_is_made_known_and_has_no_run(location: Location) -> None:
    by_hand(location, "one")
    first = location.tick(None)
    cursor = location.land(first)
    by_hand(location, "two", "three")
    second = location.tick(cursor)
    location.land(location.tick(cursor))  # the one beside it
    location.land(second)
    assert not first.run_requests
    assert not second.run_requests
    assert location.instance.get_dynamic_partitions("test/table") == ["one", "two", "three"]
    assert sorted(map(str, {*rows_events(location)})) == ["one", "three", "two"]
    assert location.tick(second.cursor).asset_events == []


def test_a_batch_whose_partition_somebody_else_has_added_has_its_event(location: Location) -> None:
    cursor = location.tick(None).cursor
    by_hand(location, "one")
    location.instance.add_dynamic_partitions("test/table", ["one"])  # as a run over it does
    cursor = location.land(location.tick(cursor))
    assert rows_events(location) == ["one"]
    assert location.tick(cursor).asset_events == []


def test_a_batch_that_commits_late_is_made_known(location: Location, database: str) -> None:
    """Ids are given out before batches commit: a cursor by id alone would pass it."""
    cursor = location.tick(None).cursor
    collection = find_collection(location.connection, "test/table")
    version = load_version(location.connection, collection.id)
    with connect(database, application="late") as late:

        def fill(_batch: int, _row: int) -> None:
            nonlocal cursor
            by_hand(location, "sooner")
            result = location.tick(cursor)
            cursor = location.land(result)

        make_batch(late, version, "later", 0, fill, source="later", actor="bob", demand=False)
    assert location.instance.get_dynamic_partitions("test/table") == ["sooner"]
    location.land(location.tick(cursor))
    assert location.instance.get_dynamic_partitions("test/table") == ["sooner", "later"]


def test_what_a_run_loads_itself_is_left_to_it_for_a_while(location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    cursor = location.tick(None).cursor
    collection = find_collection(location.connection, "test/table")
    version = load_version(location.connection, collection.id)
    add_batch(location.connection, version, "frame-0001", [{}], source="frame", actor="dagster")
    result = location.tick(cursor)
    assert result.asset_events == []
    monkeypatch.setattr(sensors, "_RUNS_OWN", 0.0)
    location.land(location.tick(location.land(result)))
    assert location.instance.get_dynamic_partitions("test/table") == ["frame-0001"]


def test_a_folder_dropped_into_the_inbox_is_its_files(location: Location) -> None:
    (location.defined.inbox / "november" / "raw").mkdir(parents=True)
    for name in ("november/a", "november/b", "november/raw/c"):
        (location.defined.inbox / f"{name}.csv").write_text(f"a\n{name}\n")
    result = location.tick(location.tick(None).cursor)
    assert loaded(location.connection) == [("november/a.csv and 1 more", 1, 2)]
    again = location.tick(location.land(result))
    assert "not looked into, as a folder in a folder: november/raw" in reason(again)


def test_many_bad_files_are_few_observations(location: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sensors, arrivals):
        monkeypatch.setattr(module, "SHOWN_REFUSALS", 2)
    for number in range(5):
        drop(location, f"{number}.csv").write_text("nosuch\n1\n")
    result = location.tick(location.tick(None).cursor)
    assert [str(event.description).partition(",")[0][:30] for event in result.asset_events][-1] == (
        "3 more files were not loaded"
    )
    assert len(result.asset_events) == 3


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
    assert Memory.parse(cursor).inbox.reasons.keys() == {"f.csv"}
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
