"""`python produce.py URL ROWS FIRST OF SEED`: a person of tests/soak/upgrade.py, by the code of whatever release is on
the path. Acts until the end of its input, and then tells as JSON what may be shown."""

import json
import random
import sys
import threading

from cell_engine.store.database import connect
from tests.engine import make
from tests.soak import storm
from tests.soak.kills import SPEC

PAUSE = 0.2
"""Seconds between two actions, on average: what is asked for is to be done while others are being killed."""


def main(url: str, rows: int, first: int, of: int, seed: int) -> None:
    values = [{"a": f"{row}", "k": f"{row}"} for row in range(1, rows + 1)] if first == 1 else []
    with connect(url, application="person") as connection:
        made = make(connection, SPEC, rows=values)
    storm.PAUSE = PAUSE
    person = storm.Person(url, made, rows, first, of, random.Random(seed + first))
    enough = threading.Event()
    acting = threading.Thread(target=person.act, args=[enough])
    acting.start()
    sys.stdin.read()
    enough.set()
    acting.join()
    shown = [[*key, may_be] for key, may_be in person.shown.items()]
    forced = [[asked, rows.start, rows.stop, column] for asked, (rows, column) in person.forced.items()]
    json.dump({"shown": shown, "forced": forced, "actions": person.actions}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], *(int(number) for number in sys.argv[2:]))
