"""Size bounds of remote store calls. All calls share a few threads, so none may be as large as its caller
likes. Uploaded data is bounded by the size of a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from forebay.domain.histogram import MAX_US, Histogram, step_of
from forebay.domain.job import DAY_MS, MIN_LEASE_MS, JobId
from forebay.domain.job_validation import (
    MAX_KEY,
    check_integer,
    check_queue_name,
    check_size,
    check_text,
)
from forebay.domain.metrics import (
    ALL_WORKERS,
    MAX_ERRORS,
    MAX_SERIES,
    MINUTE,
    SAMPLE,
    TEN_SECONDS,
    MetricRow,
    TaskStats,
)
from forebay.domain.progress import check_step_name
from forebay.domain.settlement import MAX_REASON, Settlement, truncate_reason
from forebay.domain.storable_text import clean_text
from forebay.domain.worker import MAX_HEARTBEAT_MS, MIN_HEARTBEAT_MS, SHOWN_JOBS, WorkerInfo
from forebay.errors import InvalidJob
from forebay.service.runtime.payload_bytes_per_response import payload_limit
from forebay.stores.rpc import MAX_JOBS

MAX_ITEMS: Final = 10_000
MAX_HOST: Final = 255
# Age of metrics that a worker may report, and values that can be summed over very many rows.
MAX_CONSUMERS: Final = 1_000_000
MAX_METRICS_AGE_MS: Final = 5 * MINUTE
MAX_COUNT: Final = 2**40
MAX_TOTAL_US: Final = 2**57
_MAX_COUNTERS: Final = 100  # counters per task; a later release may have more than this one
_JOB_READS: Final = ("jobs", "job_states", "export_jobs")  # calls that return one result for each id
_LISTS: Final = ("ids", "names", "queues", "workers", "claims", "dead")


def check_bounds(operation: str, call_args: Any) -> None:
    """Raise InvalidJob for a call that asks for too much, and reduce what can be had in several calls."""
    for name in _LISTS:
        if len(getattr(call_args, name, None) or ()) > MAX_ITEMS:
            raise InvalidJob(f"a call takes at most {MAX_ITEMS:,} {name}", field=name)
    if operation in _JOB_READS and len(set(call_args.ids)) != len(call_args.ids):
        raise InvalidJob("a job id is repeated; name each job once", field="ids")
    if operation in _JOB_READS and len(call_args.ids) > MAX_JOBS:
        raise InvalidJob(f"a call reads at most {MAX_JOBS:,} jobs", field="ids")
    limit = getattr(call_args, "limit", None)
    if (
        isinstance(limit, int) and limit > MAX_ITEMS
    ):  # a Limit is no int; the store itself refuses small values
        raise InvalidJob(f"a call returns at most {MAX_ITEMS:,} rows", field="limit")
    _check_lease(getattr(call_args, "lease_ms", None))
    if operation == "settle_and_claim":
        _bound_settle_and_claim(call_args)


def _bound_settle_and_claim(call_args: Any) -> None:
    for claim in call_args.claims:
        _check_lease(claim.lease_ms)
    for step in (step for update in call_args.updates for step in update.steps):
        check_step_name(step.name)
        check_size("result", step.result, "result of a step")
    call_args.settlements = [_check_settlement(settlement) for settlement in call_args.settlements]
    # A caller with more room calls again.
    call_args.room = min(call_args.room, MAX_ITEMS)
    max_payload = payload_limit(call_args.room)
    call_args.claims = [
        claim._replace(limit=min(claim.limit, MAX_ITEMS), max_payload=min(max_payload, claim.largest_payload))
        for claim in call_args.claims
    ]


def _check_settlement(settlement: Settlement) -> Settlement:
    """Return a settlement that a job can store; raises PayloadError or InvalidJob."""
    if settlement.result is not None:
        check_size("result", settlement.result, "result")
    if settlement.lane is not None:
        check_text("lane", settlement.lane)
    if settlement.reason is None or len(settlement.reason) <= MAX_REASON:
        return settlement
    return replace(settlement, reason=truncate_reason(settlement.reason))


def _check_lease(lease_ms: int | None) -> None:
    if lease_ms is not None:
        check_integer("lease_ms", lease_ms, MIN_LEASE_MS, DAY_MS)


def sanitize_worker(worker: WorkerInfo) -> WorkerInfo:
    """Return a worker's description within plausible values, because operators and sweepers rely on it.
    Raises InvalidJob for impossible names."""
    check_text("id", worker.id)
    for name in (*worker.queues, *worker.paused):
        check_queue_name(name)
    return replace(
        worker,
        queues=tuple(dict.fromkeys(worker.queues)),
        paused=tuple(dict.fromkeys(worker.paused)),
        host=clean_text(worker.host)[:MAX_HOST],
        heartbeat_ms=min(max(worker.heartbeat_ms, MIN_HEARTBEAT_MS), MAX_HEARTBEAT_MS),
        running=_truncate_ids(worker.running[:SHOWN_JOBS]),
        recent=_truncate_ids(worker.recent[-SHOWN_JOBS:]),
    )


def _truncate_ids(ids: Sequence[JobId]) -> tuple[JobId, ...]:
    return tuple(JobId(job_id[:MAX_KEY]) for job_id in ids)


def drop_stale_rows(rows: Sequence[MetricRow], now: int) -> list[MetricRow]:
    """Return the metric rows that a worker can have counted just now.

    Other rows are dropped, not refused: after a step back of the store's clock, old rows must not block new
    ones.
    """
    for row in rows:
        _check_row(row)
    return [row for row in rows if abs(now - row.starts_at) <= MAX_METRICS_AGE_MS]


def _check_row(row: MetricRow) -> None:
    """Raise InvalidJob for a row that no worker can have counted. Rows of all workers are summed, so one
    impossible row would spoil the metrics of all queues."""
    if row.resolution_ms != TEN_SECONDS or row.starts_at % TEN_SECONDS:
        raise InvalidJob("a worker reports metrics of ten seconds", field="starts_at")
    if not 0 <= row.consumers <= MAX_CONSUMERS:
        raise InvalidJob(f"a queue has at most {MAX_CONSUMERS} consumers", field="consumers")
    if row.worker in (SAMPLE, ALL_WORKERS) or row.snapshot is not None:
        raise InvalidJob("a worker reports its own metrics, without a snapshot of queues", field="worker")
    if len(row.tasks) > MAX_SERIES + 1:
        raise InvalidJob(f"a row has metrics of at most {MAX_SERIES} tasks", field="tasks")
    for stats in row.tasks.values():
        _check_stats(stats)


def _check_stats(stats: TaskStats) -> None:
    _check_counts(stats.counts, _MAX_COUNTERS)
    _check_counts(stats.errors, MAX_ERRORS + 1)
    for histogram in (stats.wait, stats.run):
        _check_histogram(histogram)


def _check_histogram(histogram: Histogram) -> None:
    last = step_of(MAX_US)
    _check_counts(histogram.steps, last + 1)
    for step in histogram.steps:
        check_integer("step", step, 0, last)
    check_integer("total_us", histogram.total_us, 0, MAX_TOTAL_US)
    for length in (histogram.min_us, histogram.max_us):
        check_integer("length", length, 0, MAX_US)


def _check_counts(counts: Mapping[Any, int], max_counters: int) -> None:
    if len(counts) > max_counters:
        raise InvalidJob(f"metrics have at most {max_counters} counters", field="tasks")
    for count in counts.values():
        check_integer("count", count, 0, MAX_COUNT)
