"""Ends what a killed `up` leaves behind: `python -m cell_engine.stack.guardian HOME`, with a pipe from `up` as stdin.

The pipe ends with `up`, however that ends. After an orderly end there is nothing left to do. The guardian inherits the
stack's lock, so that a new `up` waits for it to finish.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> int:
    home = Path(sys.argv[1])
    sys.stdin.buffer.read()
    if not (home / "stack.json").exists():
        return 0
    # Only now: until it is needed, the guardian is nothing but an interpreter that waits.
    from cell_engine.stack.stopping import clean_up

    clean_up(home, lambda line: print(line, flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
