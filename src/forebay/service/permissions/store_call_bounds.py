"""How much one call of the store may ask for. Everybody's calls go through the same few threads, so none may
be as large as its caller likes; what it brings along is bounded by the size of a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from forebay.domain.histogram import MAX_US, Histogram, step_of
from forebay.domain.job import (
    DAY_MS,
    MAX_KEY,
    MIN_LEASE_MS,
    JobId,
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
from forebay.domain.text import clean_text
from forebay.domain.worker import MAX_HEARTBEAT_MS, MIN_HEARTBEAT_MS, SHOWN_JOBS, WorkerInfo
from forebay.errors import InvalidJob
from forebay.service.runtime.claim_bytes import payload_limit
from forebay.stores.rpc import MAX_JOBS

MAX_ITEMS: Final = 10_000
MAX_HOST: Final = 255
# How far the start of a worker's figures may be from now, and what fits into a sum of very many of them.
MAX_CONSUMERS: Final = 1_000_000
MAX_METRICS_AGE_MS: Final = 5 * MINUTE
MAX_COUNT: Final = 2**40
MAX_TOTAL_US: Final = 2**57
_MAX_COUNTERS: Final = 100  # of things that are counted; a later release may know more than this one
_JOB_READS: Final = ("jobs", "job_states", "export_jobs")  # by these jobs are read as a whole
_LISTS: Final = ("ids", "names", "queues", "workers", "claims", "dead")


def check_bounds(operation: str, call_args: Any) -> None:
    """Raise InvalidJob for a call that asks for too much, and cut what can be had in several parts."""
    for name in _LISTS:
        if len(getattr(call_args, name, None) or ()) > MAX_ITEMS:
            raise InvalidJob(f"a call takes at most {MAX_ITEMS:,} {name}", field=name)
    if operation in _JOB_READS and len(set(call_args.ids)) != len(call_args.ids):
        raise InvalidJob("each job is asked for once", field="ids")
    if operation in _JOB_READS and len(call_args.ids) > MAX_JOBS:
        raise InvalidJob(f"at most {MAX_JOBS:,} jobs are shown at once", field="ids")
    limit = getattr(call_args, "limit", None)
    if isinstance(limit, int) and limit > MAX_ITEMS:  # and no Limit; the store says what it thinks of too few
        raise InvalidJob(f"a call asks for at most {MAX_ITEMS:,} lines", field="limit")
    _check_lease(getattr(call_args, "lease_ms", None))
    if operation == "settle_and_claim":
        _bound_settle_and_claim(call_args)


def _bound_settle_and_claim(call_args: Any) -> None:
    for want in call_args.claims:
        _check_lease(want.lease_ms)
    for step in (step for note in call_args.updates for step in note.steps):
        check_step_name(step.name)
        check_size("result", step.result, "result of a step")
    call_args.settlements = [_check_settlement(end) for end in call_args.settlements]
    # Whoever has room for more asks again.
    call_args.room = min(call_args.room, MAX_ITEMS)
    share = payload_limit(call_args.room)
    call_args.claims = [
        want._replace(limit=min(want.limit, MAX_ITEMS), max_payload=min(share, want.largest_payload))
        for want in call_args.claims
    ]


def _check_settlement(end: Settlement) -> Settlement:
    """A settlement that a job can keep; raises PayloadError or InvalidJob."""
    if end.result is not None:
        check_size("result", end.result, "result")
    if end.lane is not None:
        check_text("lane", end.lane)
    if end.reason is None or len(end.reason) <= MAX_REASON:
        return end
    return replace(end, reason=truncate_reason(end.reason))


def _check_lease(lease_ms: int | None) -> None:
    if lease_ms is not None:
        check_integer("lease_ms", lease_ms, MIN_LEASE_MS, DAY_MS)


def sanitize_worker(worker: WorkerInfo) -> WorkerInfo:
    """What a worker says about itself as far as it can be true: everybody who looks at workers reckons with
    it. Raises InvalidJob for names that cannot be."""
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
    return tuple(JobId(one[:MAX_KEY]) for one in ids)


def drop_stale_rows(rows: Sequence[MetricRow], now: int) -> list[MetricRow]:
    """Of figures those that a worker can have seen just now. Others are left out and not refused: where the
    store's clock was set back, its rows from before must not hold up those that come."""
    for row in rows:
        _check_row(row)
    return [row for row in rows if abs(now - row.starts_at) <= MAX_METRICS_AGE_MS]


def _check_row(row: MetricRow) -> None:
    """Raise InvalidJob for what no worker has seen. Everything is made again from such rows, also what
    belongs to other queues: one that cannot be added up would spoil it for all."""
    if row.resolution_ms != TEN_SECONDS or row.starts_at % TEN_SECONDS:
        raise InvalidJob("a worker keeps figures of ten seconds", field="starts_at")
    if not 0 <= row.consumers <= MAX_CONSUMERS:
        raise InvalidJob(f"a queue has at most {MAX_CONSUMERS} consumers", field="consumers")
    if row.worker in (SAMPLE, ALL_WORKERS) or row.snapshot is not None:
        raise InvalidJob("a worker keeps figures of its own, and counts no waiting jobs", field="worker")
    if len(row.tasks) > MAX_SERIES + 1:
        raise InvalidJob(f"there are figures of at most {MAX_SERIES} tasks", field="tasks")
    for tally in row.tasks.values():
        _check_stats(tally)


def _check_stats(tally: TaskStats) -> None:
    _check_counts(tally.counts, _MAX_COUNTERS)
    _check_counts(tally.errors, MAX_ERRORS + 1)
    for lengths in (tally.wait, tally.run):
        _check_lengths(lengths)


def _check_lengths(lengths: Histogram) -> None:
    last = step_of(MAX_US)
    _check_counts(lengths.steps, last + 1)
    for step in lengths.steps:
        check_integer("step", step, 0, last)
    check_integer("total_us", lengths.total_us, 0, MAX_TOTAL_US)
    for length in (lengths.min_us, lengths.max_us):
        check_integer("length", length, 0, MAX_US)


def _check_counts(counts: Mapping[Any, int], max_counters: int) -> None:
    if len(counts) > max_counters:
        raise InvalidJob(f"figures have at most {max_counters} parts", field="tasks")
    for count in counts.values():
        check_integer("count", count, 0, MAX_COUNT)
