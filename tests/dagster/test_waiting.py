"""How a run waits: what it says and how often, by a clock of the test's own."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from autofill_defs import reports, waiting
from cell_engine.store.reading import Progress

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)
RUNNING = Progress(
    id=7, collection_id=1, reason="run", actor="dagster", columns=(2,), force=False, key=None, total=1000, version=1,
    created_at=BEGAN, ended_at=None, canceled_at=None, paused_at=None, only_if=None, pause_reason=None, max_cost=None,
    outcomes={"ready": 300, "schema": 2}, attempts={}, tokens_in=5000, tokens_out=700, tokens_cached=0,
    tokens_reasoning=0, cost=1_250_000_000, unpriced=0, saved_tokens_in=0, saved_tokens_out=0, saved_cost=0,
    work={"computing": 10}, rows_ahead=688, rows=1000, recent=60, recent_seconds=60.0,
)  # fmt: skip
REQUEST: Any = SimpleNamespace(columns=(), batches=(), total=1000)


class Engine:
    away = 0.0

    def __call__(self, work: Callable[[Any], Any]) -> Any:
        return work(None)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Time passes by sleeping, and by reading progress: `reads` of them at `cost` seconds each."""
    clock = SimpleNamespace(now=0.0, reads=0, cost=0.01, until=100.0, progress=RUNNING)

    def sleep(seconds: float) -> None:
        clock.now += seconds

    def read(_connection: object, _dispatch: int) -> Progress:
        clock.reads += 1
        clock.now += clock.cost
        over = BEGAN + timedelta(seconds=clock.now) if clock.now >= clock.until else None
        return replace(clock.progress, ended_at=over)

    monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep))
    monkeypatch.setattr(waiting, "read_progress", read)
    monkeypatch.setattr(waiting, "end_dispatches", lambda _connection, _ids: [])
    monkeypatch.setattr(waiting, "_unserved", lambda _connection, _columns: [])
    return clock


def wait(clock: SimpleNamespace) -> tuple[Progress, list[tuple[float, str]]]:
    said: list[tuple[float, str]] = []

    def say(message: str, *, warning: bool = False) -> None:
        said.append((clock.now, message))

    return waiting.wait(say, REQUEST, 7, Engine()), said  # type: ignore[arg-type]


def test_lines_are_seconds_apart_and_rarer_the_longer_it_takes(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.until = 7 * 86400.0
    with monkeypatch.context() as patch:
        patch.setattr(waiting, "SLICE", 300.0)
        _, week = wait(clock)
    assert 20 < len(week) < 80
    clock.now, clock.until = 0.0, 60.0
    _, minute = wait(clock)
    times = [at for at, _ in minute[1:-1]]
    assert all(later - earlier >= 2.9 for earlier, later in pairwise(times))
    assert 8 < len(minute) < 20
    assert minute[-1][1].endswith("; ended")


def test_what_is_dear_to_read_is_read_seldom(clock: SimpleNamespace) -> None:
    clock.until, clock.cost = 1000.0, 2.0
    wait(clock)
    assert clock.reads * clock.cost < 1000 * 0.07


def test_a_dispatch_at_its_cap_is_waited_for_until_nothing_of_it_runs(clock: SimpleNamespace) -> None:
    capped = replace(RUNNING, paused_at=BEGAN, pause_reason="its cap is reached", max_cost=1_000_000_000)
    clock.progress = capped
    ended, said = wait(clock)
    assert ended.ended_at is not None  # calls were in flight to its end
    assert "paused: its cap is reached" in said[1][1]
    assert "paused" not in said[-1][1]
    clock.now, clock.progress = 0.0, replace(capped, work={"parked": 10})
    ended, _ = wait(clock)
    assert ended.ended_at is None
    assert clock.now < 5
    # Paused by a person: somebody will resume it, and it has not cost what it may.
    clock.now, clock.progress = 0.0, replace(capped, work={}, max_cost=2_000_000_000, pause_reason=None)
    ended, said = wait(clock)
    assert ended.ended_at is not None
    assert "paused: by somebody" in said[1][1]


def test_a_line_says_how_far_what_failed_what_it_cost_and_how_long_yet() -> None:
    line = reports.progress_line(RUNNING)
    assert line.startswith("dispatch 7: 302 of 1,000 cells (30 %); failed: schema 2; rows in work: computing 10; ")
    assert "tokens: 5,000 in, 700 out; cost: $1.25" in line
    assert line.endswith("; about 682 s left")  # at a cell a second, and about as many cells a row as before
    filtered = reports.progress_line(replace(RUNNING, only_if=("outdated",)))
    assert "302 cells, found in 1,000 rows" in filtered
    assert "%" not in filtered


def test_a_saved_call_is_one_that_was_not_made() -> None:
    outcomes = {"ready": 300, "cached": 20, "fresh": 3, "unchanged": 7, "schema": 2}
    done = replace(RUNNING, outcomes=outcomes, attempts={"succeeded": 307, "failed": 4, "interrupted": 1})
    said = reports.dispatch_metadata(done, 0.0)
    assert (said["run_calls"], said["run_interrupted_calls"], said["run_saved_calls"]) == (312, 1, 23)
