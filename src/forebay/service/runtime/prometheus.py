"""Metrics in the text format of Prometheus, with durations in seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from forebay.domain.histogram import Histogram
from forebay.domain.job import QueueName
from forebay.domain.job_states import JobState
from forebay.domain.metrics import MetricEvent
from forebay.domain.schedule import Schedule
from forebay.domain.worker import HeartbeatStatus, WorkerInfo
from forebay.operations.queue_stats import QueueStats, QueueTotals
from forebay.service.runtime.request_stats import LatencyHistogram, RequestStats
from forebay.worker.process_usage import cpu_seconds

CONTENT_TYPE: Final = "text/plain; version=0.0.4"  # the framework adds the charset
BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0)
_ENDS: Final = (MetricEvent.COMPLETED, MetricEvent.DEAD, MetricEvent.CANCELLED)
FRESH_MS: Final = 60_000
_RUNS: Final = {"enqueued": "enqueued_runs", "skipped": "skipped_runs", "failed": "failed_runs"}
_ESCAPED: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

Sample = tuple[str, Mapping[str, str], float]
Family = tuple[str, str, str, Iterator[Sample]]


def exposition(stats: Iterable[QueueStats], totals: Mapping[QueueName, QueueTotals]) -> str:
    """Return all metrics of these queues."""
    return _format_families(_queue_families(list(stats), totals))


def worker_metrics(workers: Sequence[WorkerInfo], schedules: Sequence[Schedule], now: int) -> str:
    """Return the metrics of workers and schedules."""
    return _format_families(_worker_families(workers, schedules, now))


def request_metrics(requests: RequestStats, can_see: Callable[[QueueName], bool]) -> str:
    """Return the metrics of requests to this process; rate limits only of visible queues."""
    return _format_families(_request_families(requests, can_see))


def _format_families(families: Iterable[Family]) -> str:
    lines: list[str] = []
    for name, kind, about, samples in families:
        lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
        lines += [_format_sample(name + end, labels, value) for end, labels, value in samples]
    return "\n".join(lines) + "\n"


def _format_sample(name: str, labels: Mapping[str, str], value: float) -> str:
    shown = ",".join(f'{key}="{text.translate(_ESCAPED)}"' for key, text in labels.items())
    return f"{name}{{{shown}}} {value:.15g}" if shown else f"{name} {value:.15g}"


def _queue_families(stats: list[QueueStats], totals: Mapping[QueueName, QueueTotals]) -> Iterator[Family]:
    yield (
        *("tasks_enqueued_total", "counter", "Jobs accepted since the queue was created."),
        (("", {"queue": queue}, one.accepted) for queue, one in totals.items() if one.accepted is not None),
    )
    yield (
        *("tasks_dequeued_total", "counter", "Claims, one for each attempt."),
        (("", {"queue": queue}, one.count(MetricEvent.CLAIMED)) for queue, one in totals.items()),
    )
    yield (
        *("tasks_completed_total", "counter", "Jobs that have ended, by state."),
        (
            ("", {"queue": queue, "status": end.value}, one.count(end))
            for queue, one in totals.items()
            for end in _ENDS
        ),
    )
    yield (
        *("task_failures_total", "counter", "Attempts that failed, by the type of the error."),
        (
            ("", {"queue": queue, "error_type": error}, count)
            for queue, one in totals.items()
            for error, count in sorted(one.stats.errors.items())
        ),
    )
    yield (
        *("task_wait_time_seconds", "histogram", "From when a job could have run until it was claimed."),
        (sample for queue, one in totals.items() for sample in _histogram_samples(queue, one.stats.wait)),
    )
    yield (
        *("task_processing_time_seconds", "histogram", "How long attempts ran."),
        (sample for queue, one in totals.items() for sample in _histogram_samples(queue, one.stats.run)),
    )
    yield from _gauge_families(stats)


def _gauge_families(stats: list[QueueStats]) -> Iterator[Family]:
    yield (
        *("queue_depth", "gauge", "Jobs by state."),
        (
            ("", {"queue": one.queue, "status": state.value}, getattr(one.counts, state))
            for one in stats
            for state in JobState
        ),
    )
    yield (
        *("queue_next_pending_task_age_seconds", "gauge", "How long the next job has waited."),
        (("", {"queue": one.queue}, (one.waits_ms or 0) / 1_000) for one in stats),
    )
    yield (
        *("dead_letter_queue_size", "gauge", "Jobs in the dead letters."),
        (("", {"queue": one.queue}, one.counts.dead) for one in stats),
    )
    yield (
        *(
            "active_consumers",
            "gauge",
            "Workers, consumer loops and clients that claim from the queue.",
        ),
        (("", {"queue": one.queue}, one.consumers) for one in stats),
    )


def _histogram_samples(queue: QueueName, lengths: Histogram) -> Iterator[Sample]:
    for bound in BOUNDS:
        yield "_bucket", {"queue": queue, "le": f"{bound:g}"}, lengths.count_within(bound * 1_000)
    yield "_bucket", {"queue": queue, "le": "+Inf"}, lengths.count
    yield "_sum", {"queue": queue}, lengths.total_us / 1_000_000
    yield "_count", {"queue": queue}, lengths.count


def _request_families(requests: RequestStats, can_see: Callable[[QueueName], bool]) -> Iterator[Family]:
    yield (
        *("api_request_duration_seconds", "histogram", "How long requests took until their answer began."),
        (
            sample
            for route, histogram in requests.latencies.items()
            for sample in _latency_samples(route._asdict(), histogram)
        ),
    )
    yield (
        *("api_errors_total", "counter", "Requests that were answered with a problem, by its status."),
        (
            ("", {"endpoint": endpoint, "status_code": status}, count)
            for (endpoint, status), count in requests.errors.items()
        ),
    )
    yield (
        *(
            "rate_limited_requests_total",
            "counter",
            "Requests whose jobs came faster than their queue takes them.",
        ),
        (
            ("", {"queue": queue}, count)
            for queue, count in requests.rate_limited.items()
            if can_see(QueueName(queue))
        ),
    )


def _latency_samples(labels: Mapping[str, str], histogram: LatencyHistogram) -> Iterator[Sample]:
    for bound, count in histogram.cumulative_counts():
        yield "_bucket", {**labels, "le": bound}, count
    yield "_sum", labels, histogram.seconds
    yield "_count", labels, sum(histogram.counts)


def _worker_families(
    workers: Sequence[WorkerInfo], schedules: Sequence[Schedule], now: int
) -> Iterator[Family]:
    alive = [one for one in workers if one.heartbeat_status(now) is not HeartbeatStatus.DEAD]
    fresh = sum(now - one.heartbeat_at < FRESH_MS for one in workers)
    yield "workers", "gauge", "Live workers.", iter([("", {}, len(alive))])
    yield (
        *(
            "worker_health",
            "gauge",
            "Ratio of workers with a heartbeat less than a minute old; 1 without workers.",
        ),
        iter([("", {}, fresh / len(workers) if workers else 1.0)]),
    )
    yield (
        *("workers_memory_bytes", "gauge", "Memory of all live worker processes."),
        iter([("", {}, sum(one.memory or 0 for one in alive))]),
    )
    yield (
        *("workers_cpu_cores", "gauge", "CPU cores used by all live worker processes."),
        iter([("", {}, sum(one.cpu or 0.0 for one in alive))]),
    )
    yield "schedules", "gauge", "Schedules, including paused ones.", iter([("", {}, len(schedules))])
    yield (
        *("schedule_runs", "gauge", "Runs of the present schedules: enqueued, skipped, failed."),
        (
            ("", {"status": status}, sum(getattr(one, field) for one in schedules))
            for status, field in _RUNS.items()
        ),
    )
    yield (
        *("process_cpu_seconds_total", "counter", "Processor time of this server."),
        iter([("", {}, cpu_seconds())]),
    )
