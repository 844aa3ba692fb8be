"""How much one call of the store may ask for. Everybody's calls go through the same few threads, so none may
be as large as its caller likes; what it brings along is bounded by the size of a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from forebay.domain.histogram import LONGEST_US, Histogram, step_of
from forebay.domain.job import (
    DAY_MS,
    MAX_KEY,
    MIN_LEASE_MS,
    JobId,
    check_queue_name,
    check_size,
    check_text,
    check_whole,
)
from forebay.domain.metrics import (
    MAX_ERRORS,
    MAX_SERIES,
    MINUTE,
    SAMPLE,
    TEN_SECONDS,
    TOGETHER,
    MetricRow,
    Tally,
)
from forebay.domain.note import check_step_name
from forebay.domain.settlement import MAX_REASON, Settlement, reason_as_kept
from forebay.domain.text import clean
from forebay.domain.worker import MAX_BEAT_MS, MIN_BEAT_MS, SHOWN_JOBS, WorkerInfo
from forebay.errors import InvalidJob
from forebay.service.operations.claim_bytes import payload_share
from forebay.stores.wire import JOBS_AT_ONCE

MOST: Final = 10_000
MAX_HOST: Final = 255
# How far the start of a worker's figures may be from now, and what fits into a sum of very many of them.
MOST_CONSUMERS: Final = 1_000_000
FIGURES_MS: Final = 5 * MINUTE
MOST_COUNTED: Final = 2**40
MOST_US: Final = 2**57
_KINDS: Final = 100  # of things that are counted; a later release may know more than this one
_SHOWN: Final = ("jobs", "fates", "wholes")  # by these jobs are read as a whole
_LISTS: Final = ("ids", "names", "queues", "workers", "wants", "dead")


def bounded(operation: str, asked: Any) -> None:
    """Raise InvalidJob for a call that asks for too much, and cut what can be had in several parts."""
    for name in _LISTS:
        if len(getattr(asked, name, None) or ()) > MOST:
            raise InvalidJob(f"a call takes at most {MOST:,} {name}", field=name)
    if operation in _SHOWN and len(set(asked.ids)) != len(asked.ids):
        raise InvalidJob("each job is asked for once", field="ids")
    if operation in _SHOWN and len(asked.ids) > JOBS_AT_ONCE:
        raise InvalidJob(f"at most {JOBS_AT_ONCE:,} jobs are shown at once", field="ids")
    limit = getattr(asked, "limit", None)
    if isinstance(limit, int) and limit > MOST:  # and no Limit; the store says what it thinks of too few
        raise InvalidJob(f"a call asks for at most {MOST:,} lines", field="limit")
    _check_lease(getattr(asked, "lease_ms", None))
    if operation == "exchange":
        _bound_exchange(asked)


def _bound_exchange(asked: Any) -> None:
    for want in asked.wants:
        _check_lease(want.lease_ms)
    for step in (step for note in asked.notes for step in note.steps):
        check_step_name(step.name)
        check_size("result", step.result, "result of a step")
    asked.settlements = [_kept(end) for end in asked.settlements]
    # Whoever has room for more asks again.
    asked.room = min(asked.room, MOST)
    share = payload_share(asked.room)
    asked.wants = [
        want._replace(most=min(want.most, MOST), max_payload=min(share, want.largest_payload))
        for want in asked.wants
    ]


def _kept(end: Settlement) -> Settlement:
    """A settlement that a job can keep; raises PayloadError or InvalidJob."""
    if end.result is not None:
        check_size("result", end.result, "result")
    if end.gate is not None:
        check_text("gate", end.gate)
    if end.reason is None or len(end.reason) <= MAX_REASON:
        return end
    return replace(end, reason=reason_as_kept(end.reason))


def _check_lease(lease_ms: int | None) -> None:
    if lease_ms is not None:
        check_whole("lease_ms", lease_ms, MIN_LEASE_MS, DAY_MS)


def sane(worker: WorkerInfo) -> WorkerInfo:
    """What a worker says about itself as far as it can be true: everybody who looks at workers reckons with
    it. Raises InvalidJob for names that cannot be."""
    check_text("id", worker.id)
    for name in (*worker.queues, *worker.paused):
        check_queue_name(name)
    return replace(
        worker,
        queues=tuple(dict.fromkeys(worker.queues)),
        paused=tuple(dict.fromkeys(worker.paused)),
        host=clean(worker.host)[:MAX_HOST],
        beat_ms=min(max(worker.beat_ms, MIN_BEAT_MS), MAX_BEAT_MS),
        running=_shown(worker.running[:SHOWN_JOBS]),
        recent=_shown(worker.recent[-SHOWN_JOBS:]),
    )


def _shown(ids: Sequence[JobId]) -> tuple[JobId, ...]:
    return tuple(JobId(one[:MAX_KEY]) for one in ids)


def fresh(rows: Sequence[MetricRow], now: int) -> list[MetricRow]:
    """Of figures those that a worker can have seen just now. Others are left out and not refused: where the
    store's clock was set back, its rows from before must not hold up those that come."""
    for row in rows:
        _check_figures(row)
    return [row for row in rows if abs(now - row.start) <= FIGURES_MS]


def _check_figures(row: MetricRow) -> None:
    """Raise InvalidJob for what no worker has seen. Everything is made again from such rows, also what
    belongs to other queues: one that cannot be added up would spoil it for all."""
    if row.tier != TEN_SECONDS or row.start % TEN_SECONDS:
        raise InvalidJob("a worker keeps figures of ten seconds", field="start")
    if not 0 <= row.consumers <= MOST_CONSUMERS:
        raise InvalidJob(f"a queue has at most {MOST_CONSUMERS} consumers", field="consumers")
    if row.worker in (SAMPLE, TOGETHER) or row.stock is not None:
        raise InvalidJob("a worker keeps figures of its own, and counts no waiting jobs", field="worker")
    if len(row.tasks) > MAX_SERIES + 1:
        raise InvalidJob(f"there are figures of at most {MAX_SERIES} tasks", field="tasks")
    for tally in row.tasks.values():
        _check_tally(tally)


def _check_tally(tally: Tally) -> None:
    _check_counts(tally.counts, _KINDS)
    _check_counts(tally.errors, MAX_ERRORS + 1)
    for lengths in (tally.wait, tally.run):
        _check_lengths(lengths)


def _check_lengths(lengths: Histogram) -> None:
    last = step_of(LONGEST_US)
    _check_counts(lengths.steps, last + 1)
    for step in lengths.steps:
        check_whole("step", step, 0, last)
    check_whole("total_us", lengths.total_us, 0, MOST_US)
    for length in (lengths.least_us, lengths.most_us):
        check_whole("length", length, 0, LONGEST_US)


def _check_counts(counts: Mapping[Any, int], most: int) -> None:
    if len(counts) > most:
        raise InvalidJob(f"figures have at most {most} parts", field="tasks")
    for count in counts.values():
        check_whole("count", count, 0, MOST_COUNTED)
