"""The offline model in a process of its own, as an endpoint that workers and plain loops call over HTTP."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2


class Endpoint:
    """Its address, what it has served, and its switches."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = httpx2.Client(base_url=url.removesuffix("/v1"), trust_env=False)

    def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = self._http.get("/stats").json()
        return found

    def forget(self) -> None:
        self._http.delete("/stats").raise_for_status()

    def switch(self, **switches: float) -> None:
        self._http.post("/switches", json=switches).raise_for_status()


@contextmanager
def endpoint(**switches: float) -> Iterator[Endpoint]:
    """Up, named by `OPENAI_BASE_URL` for this process and those it starts."""
    options = [f"--{name.replace('_', '-')}={value}" for name, value in switches.items()]
    with tempfile.TemporaryDirectory(prefix="autofill-endpoint-") as folder:
        port_file = Path(folder) / "port"
        command = [sys.executable, "-m", "cell_engine.offline_model", f"--port-file={port_file}", *options]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        before = {name: os.environ.get(name) for name in ("OPENAI_BASE_URL", "OPENAI_API_KEY")}
        try:
            deadline = time.monotonic() + 30
            while not port_file.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    sys.exit("the offline model did not come up")
                time.sleep(0.02)
            url = f"http://127.0.0.1:{port_file.read_text().strip()}/v1"
            os.environ |= {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "unused"}
            yield Endpoint(url)
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
