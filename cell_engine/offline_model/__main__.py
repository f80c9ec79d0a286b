"""``python -m cell_engine.offline_model``: the offline model as a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from cell_engine.offline_model.server import OfflineModel
from cell_engine.offline_model.switches import Switches


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code: 0, 1 if the port is taken, 2 for wrong switches."""
    parser = argparse.ArgumentParser(
        prog="python -m cell_engine.offline_model",
        description="A loopback stand-in for an LLM that needs no key: it extracts and counts words. Not an LLM.",
    )
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one (default)")
    parser.add_argument("--port-file", type=Path, help="where to write the port once the server listens")
    for name, setting in Switches.model_fields.items():
        option = "--" + name.replace("_", "-")
        if setting.default is False:
            parser.add_argument(option, action="store_true", help=setting.description)
            continue
        parser.add_argument(option, type=type(setting.default), default=setting.default, help=setting.description)
    options = vars(parser.parse_args(arguments))
    port: int = options.pop("port")
    port_file: Path | None = options.pop("port_file")
    try:
        switches = Switches.model_validate(options)
    except ValidationError as error:
        parser.error("; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()))
    try:
        asyncio.run(_serve(OfflineModel(switches, port=port), port_file))
        if port_file is not None:
            port_file.unlink(missing_ok=True)
    except OSError as error:
        sys.stderr.write(f"The offline model cannot listen on 127.0.0.1:{port}: {error}. Choose another --port.\n")
        return 1
    return 0


async def _serve(model: OfflineModel, port_file: Path | None) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stopped.set)
    async with model:
        if port_file is not None:
            _write_port(port_file, model.port)
        sys.stdout.write(f"offline model (a stand-in that needs no key, not an LLM) on {model.base_url}\n")
        sys.stdout.flush()
        await stopped.wait()


def _write_port(port_file: Path, port: int) -> None:
    """Write and rename, so that who waits for the file never reads half of it."""
    unfinished = port_file.with_name(f"{port_file.name}.{os.getpid()}")
    unfinished.write_text(f"{port}\n", encoding="ascii")
    unfinished.replace(port_file)


if __name__ == "__main__":
    sys.exit(main())
