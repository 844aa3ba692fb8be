"""What `forebay top` shows: one look at a store, and the lines that it makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from forebay.app.figures import QueueFigures, queue_figures
from forebay.cli.output import cell, length, moment
from forebay.cli.shapes import counts_json, iso, queue_json, summary_json, worker_json
from forebay.cli.stats import added, figures_json
from forebay.domain.job import JobSummary
from forebay.domain.lifecycle import JobState
from forebay.domain.metrics import Happened
from forebay.domain.query import Counts, Fate, JobQuery
from forebay.domain.queue import Queue, QueueState
from forebay.domain.worker import SHOWN_JOBS, WorkerInfo
from forebay.stores.protocol import Reader

LOOKED_AT: Final = 100  # of the newest jobs that run, and of those that have failed
QUEUE_HEADS: Final = (
    *("queue", "is", "pending", "run", "sched", "retry", "dead"),
    *("came/s", "done/s", "failed", "wait p95", "oldest"),
)
WORKER_HEADS: Final = (
    "worker",
    "host",
    "is",
    "pulse",
    "queues",
    "runs",
    "slots",
    "done",
    "failed",
    "cpu",
    "memory",
)
RUNNING_HEADS: Final = ("id", "queue", "task", "try", "worker", "runs for")
FAILURE_HEADS: Final = ("id", "queue", "task", "state", "ago", "reason")


class Line(NamedTuple):
    """A queue with its jobs and what has become of them lately."""

    queue: Queue
    figures: QueueFigures

    @property
    def counts(self) -> Counts:
        return self.figures.counts

    @property
    def cells(self) -> tuple[object, ...]:
        one, counts = self.figures, self.counts
        came, waited = one.per_second(one.span.enqueued), one.wait.percentile_ms(95)
        return (
            *(self.queue.name, self.queue.state, counts.pending, counts.running, counts.scheduled),
            *(counts.retrying, counts.dead, "" if came is None else f"{came:.1f}", f"{one.throughput:.1f}"),
            *(one.span.count(Happened.FAILED), "" if waited is None else length(round(waited))),
            length(one.waits_ms),
        )


# By what queues can be sorted, and how: those that a reader wants to see first are first.
SORTS: Final[dict[str, Callable[[Line], Any]]] = {
    "queue": lambda line: line.queue.name,
    "pending": lambda line: -line.counts.pending,
    "running": lambda line: -line.counts.running,
    "dead": lambda line: -line.counts.dead,
    "done": lambda line: -line.figures.throughput,
    "oldest": lambda line: -(line.figures.waits_ms or 0),
}


class Glance(NamedTuple):
    """What a store holds at a moment."""

    at: int
    lines: Sequence[Line]
    workers: Sequence[WorkerInfo]
    running: Sequence[JobSummary]  # of the newest ones, those that run for longest first
    failures: Sequence[Fate]  # last attempts that went wrong, the latest first
    window_ms: int

    @property
    def total(self) -> Counts:
        return added([line.counts for line in self.lines])

    def sorted_by(self, name: str, *, is_reversed: bool = False) -> list[Line]:
        by_name = sorted(self.lines, key=SORTS["queue"])
        return sorted(by_name, key=SORTS[name], reverse=is_reversed)

    def worker_rows(self) -> list[tuple[object, ...]]:
        return [_worker_row(one, self.at) for one in self.workers]

    def running_rows(self) -> list[tuple[object, ...]]:
        return [
            (
                job.id,
                job.queue,
                job.task,
                job.attempt,
                job.worker,
                length(self.at - (job.started_at or self.at)),
            )
            for job in self.running
        ]

    def failure_rows(self) -> list[tuple[object, ...]]:
        return [
            (one.id, one.queue, one.task, one.state, length(max(0, self.at - _failed_at(one))), _why(one))
            for one in self.failures
        ]


def look(reader: Reader, window_ms: int) -> Glance:
    """One look; queues that were deleted and have no jobs left are not shown."""
    counts = reader.counts()
    queues = {queue.name: queue for queue in reader.queues(list(counts))} if counts else {}
    figures = queue_figures(reader, list(counts), window_ms) if counts else []
    lines = [Line(queues[one.queue], one) for one in figures if one.queue in queues]
    running = reader.search(JobQuery(states=(JobState.RUNNING,)), limit=LOOKED_AT).jobs
    failed = reader.search(JobQuery(states=(JobState.DEAD, JobState.RETRYING)), limit=LOOKED_AT).jobs
    fates = reader.fates([job.id for job in failed]) if failed else []
    return Glance(
        at=reader.now(),
        lines=[one for one in lines if one.queue.state is not QueueState.DROPPED or one.counts.total],
        workers=reader.workers(),
        running=sorted(running, key=lambda job: job.started_at or 0),
        failures=sorted((one for one in fates if one is not None), key=_failed_at, reverse=True),
        window_ms=window_ms,
    )


def summary(store: str, seen: Glance) -> str:
    """The first line."""
    total = seen.total
    alive = f"{len(seen.workers)} worker{'' if len(seen.workers) == 1 else 's'}"
    states = (JobState.PENDING, JobState.RUNNING, JobState.RETRYING, JobState.DEAD)
    jobs = ", ".join(f"{getattr(total, state):,} {state}" for state in states)
    return f"{store}  {moment(seen.at)}  {jobs}  {alive}"


def glance_json(store: str, seen: Glance, sort: str, *, is_reversed: bool) -> dict[str, Any]:
    """The same for programs."""
    lines = seen.sorted_by(sort, is_reversed=is_reversed)
    return {
        "store": store,
        "at": iso(seen.at),
        "window_ms": seen.window_ms,
        "total": counts_json(seen.total),
        "queues": [
            {**queue_json(one.queue, one.counts), "metrics": figures_json(one.figures)} for one in lines
        ],
        "workers": [worker_json(worker, seen.at) for worker in seen.workers],
        "running": [summary_json(job) for job in seen.running],
        "failures": [_fate_json(one) for one in seen.failures],
    }


def _fate_json(fate: Fate) -> dict[str, Any]:
    return {
        "id": fate.id,
        "queue": fate.queue,
        "task": fate.task,
        "state": fate.state,
        "failed_at": iso(_failed_at(fate)),
        "reason": _why(fate),
    }


def _failed_at(fate: Fate) -> int:
    if fate.error is not None:
        return fate.error.at
    return fate.finished_at or 0


def _why(fate: Fate) -> str:
    if fate.error is None:
        return fate.reason or ""
    return f"{fate.error.type}: {fate.error.message}" if fate.error.message else fate.error.type


def _worker_row(one: WorkerInfo, now: int) -> tuple[object, ...]:
    running = f"{len(one.running)}+" if len(one.running) == SHOWN_JOBS else len(one.running)
    memory = "" if one.memory is None else f"{one.memory // 1_048_576} MB"
    share = "" if one.cpu is None else f"{one.cpu:.0%}"
    queues = cell(", ".join(f"{name} (paused)" if name in one.paused else name for name in one.queues))
    return (
        *(one.id, one.host, one.state, one.pulse(now), queues, running, one.slots),
        *(one.completed, one.failed, share, memory),
    )
