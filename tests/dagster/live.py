"""The processes as they run in production, each apart from the others, over GraphQL, with a copy of the definitions.

Time passes in them as it does for people: a look of a sensor every 5 s, of the daemon at backfills every 30 s.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

import psutil

import autofill_defs
from tests.embedded.helpers import PROJECT

LOCATION = {"repositoryName": "__repository__", "repositoryLocationName": "autofill"}


def until(what: Callable[[], Any], seconds: float = 180) -> Any:
    """The first true answer; raises after `seconds`. While the webserver starts, or the database, there is none."""
    deadline = time.monotonic() + seconds
    while True:
        found = None
        with suppress(URLError, OSError, LookupError):
            found = what()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.4)  # each look costs the webserver, and all of them share the cores


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Live:
    """Dagster's three processes, workers, a janitor and the offline model, each the leader of a session."""

    home: Path
    database: str
    port: int = field(default_factory=free_port)
    model: int = field(default_factory=free_port)
    janitor: int = field(default_factory=free_port)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def code(self) -> Path:
        """The code location's folder."""
        return self.home / "code"

    @property
    def collection(self) -> Path:
        """The YAML, for the test to edit."""
        return self.code / "autofill_defs" / "collections" / "packages.yaml"

    @property
    def environment(self) -> dict[str, str]:
        return os.environ | {
            "AUTOFILL_HOME": str(self.home),
            "AUTOFILL_DATABASE_URL": self.database,
            "OPENAI_BASE_URL": f"http://127.0.0.1:{self.model}/v1",
            "OPENAI_API_KEY": "unused",
            "PYTHONPATH": f"{self.code}{os.pathsep}{PROJECT}",
        }

    def start(self, name: str, *command: str) -> None:
        with (self.home / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", *command],
                env=self.environment,
                cwd=self.code,  # else the project's own definitions come first
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def autofill(self, *arguments: str) -> str:
        """What a command of a person's prints."""
        command = [sys.executable, "-m", "cell_engine.cli", *arguments]
        done = subprocess.run(
            command, env=self.environment, cwd=self.code, capture_output=True, text=True, timeout=90, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def serve(self, role: str) -> None:
        self.start(role, "autofill_defs.serve", role, *(("--port", str(self.port)) if role == "webserver" else ()))

    def session(self, name: str) -> list[psutil.Process]:
        leader = self.processes[name].pid
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def work(self, *pools: tuple[str, ...]) -> dict[str, int]:
        """A worker for each pool of job types, one for all without; comes to the ports of their health, by name."""
        ports = {f"worker {number}": free_port() for number in range(len(pools) or 1)}
        for (name, port), pool in zip(ports.items(), pools or ((),), strict=True):
            served = [f"--job-type={job_type}" for job_type in pool]
            self.start(name, "cell_engine.cli", "worker", f"--health-port={port}", *served)
        return ports

    def rest(self) -> None:
        """Workers drain; without one every dispatch stays open."""
        workers = [one for name, one in self.processes.items() if name.startswith("worker")]
        for one in workers:
            one.terminate()
        for one in workers:
            assert one.wait(30) == 0
        self.processes = {name: one for name, one in self.processes.items() if one not in workers}

    def kill(self, name: str) -> None:
        """All of it at once, as a machine that loses power."""
        for process in self.session(name):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.processes[name].wait(20)

    def stop(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for name, process in self.processes.items():
            with suppress(subprocess.TimeoutExpired):
                process.wait(15)
            self.kill(name)

    def run_process(self) -> psutil.Process:
        """The process of the run that is under way."""
        [found] = [one for one in self.session("code-server") if any("spawn_main" in part for part in one.cmdline())]
        return found

    def ask(self, query: str, **variables: object) -> Any:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = Request(
            f"http://127.0.0.1:{self.port}/graphql", data=body, headers={"Content-Type": "application/json"}
        )
        try:
            with build_opener(ProxyHandler({})).open(request, timeout=90) as response:
                [answer] = json.load(response)["data"].values()
        except HTTPError as error:
            assert error.code >= 500, error.read()  # a mistake in the query; the others pass
            raise
        return answer

    def runs(self, job: str) -> list[dict[str, Any]]:
        """Newest first, tags as a mapping."""
        return self._runs({"pipelineName": job})

    def runs_of(self, backfill_id: str) -> list[dict[str, Any]]:
        """Of a backfill, retries among them; newest first."""
        return self._runs({"tags": [{"key": "dagster/backfill", "value": backfill_id}]})

    def _runs(self, wanted: object) -> list[dict[str, Any]]:
        found = self.ask(
            "query($filter: RunsFilter!) { runsOrError(limit: 20, filter: $filter) "
            "{ ... on Runs { results { runId status tags { key value } } } } }",
            filter=wanted,
        )
        return [one | {"tags": {tag["key"]: tag["value"] for tag in one["tags"]}} for one in found["results"]]

    def run(self, run_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask(
            "query($id: ID!) { runOrError(runId: $id) { ... on Run { runId status tags { key value } } } }", id=run_id
        )
        return found | {"tags": {tag["key"]: tag["value"] for tag in found["tags"]}}

    def reaches(self, run_id: str, status: str) -> dict[str, Any]:
        """The run, once it has that status; STARTED: and its dispatch."""

        def look() -> dict[str, Any] | None:
            run = self.run(run_id)
            assert run["status"] not in {"FAILURE", "CANCELED", "SUCCESS"} - {status}, run
            return run if run["status"] == status and (status != "STARTED" or is_noted(run)) else None

        found: dict[str, Any] = until(look)
        return found

    def assets(self) -> set[tuple[str, ...]]:
        return {tuple(one["assetKey"]["path"]) for one in self.ask("{ assetNodes { assetKey { path } } }")}

    def partitions(self, *key: str) -> list[str]:
        query = "query($it: AssetKeyInput!) { assetNodeOrError(assetKey: $it) { ... on AssetNode { partitionKeys } } }"
        keys: list[str] = self.ask(query, it={"path": key})["partitionKeys"]
        return keys

    def materializations(self, *key: str) -> list[dict[str, Any]]:
        """Newest first: partition, runId (empty without one), and metadata that are texts and numbers."""
        events = self.ask(
            "query($key: AssetKeyInput!) { assetOrError(assetKey: $key) { ... on Asset { assetMaterializations "
            "{ partition runId metadataEntries { label ... on TextMetadataEntry { text } "
            "... on IntMetadataEntry { intValue } } } } } }",
            key={"path": key},
        )["assetMaterializations"]
        found = []
        for event in events:
            entries = {one["label"]: one.get("text", one.get("intValue")) for one in event["metadataEntries"]}
            found.append({"partition": event["partition"], "run": event["runId"], "metadata": entries})
        return found

    def launch(self, job: str, config: object) -> str:
        """The id of a new run."""
        parameters = {
            "selector": LOCATION | {"pipelineName": job},
            "mode": "default",
            "runConfigData": {"ops": {f"fill_{job}": {"config": config}}},
        }
        query = (
            "mutation($it: ExecutionParams!) { launchPipelineExecution(executionParams: $it) "
            "{ __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"
        )
        answer = self.ask(query, it=parameters)
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return str(answer["run"]["runId"])

    def repeat(self, run_id: str) -> str:
        """The id of the run that re-executes this one."""
        query = (
            "mutation($it: ReexecutionParams!) { launchRunReexecution(reexecutionParams: $it) "
            "{ __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"
        )
        answer = self.ask(query, it={"parentRunId": run_id, "strategy": "ALL_STEPS"})
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return str(answer["run"]["runId"])

    def terminate(self, run_id: str) -> None:
        answer = self.ask("mutation($run: String!) { terminateRun(runId: $run) { __typename } }", run=run_id)
        assert answer["__typename"] == "TerminateRunSuccess"

    def reload(self) -> None:
        query = 'mutation { reloadRepositoryLocation(repositoryLocationName: "autofill") { __typename } }'
        assert self.ask(query)["__typename"] == "WorkspaceLocationEntry"

    def backfill(self, keys: Sequence[Sequence[str]], partitions: Sequence[str]) -> str:
        """The id of a new backfill."""
        parameters = {"assetSelection": [{"path": list(key)} for key in keys], "partitionNames": list(partitions)}
        query = (
            "mutation($it: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $it) "
            "{ __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"
        )
        answer = self.ask(query, it=parameters)
        assert answer["__typename"] == "LaunchBackfillSuccess", answer
        return str(answer["backfillId"])

    def backfill_status(self, backfill_id: str) -> str:
        query = (
            "query($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { status } } }"
        )
        return str(self.ask(query, id=backfill_id)["status"])

    def ticks(self, schedule: str) -> list[dict[str, Any]]:
        """Newest first: status and runIds."""
        found: list[dict[str, Any]] = self.ask(
            "query($it: ScheduleSelector!) { scheduleOrError(scheduleSelector: $it) "
            "{ ... on Schedule { scheduleState { ticks(limit: 10) { status runIds } } } } }",
            it=LOCATION | {"scheduleName": schedule},
        )["scheduleState"]["ticks"]
        return found


def is_noted(run: dict[str, Any]) -> bool:
    return bool(run["tags"].get("autofill/dispatched_by") == run["runId"])


def dispatch_of(run: dict[str, Any]) -> int:
    return int(run["tags"]["autofill/dispatch"])


def health(port: int, what: str) -> str:
    """What a worker or janitor answers there; raises while it is not ready."""
    with build_opener(ProxyHandler({})).open(f"http://127.0.0.1:{port}/{what}", timeout=10) as answer:
        return str(answer.read().decode())


def calls_by(port: int) -> Counter[str]:
    """Calls that a worker has finalized, by job type."""
    assert health(port, "ready") == "ok\n"
    found: Counter[str] = Counter()
    lines = re.findall(r'^autofill_worker_calls_total\{job_type="(\w+)",.*\} (\S+)$', health(port, "metrics"), re.M)
    for job_type, number in lines:
        found[job_type] += int(float(number))
    return found


@contextmanager
def running(home: Path, database: str, collection: str) -> Iterator[Live]:
    """All but the workers, over a copy of the definitions with this collection (YAML) as its only one."""
    live = Live(home, database)
    copied = live.code / "autofill_defs"
    shutil.copytree(Path(autofill_defs.__file__).parent, copied, ignore=shutil.ignore_patterns("__pycache__"))
    live.collection.write_text(collection)
    try:
        live.start("model", "cell_engine.offline_model", "--port", str(live.model))
        for role in ("code-server", "daemon", "webserver"):
            live.serve(role)
        live.start("janitor", "cell_engine.cli", "janitor", f"--health-port={live.janitor}")
        yield live
    finally:
        live.stop()
