"""The processes as they run in production, apart from one another, driven over GraphQL, with the worst done to them."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

import psutil
import psycopg
import pytest

from cell_engine.store.collections import find_collection
from cell_engine.store.database import Connection
from cell_engine.store.models import broken_rules
from cell_engine.store.reading import status_counts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ROWS = 40
COLUMNS = ("summary", "audience", "licence_family", "words")


def until(what: Callable[[], Any], seconds: float = 90) -> Any:
    """The first true answer; raises after `seconds`. While the webserver starts there is none."""
    deadline = time.monotonic() + seconds
    while True:
        found = None
        with suppress(URLError, OSError, KeyError, IndexError):
            found = what()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.2)


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

    def start(self, name: str, *command: str) -> None:
        environment = os.environ | {
            "AUTOFILL_HOME": str(self.home),
            "AUTOFILL_DATABASE_URL": self.database,
            "OPENAI_BASE_URL": f"http://127.0.0.1:{self.model}/v1",
            "OPENAI_API_KEY": "unused",
        }
        with (self.home / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

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
        """Without a worker every dispatch stays open."""
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

    def ask(self, query: str, **variables: object) -> Any:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = Request(
            f"http://127.0.0.1:{self.port}/graphql", data=body, headers={"Content-Type": "application/json"}
        )
        with build_opener(ProxyHandler({})).open(request, timeout=90) as response:
            [answer] = json.load(response)["data"].values()
        return answer

    def runs(self) -> list[dict[str, Any]]:
        """Those that fill, and not those of checks on the hour; newest first, tags as a mapping."""
        chosen = '(limit: 10, filter: {pipelineName: "demo__packages"})'
        found = self.ask(
            f"{{ runsOrError{chosen} {{ ... on Runs {{ results {{ runId status tags {{ key value }} }} }} }} }}"
        )
        return [one | {"tags": {tag["key"]: tag["value"] for tag in one["tags"]}} for one in found["results"]]

    def latest(self, status: str, *, noted: bool = False) -> dict[str, Any]:
        """The newest run, once it has that status (and, `noted`, its dispatch)."""

        def look() -> dict[str, Any] | None:
            newest = self.runs()[0]
            if newest["status"] != status or (noted and not is_noted(newest)):
                return None
            return newest

        found: dict[str, Any] = until(look)
        return found

    def partitions(self) -> list[str]:
        node = 'assetNodeOrError(assetKey: {path: ["demo", "packages", "words"]})'
        keys: list[str] = self.ask(f"{{ {node} {{ ... on AssetNode {{ partitionKeys }} }} }}")["partitionKeys"]
        return keys

    def launch(self, *, force: bool) -> None:
        first, *_, last = [*self.partitions(), self.partitions()[-1]]
        parameters = {
            "selector": {
                "repositoryName": "__repository__",
                "repositoryLocationName": "autofill",
                "pipelineName": "demo__packages",
                "assetSelection": [{"path": ["demo", "packages", name]} for name in COLUMNS],
            },
            "mode": "default",
            "runConfigData": {"ops": {"fill_demo__packages": {"config": {"force": force}}}},
            "executionMetadata": {
                "tags": [
                    {"key": "dagster/asset_partition_range_start", "value": first},
                    {"key": "dagster/asset_partition_range_end", "value": last},
                ]
            },
        }
        query = "mutation($it: ExecutionParams!) { launchPipelineExecution(executionParams: $it) { __typename } }"
        assert self.ask(query, it=parameters)["__typename"] == "LaunchRunSuccess"

    def repeat(self, run: str) -> None:
        query = "mutation($it: ReexecutionParams!) { launchRunReexecution(reexecutionParams: $it) { __typename } }"
        answer = self.ask(query, it={"parentRunId": run, "strategy": "ALL_STEPS"})
        assert answer["__typename"] == "LaunchRunSuccess"

    def run_process(self) -> psutil.Process:
        """The process of the run that is under way."""
        [found] = [one for one in self.session("code-server") if any("spawn_main" in part for part in one.cmdline())]
        return found


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


def is_noted(run: dict[str, Any]) -> bool:
    return bool(run["tags"].get("autofill/dispatched_by") == run["runId"])


def dispatch_of(run: dict[str, Any]) -> int:
    return int(run["tags"]["autofill/dispatch"])


@pytest.fixture
def live(database: str, tmp_path: Path) -> Iterator[Live]:
    live = Live(tmp_path, database)
    try:
        live.start("model", "cell_engine.offline_model", "--port", str(live.model))
        for role in ("code-server", "daemon", "webserver"):
            live.serve(role)
        live.start("janitor", "cell_engine.cli", "janitor", f"--health-port={live.janitor}")
        yield live
    finally:
        live.stop()
        with psycopg.connect(database, autocommit=True) as connection:
            name = f"{connection.info.dbname}_dagster"
            connection.execute(f'drop database if exists "{name}" with (force)'.encode())


def run_dispatches(connection: Connection) -> list[int]:
    found = connection.execute("select id from autofill.dispatch where reason = 'run' order by id").fetchall()
    return [one.id for one in found]


def test_files_runs_kills_and_re_executions(live: Live, connection: Connection) -> None:
    inbox = live.home / "inbox" / "demo" / "packages"
    inbox.mkdir(parents=True)
    lines = [f'package-{number},1.0,MIT,"Package {number} parses dates. It is fast."' for number in range(ROWS)]
    (inbox / "packages.csv").write_text("\n".join(["name,version,licence,readme", *lines]) + "\n")
    (inbox / "bad.csv").write_bytes(b"name\n\xe9t\xe9\n")

    # The file becomes a run. Its process is killed, its retry takes the dispatch over.
    killed = live.latest("STARTED", noted=True)
    live.run_process().kill()
    until(lambda: len(live.runs()) == 2)
    live.latest("STARTED", noted=True)
    ports = live.work(("llm",), ("llm",), ("fetch",), ("function",))
    retry = live.latest("SUCCESS")
    pools = {name: calls_by(port) for name, port in ports.items()}
    assert health(live.janitor, "ready") == health(live.janitor, "live") == "ok\n"
    live.rest()
    # Each pool has computed its own, all together everything once: two llm columns, and one of a function.
    assert {job_type for name in ("worker 0", "worker 1") for job_type in pools[name]} <= {"llm"}
    assert sum((pools["worker 0"] + pools["worker 1"]).values()) == 3 * ROWS
    assert (pools["worker 2"], pools["worker 3"]) == (Counter(), Counter(function=ROWS))
    assert retry["tags"]["dagster/root_run_id"] == killed["runId"]
    assert run_dispatches(connection) == [dispatch_of(killed)] == [dispatch_of(retry)]
    collection = find_collection(connection, "demo/packages")
    assert {status for by in status_counts(connection, collection.id).values() for status in by} == {"ready"}
    events = live.ask(
        '{ assetOrError(assetKey: {path: ["demo", "packages", "summary"]}) '
        "{ ... on Asset { assetMaterializations { partition runId } } } }"
    )["assetMaterializations"]
    assert [event["runId"] for event in events] == [retry["runId"]]
    observations = live.ask(
        '{ assetOrError(assetKey: {path: ["demo", "packages", "rows"]}) '
        "{ ... on Asset { assetObservations { description } } } }"
    )["assetObservations"]
    assert [observation["description"].split(":")[0] for observation in observations] == ["bad.csv was not loaded"]

    # A code location reloaded meanwhile interrupts no run; terminating one does, and leaves the dispatch alone.
    live.launch(force=True)
    running = live.latest("STARTED", noted=True)
    query = 'mutation { reloadRepositoryLocation(repositoryLocationName: "autofill") { __typename } }'
    assert live.ask(query)["__typename"] == "WorkspaceLocationEntry"
    assert live.runs()[0]["status"] == "STARTED"
    answer = live.ask("mutation($run: String!) { terminateRun(runId: $run) { __typename } }", run=running["runId"])
    assert answer["__typename"] == "TerminateRunSuccess"
    live.latest("CANCELED")
    live.repeat(running["runId"])
    live.latest("STARTED", noted=True)
    live.work()
    again = live.latest("SUCCESS")
    live.rest()
    assert dispatch_of(again) == dispatch_of(running)

    # The code server goes down with its run, whose end nobody reports: the daemon finds it gone.
    live.launch(force=True)
    lost = live.latest("STARTED", noted=True)
    live.kill("code-server")
    live.serve("code-server")
    until(lambda: live.runs()[0]["runId"] != lost["runId"])
    live.latest("STARTED", noted=True)
    live.work()
    retry = live.latest("SUCCESS")
    assert retry["tags"]["dagster/root_run_id"] == lost["runId"]
    assert dispatch_of(retry) == dispatch_of(lost)
    assert len(run_dispatches(connection)) == 3
    assert broken_rules(connection) == {}
