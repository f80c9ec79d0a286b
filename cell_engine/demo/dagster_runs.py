"""What Dagster says of its runs, asked over HTTP: the engine does not know Dagster."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from urllib.request import ProxyHandler, Request, build_opener

_QUERY = """
query Runs($job: String!) {
  runsOrError(filter: {pipelineName: $job}, limit: 10) {
    ... on Runs { results { runId status } }
    ... on PythonError { message }
  }
}
"""
_OVER = frozenset({"FAILURE", "CANCELED"})
_RETRY_SECONDS = 30.0  # within which Dagster launches a run that died again
_LOOK_SECONDS = 0.5
_PATIENCE = 120.0  # seconds for a run to report what has been computed already, or for a failed one's retry


@dataclass(frozen=True)
class Run:
    id: str
    status: str
    url: str


def latest_run(dagster: str, job: str) -> Run | None:
    """The newest run of a job, at the webserver's address `dagster`. Raises OSError, ValueError where that fails."""
    body = json.dumps({"query": _QUERY, "variables": {"job": job}}).encode()
    request = Request(f"{dagster}/graphql", data=body, headers={"Content-Type": "application/json"})  # noqa: S310
    with build_opener(ProxyHandler({})).open(request, timeout=15) as response:
        answer = json.load(response)
    results = ((answer.get("data") or {}).get("runsOrError") or {}).get("results") or []
    if not results:
        return None
    return Run(results[0]["runId"], results[0]["status"], f"{dagster}/runs/{results[0]['runId']}")


def wait_for_success(dagster: str, job: str, pause: Callable[[float], None]) -> tuple[Run | None, str | None]:
    """The newest run of the job once that has succeeded; or, after a while, what is wrong with it."""
    deadline = time.monotonic() + _PATIENCE
    over: tuple[str, float] | None = None  # a run that has ended badly, and since when
    while True:
        try:
            run = latest_run(dagster, job)
        except (OSError, ValueError) as error:
            run, problem = None, f"Dagster does not answer: {error}"
        else:
            problem = f"Dagster has no run of {job}" if run is None else f"the run {run.url} is {run.status}"
        if run is not None and run.status == "SUCCESS":
            return run, None
        if run is None or run.status not in _OVER:
            over = None
        elif over is None or over[0] != run.id:
            over = (run.id, time.monotonic())
        if time.monotonic() > deadline or (over is not None and time.monotonic() - over[1] > _RETRY_SECONDS):
            return run, problem
        pause(_LOOK_SECONDS)
