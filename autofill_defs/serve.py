"""`python -m autofill_defs.serve code-server|daemon|webserver`: prepares the instance, and becomes that process.

One code server is shared by the webserver and the daemon, over a socket; each would start its own otherwise.
"""

import argparse
import os
import socket
import sys
from pathlib import Path

from autofill_defs.instance import LOCATION, MODULE, environment, prepare_instance, socket_path
from cell_engine.errors import AutofillError
from cell_engine.parts import service_url
from cell_engine.settings import Settings, get_settings

LOOPBACK = "127.0.0.1"


def command(role: str, settings: Settings, host: str = LOOPBACK, port: int = 3000) -> list[str]:
    """The command line of one process; `host` and `port` are the webserver's."""
    workspace = str(settings.home / "dagster" / "workspace.yaml")
    match role:
        case "code-server":
            # The proxy that reloads: `dagster api grpc` would do with less, and could not.
            serve = ["-m", "dagster", "code-server", "start", "--socket", str(socket_path(settings))]
            serve += ["--module-name", MODULE, "--location-name", LOCATION, "--log-level", "warning"]
            return [sys.executable, *serve]
        case "daemon":
            return [sys.executable, "-m", "dagster._daemon", "run", "-w", workspace, "--log-level", "warning"]
        case _:
            address = ["-h", host, "-p", str(port)]
            # A pooled connection that the database dropped in a restart would each fail one request.
            quiet = ["--db-pool-recycle", "5", "--dagster-log-level", "warning", "--log-level", "warning"]
            return [sys.executable, "-m", "dagster_webserver", "-w", workspace, *address, *quiet]


def main() -> None:
    parser = argparse.ArgumentParser(prog="autofill_defs.serve", description=__doc__)
    parser.add_argument("role", choices=["code-server", "daemon", "webserver"])
    parser.add_argument("--host", default=LOOPBACK, help="where the webserver listens")
    parser.add_argument("--port", type=int, default=3000, help="the webserver's port")
    chosen = parser.parse_args()
    settings, url = get_settings(), service_url()
    if chosen.role == "code-server":
        _refuse_a_second(socket_path(settings))
    prepare_instance(settings, url)
    line = command(chosen.role, settings, chosen.host, chosen.port)
    os.execve(line[0], line, os.environ | environment(settings, url))  # noqa: S606 (it is to become that process)


def _refuse_a_second(path: Path) -> None:
    """A code server would take the socket of one that runs, and leave none behind when it ends."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(os.fspath(path))
        except OSError:
            return
    raise AutofillError(
        f"A code server listens on {path} already, and one is enough. Stop it (`autofill stop`, if `autofill up` "
        "started it), or set AUTOFILL_HOME to another folder."
    )


if __name__ == "__main__":
    try:
        main()
    except AutofillError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
