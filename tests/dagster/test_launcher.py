"""Whether the process of a run still lives, and when it is worth saying that it does not."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.events import EngineEventData
from dagster._core.launcher import WorkerStatus
from dagster._grpc.client import DagsterGrpcClient

from autofill_defs import launcher
from autofill_defs.launcher import LocalRunLauncher


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def local(instance: dg.DagsterInstance) -> LocalRunLauncher:
    made = LocalRunLauncher()
    made.register_instance(instance)
    return made


def started(instance: dg.DagsterInstance, pid: int | None, server: dict[str, object]) -> dg.DagsterRun:
    @dg.job
    def some() -> None:
        pass

    run = instance.create_run_for_job(some, tags={".dagster/grpc_info": json.dumps(server)})
    if pid is not None:
        instance.report_engine_event(f"Started process for run (pid: {pid}).", run, EngineEventData.in_process(pid))
    return run


def gone_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_living_process_is_running(instance: dg.DagsterInstance, local: LocalRunLauncher) -> None:
    run = started(instance, os.getpid(), {"host": "localhost", "socket": "/nowhere"})
    assert local.check_run_worker_health(run).status is WorkerStatus.RUNNING


@pytest.mark.parametrize("server", [{"host": "code.example", "port": 4000}, {}])
def test_what_is_elsewhere_counts_as_running(
    instance: dg.DagsterInstance, local: LocalRunLauncher, server: dict[str, object]
) -> None:
    run = started(instance, gone_pid(), server)
    assert local.check_run_worker_health(run).status is WorkerStatus.RUNNING


def test_a_run_without_a_process_yet_counts_as_running(instance: dg.DagsterInstance, local: LocalRunLauncher) -> None:
    run = started(instance, None, {"host": "localhost", "socket": "/nowhere"})
    assert local.check_run_worker_health(run).status is WorkerStatus.RUNNING


def test_a_dead_process_is_reported_once_its_code_server_could_take_a_retry(
    instance: dg.DagsterInstance, local: LocalRunLauncher, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = started(instance, gone_pid(), {"host": "localhost", "socket": str(tmp_path / "code.sock")})
    assert local.check_run_worker_health(run).status is WorkerStatus.RUNNING
    monkeypatch.setattr(DagsterGrpcClient, "ping", lambda _self, _echo: {})
    assert local.check_run_worker_health(run).status is WorkerStatus.RUNNING  # it has only just come back
    monkeypatch.setattr(launcher, "_ANSWERING", 0.0)
    found = local.check_run_worker_health(run)
    assert found.status is WorkerStatus.NOT_FOUND
    assert "is gone" in str(found)


def test_a_code_server_that_never_comes_back_is_not_waited_for(
    instance: dg.DagsterInstance, local: LocalRunLauncher, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = started(instance, gone_pid(), {"host": "localhost", "socket": str(tmp_path / "code.sock")})
    monkeypatch.setattr(launcher, "_PATIENCE", 0.0)
    assert local.check_run_worker_health(run).status is WorkerStatus.NOT_FOUND


def test_a_pid_given_out_again_is_not_the_runs(instance: dg.DagsterInstance) -> None:
    assert launcher._lives(os.getpid(), at=4e9)
    assert not launcher._lives(os.getpid(), at=1e9)
