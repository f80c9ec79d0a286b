"""Whether a process lives and is ready, and its figures for Prometheus, over HTTP: /live, /ready, /metrics.

In a thread of its own: it answers also where what it tells of hangs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import CollectorRegistry

from cell_engine.errors import AutofillError

_TEXT = "text/plain; charset=utf-8"
_PATIENCE = 10.0  # seconds: for whoever connects and says nothing


class Watched(Protocol):
    """What a process tells of itself; asked from another thread."""

    def collect(self) -> Iterable[Metric]: ...

    def sick(self) -> str | None:
        """Why it should be restarted, if it should."""

    def unready(self) -> str | None:
        """Why it does no work now, if it does none."""


class HealthPortError(AutofillError):
    """The port of the health endpoint cannot be listened on."""

    exit_code = 2


@contextmanager
def serve_health(watched: Watched, address: str, port: int) -> Iterator[int]:
    """Answer on address:port while the block runs; comes to the port (0 takes any that is free).

    Raises HealthPortError. /live and /ready answer 200, or 503 with the reason.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(watched)

    class Handler(BaseHTTPRequestHandler):
        timeout = _PATIENCE
        server_version, sys_version = "autofill", ""

        def do_GET(self) -> None:
            match self.path.partition("?")[0]:
                case "/live":
                    self._tell(watched.sick())
                case "/ready":
                    self._tell(watched.sick() or watched.unready())
                case "/metrics":
                    self._answer(200, generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4)
                case _:
                    self._answer(404, b"there are /live, /ready and /metrics\n", _TEXT)

        def _tell(self, trouble: str | None) -> None:
            self._answer(200 if trouble is None else 503, f"{trouble or 'ok'}\n".encode(), _TEXT)

        def _answer(self, status: int, body: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """A probe every few seconds is no news."""

    try:
        server = ThreadingHTTPServer((address, port), Handler)
    except OSError as error:
        raise HealthPortError(
            f"Cannot listen on {address}:{port} for /live, /ready and /metrics ({error.strerror}): "
            "give another port by --health-port or AUTOFILL_HEALTH_PORT."
        ) from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="health", daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
