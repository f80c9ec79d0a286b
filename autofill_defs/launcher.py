"""Dagster's default run launcher, and whether the process of a run still lives."""

import json
import time
from collections.abc import Mapping
from typing import Any

import psutil
from dagster import DagsterEventType, DagsterRun
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.launcher import CheckRunHealthResult, DefaultRunLauncher, WorkerStatus
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._grpc.client import DagsterGrpcClient
from dagster._serdes import ConfigurableClassData

_LOCAL = ("localhost", "127.0.0.1", "::1")
# Seconds. Two readings of the system's clock may differ by the first.
_CLOCK = 5.0
# A run reported dead is tried again at once, and never if that fails: so not before the code server that is to take it
# has answered this long. Where it has moved for good, nobody can tell when it is back.
_ANSWERING = 5.0
_PATIENCE = 300.0


class LocalRunLauncher(DefaultRunLauncher):
    """For code servers on the daemon's machine, where run monitoring can look at processes.

    A code server reports the death of its own runs' processes, so what is left is the death of a code server with its
    runs. Without this, such a run would be shown as running for ever, and never tried again.
    """

    def __init__(self, inst_data: ConfigurableClassData | None = None) -> None:
        super().__init__(inst_data)
        self._gone_since: dict[str, float] = {}
        self._answering_since: dict[str, float] = {}

    @property
    def supports_check_run_worker_health(self) -> bool:
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """NOT_FOUND when the process that the run reported has gone; RUNNING also where nobody can tell."""
        server = json.loads(run.tags.get(GRPC_INFO_TAG, "{}"))
        started = self._started(run) if server.get("host") in _LOCAL else None
        if started is None or _lives(*started):
            self._gone_since.pop(run.run_id, None)
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        now = time.monotonic()
        gone = now - self._gone_since.setdefault(run.run_id, now)
        if self._answering(server) < _ANSWERING and gone < _PATIENCE:
            return CheckRunHealthResult(WorkerStatus.RUNNING, msg="its process is gone, and so is its code server")
        del self._gone_since[run.run_id]
        return CheckRunHealthResult(WorkerStatus.NOT_FOUND, msg=f"its process {started[0]} is gone")

    def _started(self, run: DagsterRun) -> tuple[int, float] | None:
        """The pid and time of the run's own report."""
        for entry in self._instance.all_logs(run.run_id, of_type=DagsterEventType.ENGINE_EVENT):
            event = entry.dagster_event
            pid = event.engine_event_data.metadata.get("pid") if event is not None else None
            if pid is not None and str(pid.value).isdecimal():
                return int(str(pid.value)), entry.timestamp
        return None

    def _answering(self, server: Mapping[str, Any]) -> float:
        """For how many seconds the code server has answered, as far as was seen."""
        name = str(server)
        try:
            DagsterGrpcClient(**server).ping("")
        except DagsterUserCodeUnreachableError:
            self._answering_since.pop(name, None)
            return 0.0
        now = time.monotonic()
        return now - self._answering_since.setdefault(name, now)


def _lives(pid: int, at: float) -> bool:
    """Whether the process that had this pid at that time still runs: its pid may have been given out again."""
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and process.create_time() <= at + _CLOCK
    except psutil.NoSuchProcess:
        return False
