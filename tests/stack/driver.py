"""A program that runs a stack of services made of Python one-liners: `python -m tests.stack.driver [NAME=CODE…]`.

Prints what the stack says, then "up", and waits to be stopped; exit code 130 if that comes before it is up.
"""

import os
import sys

from cell_engine.errors import AutofillError
from cell_engine.settings import get_settings
from cell_engine.stack.running import Stack, StopRequested
from cell_engine.stack.service import Service


def say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    services = [
        Service(name, (sys.executable, "-c", code), os.environ, tier, grace=2.0)
        for tier, (name, _, code) in enumerate(argument.partition("=") for argument in sys.argv[1:])
    ]
    try:
        with Stack(get_settings(), say) as stack:
            stack.start(services, {"somewhere": "http://127.0.0.1:1"})
            stack.wait_until_ready()
            say("up")
            stack.wait()
    except StopRequested:
        return 130
    except AutofillError as error:
        say(f"ERROR {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
