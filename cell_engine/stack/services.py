"""Which services a stack is made of, and what each is told."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

import yaml

from cell_engine.settings import Settings
from cell_engine.stack.ports import LOOPBACK, accepts, remembered_port
from cell_engine.stack.service import Service, at_once

_MODEL_TIER, _ENGINE_TIER, _DAGSTER_TIER = 0, 1, 2
_OPENAI = ("OPENAI_API_KEY", "OPENAI_BASE_URL")
_DRAIN = 20.0  # seconds for calls in flight: at a desk somebody waits for the end
_MARGIN = 5.0


@dataclass(frozen=True)
class Plan:
    """The services to start, the addresses (name → URL) at which people find them, and what else to tell them."""

    services: tuple[Service, ...]
    urls: dict[str, str]
    notes: tuple[str, ...] = ()


def needs_offline_model(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether no API was chosen, so that the offline model has to stand in."""
    return not any(environment.get(name) for name in _OPENAI)


def plan_services(
    settings: Settings, url: str, *, dagster: bool = True, of_worker: Mapping[str, str] | None = None
) -> Plan:
    """All services of one machine on the database at `url`, or those without Dagster. Ports are chosen now.

    `of_worker` are variables of the worker's environment alone.
    """
    # Keys are for the worker alone: nothing else calls a model. Where other databases are is for who loads from them:
    # the code server's runs.
    shared = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "AUTOFILL_SOURCE_"))}
    sources = {name: value for name, value in os.environ.items() if name.startswith("AUTOFILL_SOURCE_")}
    shared |= {"AUTOFILL_HOME": str(settings.home), "AUTOFILL_DATABASE_URL": url, "PYTHONUNBUFFERED": "1"}
    model: list[Service] = []
    urls: dict[str, str] = {}
    keys = {name: value for name, value in os.environ.items() if name.startswith("OPENAI_")}
    if needs_offline_model():
        port = remembered_port(settings.home, "offline model")
        address = f"http://{LOOPBACK}:{port}/v1"
        keys = {"OPENAI_BASE_URL": address, "OPENAI_API_KEY": "offline-model-needs-none"}
        urls["offline model"] = address
        model.append(
            Service(
                "offline model",
                _python("cell_engine.offline_model", "--port", str(port)),
                shared,
                _MODEL_TIER,
                ready=lambda _pid: accepts(port),
            )
        )
    health = {name: remembered_port(settings.home, f"{name} health") for name in ("worker", "janitor")}
    urls |= {f"{name} metrics": f"http://{LOOPBACK}:{port}/metrics" for name, port in health.items()}
    engine = [
        Service(
            "worker",
            _python("cell_engine.cli", "worker", f"--drain={_DRAIN}", *_health(health["worker"])),
            shared | keys | dict(of_worker or {}),
            _ENGINE_TIER,
            ready=_answers(f"http://{LOOPBACK}:{health['worker']}/ready"),
            after=tuple(service.name for service in model),
            grace=_DRAIN + _MARGIN,
        ),
        Service(
            "janitor",
            _python("cell_engine.cli", "janitor", *_health(health["janitor"])),
            shared,
            _ENGINE_TIER,
            ready=_answers(f"http://{LOOPBACK}:{health['janitor']}/ready"),
        ),
    ]
    if not dagster:
        return Plan((*model, *engine), urls)
    if find_spec("dagster_webserver") is None:
        note = "Dagster is not installed, so there is no orchestration: pip install 'collection-autofill[dagster]'"
        return Plan((*model, *engine), urls, (note,))
    port = remembered_port(settings.home, "Dagster")
    urls["Dagster"] = f"http://{LOOPBACK}:{port}"
    return Plan((*model, *engine, *_dagster(settings, shared, sources, port, urls["Dagster"])), urls)


def _dagster(
    settings: Settings, shared: Mapping[str, str], sources: Mapping[str, str], port: int, url: str
) -> list[Service]:
    def service(role: str, *arguments: str, after: tuple[str, ...], ready: Callable[[int], bool] = at_once) -> Service:
        command = _python("autofill_defs.serve", role, *arguments)
        name = f"Dagster {role.replace('-', ' ')}"
        environment = {**shared, **sources} if role == "code-server" else dict(shared)
        return Service(name, command, environment, _DAGSTER_TIER, ready, after, stop_signal=signal.SIGINT)

    code_server = service("code-server", after=(), ready=_listens(settings.home / "dagster" / "workspace.yaml"))
    first = (code_server.name,)
    return [
        code_server,
        service("daemon", after=first),
        service("webserver", "--port", str(port), after=first, ready=_answers(f"{url}/server_info")),
    ]


def _python(module: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", module, *arguments)


def _health(port: int) -> tuple[str, ...]:
    return (f"--health-port={port}", f"--health-address={LOOPBACK}")


def _listens(workspace: Path) -> Callable[[int], bool]:
    """Ready when the code server, of which Dagster's workspace file says where it listens, has loaded the code."""

    def ready(_pid: int) -> bool:
        try:
            path = yaml.safe_load(workspace.read_text(encoding="utf-8"))["load_from"][0]["grpc_server"]["socket"]
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(path)
                return True
        except (OSError, LookupError, TypeError):
            return False

    return ready


def _answers(url: str) -> Callable[[int], bool]:
    """Ready when a GET of `url` is answered with 200."""
    opener = build_opener(ProxyHandler({}))  # the environment's proxy is for the world outside

    def ready(_pid: int) -> bool:
        try:
            with opener.open(url, timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, URLError):
            return False

    return ready
