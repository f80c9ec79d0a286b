"""Three workers before an endpoint that enforces a limit: how much of it they use, and whether they ever break it.

Used is what the endpoint has in flight, sampled there; `taken` is what the workers say they have in flight, which on a
busy machine is more: a call takes time on both sides of its way.
"""

import statistics
import time
from collections.abc import Iterator

from cell_engine.embedded.server import Server
from cell_engine.shares import ProviderKey
from cell_engine.specs.compile import compile_text
from cell_engine.store.applying import apply
from cell_engine.store.database import Connection, connect
from cell_engine.store.demands import RangeScope, dispatch
from cell_engine.store.providers import list_providers, set_limits
from tests.benchmarks.bench import Figure, Sheet, fill, migrated, note, wait_for_end, workers
from tests.benchmarks.endpoint import Endpoint, endpoint

CONCURRENCY, LATENCY = 60, 0.3
ROWS, WORKERS = 4_000, 3
FROM, TO = 0.2, 0.9  # of the rows: in between all workers are at it
SPEC = """
namespace: bench
name: limited
cap: 1000
columns:
  - {name: a, type: text}
  - {name: b, type: text, kind: llm, deps: [a], llm: {model: offline, prompt: "Summarise in a few words. {{a}}"}}
"""


def figures(server: Server) -> Iterator[Figure]:
    url = migrated(server, "providers")
    with connect(url, application="benchmark") as connection, endpoint(latency=LATENCY) as served:
        served.switch(concurrency=CONCURRENCY)
        set_limits(connection, ProviderKey(served.url + "/", "offline"), {"concurrency": CONCURRENCY})
        applied = apply(connection, compile_text(SPEC), actor="benchmark")
        sheet = Sheet(applied.collection.id, applied.version)
        fill(connection, sheet, ROWS)
        with workers(url, pools=("llm",) * WORKERS):
            asked = dispatch(
                connection, sheet.id, RangeScope(((1, ROWS),)), columns=sheet.computed, reason="load", actor="benchmark"
            )
            in_flight, taken = _sampled(served, connection)
            wait_for_end(connection, [asked])
        fates = served.stats()["by_fate"]
    used = statistics.mean(in_flight) / CONCURRENCY
    note(f"of {CONCURRENCY} places {used:.3f} in use; {fates}")
    more = {"taken": round(statistics.mean(taken) / CONCURRENCY, 3), "times broken": fates.get("over_limit", 0)}
    yield Figure("an endpoint's limit, used by three workers", [used], "ratio", 0.95, more=more)


def _sampled(served: Endpoint, connection: Connection) -> tuple[list[int], list[int]]:
    in_flight: list[int] = []
    taken: list[int] = []
    while (stats := served.stats())["by_fate"].get("answered", 0) < TO * ROWS:
        if stats["by_fate"].get("answered", 0) >= FROM * ROWS:
            in_flight.append(stats["in_flight"])
            taken += [one.in_flight for one in list_providers(connection)]
        time.sleep(0.05)
    return in_flight, taken
