"""`python -m tests.benchmarks` prints the figures, one JSON line each; progress goes to stderr.

Each figure is the median of three runs, and a ratio is of two rates of the same run, so that a slow machine or a slow
moment falls on both. `holds` says whether the target is met here; the exit code does not.
"""

from tests.benchmarks import (
    arrivals,
    dagster_runs,
    demands,
    duplicates,
    fair_shares,
    faults,
    llm,
    providers,
    scale,
    sizes,
    throughput,
)
from tests.benchmarks.bench import own_server

if __name__ == "__main__":
    with own_server() as server:
        for area in (
            throughput,
            llm,
            faults,
            demands,
            providers,
            duplicates,
            scale,
            sizes,
            fair_shares,
            dagster_runs,
            arrivals,
        ):
            for figure in area.figures(server):
                figure.print()
