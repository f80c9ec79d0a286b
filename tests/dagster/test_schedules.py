"""Schedules: by the daemon's own functions over days that are given to it, and the runs that ticks ask for."""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from zoneinfo import ZoneInfo

import dagster as dg
import pytest
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.scheduler.instigation import TickStatus
from dagster._core.storage.tags import SCHEDULED_EXECUTION_TIME_TAG
from dagster._core.test_utils import create_test_daemon_workspace_context, instance_for_test
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._scheduler.scheduler import ScheduleIterationTimes, launch_scheduled_runs
from dagster._utils.schedules import is_valid_cron_schedule, schedule_execution_time_iterator
from hypothesis import given, settings
from hypothesis import strategies as st

from autofill_defs.assets import build_assets
from autofill_defs.defined import DefinedCollection
from autofill_defs.schedules import build_schedules
from cell_engine.specs.compile import compile_file, compile_text
from cell_engine.specs.schedule import check_cron
from cell_engine.store.applying import Applied, apply
from cell_engine.store.changes import edit
from cell_engine.store.database import Connection
from tests.engine import Claimer, make

ROME = ZoneInfo("Europe/Rome")
SPEC = """
namespace: test
name: pages
columns:
  - {{name: a, type: text}}
  - {{name: b, type: text, kind: function, deps: [a], {b}, function: {{name: "tests.functions:upper"}}}}
  - {{name: c, type: text, kind: function, deps: [a], {c}, function: {{name: "tests.functions:upper"}}}}
"""
NEVER = "mode: never"


def cron(text: str, zone: str = "Europe/Rome") -> str:
    return f"mode: cron, cron: '{text}', timezone: {zone}"


class Daemon:
    """Dagster's scheduler, at the times that it is given."""

    def __init__(self, context: WorkspaceProcessContext, spec: Path, connection: Connection) -> None:
        self.context = context
        self.instance = context.instance
        self.connection = connection
        self._spec = spec
        self._times: dict[str, ScheduleIterationTimes] = {}

    def at(self, moment: datetime) -> None:
        logger = logging.getLogger("test")
        for error in launch_scheduled_runs(self.context, logger, moment.astimezone(UTC), iteration_times=self._times):
            assert not error or isinstance(error, ScheduleIterationTimes), error

    def through(self, first: datetime, last: datetime, step: timedelta = timedelta(minutes=30)) -> None:
        moment, last = first.astimezone(UTC), last.astimezone(UTC)
        while moment <= last:
            self.at(moment)
            self.finish()
            moment += step

    def finish(self) -> None:
        """What was asked for is done."""
        for run in self.instance.get_runs():
            if not run.is_finished:
                self.instance.report_run_canceled(run)

    def restart(self) -> None:
        self._times = {}

    def reload(self, at: datetime, *, b: str, c: str = NEVER) -> Applied:
        """Another YAML, applied and reloaded at a time."""
        self._spec.write_text(SPEC.format(b=b, c=c))
        self.context.refresh_workspace()
        applied = apply(self.connection, compile_file(self._spec), actor="test")
        self.connection.execute(
            "update autofill.version set created_at = %s where number = %s", [at, applied.version.number]
        )
        return applied

    @property
    def runs(self) -> list[tuple[str, list[str], datetime]]:
        """Schedule, columns and time of each tick that asked for a run, in order."""
        found = []
        for run in self.instance.get_runs():
            [op] = run.run_config["ops"].values()
            at = datetime.fromisoformat(run.tags[SCHEDULED_EXECUTION_TIME_TAG])
            found.append((run.tags["dagster/schedule_name"], op["config"]["columns"], at))
        return sorted(found, key=lambda one: one[2])

    def skips(self) -> list[str]:
        states = self.instance.all_instigator_state()
        ticks = [tick for one in states for tick in self.instance.get_ticks(one.instigator_origin_id, one.selector_id)]
        return [str(tick.skip_reason) for tick in ticks if tick.skip_reason]


@pytest.fixture
def daemon(database: str, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    spec = tmp_path / "pages.yaml"
    spec.write_text(SPEC.format(b=NEVER, c=NEVER))
    monkeypatch.setenv("AUTOFILL_DATABASE_URL", database)
    monkeypatch.setenv("AUTOFILL_HOME", str(tmp_path))
    monkeypatch.setenv("TEST_SPEC", str(spec))
    target = InProcessWorkspaceLoadTarget(
        InProcessCodeLocationOrigin(
            loadable_target_origin=LoadableTargetOrigin(python_file=str(Path(__file__).with_name("located.py"))),
            location_name="test",
        )
    )
    nothing_runs = {"run_launcher": {"module": "dagster._core.test_utils", "class": "MockedRunLauncher"}}
    with (
        TemporaryDirectory() as home,
        instance_for_test(overrides=nothing_runs, temp_dir=home) as instance,
        create_test_daemon_workspace_context(target, instance) as context,
    ):
        yield Daemon(context, spec, connection)


def rome(*when: int) -> datetime:
    return datetime(2026, *when, tzinfo=ROME)


@pytest.mark.parametrize(
    ("day", "when"),
    [
        (rome(3, 29), datetime(2026, 3, 29, 1, 0, tzinfo=UTC)),  # 02:30 is skipped: at 03:00, when the gap ends
        (rome(10, 25), datetime(2026, 10, 25, 1, 30, tzinfo=UTC)),  # 02:30 comes twice: the second time
    ],
)
def test_a_day_of_a_change_of_clocks_has_one_tick(daemon: Daemon, day: datetime, when: datetime) -> None:
    before = day - timedelta(hours=12)
    daemon.reload(before, b=cron("30 2 * * *"))
    daemon.at(before)
    daemon.through(day, day + timedelta(hours=5))
    daemon.through(day + timedelta(hours=8), day + timedelta(hours=23), timedelta(hours=5))
    assert daemon.runs == [("test__pages__b__cron", ["b"], when)]


def test_a_schedule_that_is_changed_makes_up_for_nothing(daemon: Daemon) -> None:
    daemon.reload(rome(6, 1, 12), b=cron("0 6 * * *"))
    daemon.at(rome(6, 1, 12))
    daemon.through(rome(6, 2, 6, 1), rome(6, 2, 6, 1))
    assert len(daemon.runs) == 1
    daemon.reload(rome(6, 2, 9, 30), b=cron("0 9 * * *"))
    daemon.through(rome(6, 2, 9, 31), rome(6, 2, 20), timedelta(hours=5))
    # a daemon that begins anew has only what was written down, up to an hour ago
    daemon.reload(rome(6, 2, 21, 30), b=cron("0 21 * * *"))
    daemon.restart()
    daemon.through(rome(6, 2, 21, 31), rome(6, 3, 20, 59), timedelta(hours=6))
    assert len(daemon.runs) == 1
    assert any("this tick is of before" in reason for reason in daemon.skips())
    daemon.at(rome(6, 3, 21, 0))
    assert daemon.runs[1:] == [("test__pages__b__cron", ["b"], rome(6, 3, 21))]


def test_a_daemon_that_was_away_for_days_makes_up_for_one_tick(daemon: Daemon) -> None:
    daemon.reload(rome(6, 1, 12), b=cron("0 6 * * *"))
    daemon.at(rome(6, 1, 12))
    daemon.restart()
    daemon.through(rome(6, 9, 15), rome(6, 9, 16))
    assert [at for _, _, at in daemon.runs] == [rome(6, 9, 6)]


def test_columns_of_one_schedule_are_one_run_and_a_new_one_begins_with_its_next_tick(daemon: Daemon) -> None:
    both = cron("0 6 * * *")
    daemon.reload(rome(6, 1, 12), b=both, c=both)
    daemon.at(rome(6, 1, 12))
    daemon.through(rome(6, 2, 6), rome(6, 2, 6))
    daemon.reload(rome(6, 2, 12), b=both, c=cron("0 6 * * *", "UTC"))
    daemon.through(rome(6, 2, 12), rome(6, 3, 12), timedelta(hours=6))
    name = "test__pages__b__cron"
    assert daemon.runs == [
        (name, ["b", "c"], rome(6, 2, 6)),
        (name, ["b"], rome(6, 3, 6)),
        ("test__pages__c__cron", ["c"], rome(6, 3, 8)),
    ]


def test_a_tick_is_one_run_and_none_while_an_earlier_one_goes_on(daemon: Daemon) -> None:
    daemon.reload(rome(6, 1, 12), b=cron("0 * * * *"))
    daemon.at(rome(6, 1, 12, 30))
    daemon.at(rome(6, 1, 13, 1))
    first = daemon.instance.get_runs()
    assert len(first) == 1
    # killed before it wrote down that the tick was done
    [state] = daemon.instance.all_instigator_state()
    [tick] = daemon.instance.get_ticks(state.instigator_origin_id, state.selector_id)
    daemon.instance.update_tick(tick.with_status(TickStatus.STARTED))
    daemon.restart()
    daemon.at(rome(6, 1, 13, 2))
    assert [run.run_id for run in daemon.instance.get_runs()] == [first[0].run_id]
    assert daemon.skips() == []
    daemon.at(rome(6, 1, 14, 1))
    assert len(daemon.runs) == 1
    assert f"run {first[0].run_id} of an earlier tick has not ended" in daemon.skips()
    daemon.finish()
    daemon.at(rome(6, 1, 15, 1))
    assert len(daemon.runs) == 2


def test_modes_change_and_recompute_nothing(connection: Connection) -> None:
    made = make(connection, SPEC.format(b="mode: on_change", c=NEVER), [{"a": "x"}])
    claimer = Claimer(connection)
    assert claimer.work_off() == ["b"]
    for mode in (NEVER, cron("0 6 * * *"), cron("0 7 * * *", "UTC"), "mode: on_change"):
        assert apply(connection, compile_text(SPEC.format(b=mode, c=NEVER)), actor="test").created
        assert claimer.work_off() == [], mode
    # not on change, and by its schedule alone
    apply(connection, compile_text(SPEC.format(b=cron("0 6 * * *"), c=NEVER)), actor="test")
    edit(connection, made.collection.id, 1, {made.id("a"): "y"}, actor="ann")
    assert claimer.work_off() == []


fields = {
    "minute": ["*", "0", "5", "*/15", "1-9", "10/20", "1,2-4,50-59/3"],
    "hour": ["*", "6", "8-18", "*/6", "0,12", "2"],
    "day": ["*", "1", "L", "29-31", "*/2", "31"],
    "month": ["*", "2", "feb", "jan-mar,12", "4,6"],
    "weekday": ["*", "mon-fri", "0", "7", "sat,sun", "1/2"],
}


@given(st.tuples(*map(st.sampled_from, fields.values())), st.sampled_from(["UTC", "Europe/Rome", "Asia/Kolkata"]))
@settings(max_examples=60, deadline=None)
def test_dagster_keeps_every_schedule_that_is_taken(parts: tuple[str, ...], zone: str) -> None:
    try:
        taken = check_cron(" ".join(parts))
    except ValueError as error:
        assert "never comes" in str(error)
        return
    assert is_valid_cron_schedule(taken)
    start = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    first, second = islice(schedule_execution_time_iterator(start, taken, zone, ascending=True), 2)
    assert first < second


def test_assets_and_schedules_say_when(tmp_path: Path) -> None:
    spec = SPEC.format(b=cron("0 6 * * *"), c=NEVER).replace(
        "columns:", "key: a\nsource: a.csv\nrefresh: {cron: '0 5 * * *'}\ncolumns:", 1
    )
    defined = DefinedCollection(compile_text(spec), tmp_path)
    described = {
        node.key.path[-1]: node.description for node in build_assets(defined).resolve_asset_graph().asset_nodes
    }
    assert "Refreshed by its schedule `0 6 * * *` (Europe/Rome)." in str(described["b"])
    assert "All that the source a.csv gives. Looked at again `0 5 * * *` (UTC)." in str(described["rows"])
    built = build_schedules(defined)
    assert {(one.name, one.job_name, one.cron_schedule, one.execution_timezone) for one in built.schedules or ()} == {
        ("test__pages__b__cron", "test__pages__cron", "0 6 * * *", "Europe/Rome"),
        ("test__pages__refresh__cron", "test__pages__refresh", "0 5 * * *", "UTC"),
    }
    assert {one.default_status for one in built.schedules or ()} == {dg.DefaultScheduleStatus.RUNNING}
    plain = DefinedCollection(compile_text(SPEC.format(b=NEVER, c=NEVER)), tmp_path)
    assert not build_schedules(plain).schedules
