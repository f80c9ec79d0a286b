"""A worker's numbers as Prometheus reads them. Apart from `watch`: a worker whom nobody asks imports none of it."""

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from cell_engine.worker.watch import BOUNDS, Timing, Watch


def metrics_of(watch: Watch) -> Iterator[Metric]:
    yield CounterMetricFamily("autofill_worker_claimed_rows", "Rows claimed.", value=watch.claimed)
    yield CounterMetricFamily(
        "autofill_worker_results", "Results finalized: answers, errors, cells found current.", watch.stored_results
    )
    calls = CounterMetricFamily("autofill_worker_calls", "Calls that were finalized.", labels=("job_type", "outcome"))
    for (job_type, outcome), number in list(watch.calls.items()):
        calls.add_metric((job_type, outcome), number)
    yield calls
    load = watch.load()
    yield GaugeMetricFamily("autofill_worker_slots", "Calls that may be in flight.", load.slots)
    yield GaugeMetricFamily("autofill_worker_visits", "Rows held.", load.visits)
    yield GaugeMetricFamily("autofill_worker_calls_in_flight", "Calls in flight, or in line for a place.", load.calls)
    yield GaugeMetricFamily("autofill_worker_ready", "1 while it claims.", float(watch.unready() is None))
    yield _timings(
        "autofill_worker_store_seconds",
        "Transactions of the store by function: claim, flush, ….",
        ("function",),
        {(name,): timing for name, timing in list(watch.statements.items())},
    )
    failures = CounterMetricFamily("autofill_worker_store_failures", "Those that failed.", labels=("function",))
    for name, number in list(watch.failures.items()):
        failures.add_metric((name,), number)
    yield failures
    ends = ("base_url", "model")
    gauges = {
        "in_flight": GaugeMetricFamily("autofill_provider_in_flight", "Calls in flight to an endpoint.", labels=ends),
        "waiting": GaugeMetricFamily("autofill_provider_waiting", "Calls that wait for a place.", labels=ends),
        "limit": GaugeMetricFamily("autofill_provider_limit", "This worker's part of the limit.", labels=ends),
    }
    for one in load.endpoints:
        for name, gauge in gauges.items():
            gauge.add_metric(one.key, getattr(one, name))
    yield from gauges.values()
    yield _timings(
        "autofill_provider_wait_seconds", "How long calls waited for a place.", ends, dict(watch.waits.items())
    )


def _timings(
    name: str, text: str, labels: Sequence[str], timings: Mapping[tuple[str, ...], Timing]
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, text, labels=labels)
    for key, timing in timings.items():
        buckets, so_far = [], 0
        for bound, number in zip((*map(str, BOUNDS), "+Inf"), tuple(timing.counts), strict=True):
            so_far += number
            buckets.append((bound, float(so_far)))
        family.add_metric(key, buckets, timing.total)
    return family
