"""Checks of workers, queues, running jobs and schedules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal

from forebay.app.schedules import all_schedules
from forebay.cli.commands.stuck_jobs import iter_running
from forebay.cli.output import format_duration, format_job_count
from forebay.domain.job import Job, QueueName
from forebay.domain.job_states import JobState
from forebay.domain.query import MAX_PAGE, JobQuery
from forebay.domain.queue_counts import Counts
from forebay.domain.worker import HeartbeatStatus, WorkerInfo, WorkerState
from forebay.stores.contract.reader import Reader

# A worker ends a job at its timeout. A job that still runs this much later is not supervised any more.
OVERRUN_MS: Final = 60_000
# A queue whose workers start nothing for this time, although jobs are pending, is stuck, not slow.
QUIET_MS: Final = 300_000
# How many of the newest dead letters are read.
_MAX_DEAD_SCANNED: Final = 1_000

# The page about the findings; `see` is a heading on it.
TROUBLESHOOTING: Final = "docs/troubleshooting.md"
DO_NOT_START: Final = "jobs-do-not-start"
RUNS_ON: Final = "a-job-runs-and-does-not-end"
SILENT: Final = "a-worker-is-silent-or-claims-nothing"
DEAD: Final = "jobs-are-dead"

Level = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Result of one check. `todo` is the remedy, empty if none is needed; `see` is the anchor of a heading on
    the troubleshooting page."""

    about: str
    message: str
    level: Level = "ok"
    todo: str = ""
    see: str = ""

    @property
    def page(self) -> str:
        """Link to the troubleshooting page; empty if there is none."""
        return f"{TROUBLESHOOTING}#{self.see}" if self.see else ""


def check_workers(workers: Sequence[WorkerInfo], now: int) -> Iterator[CheckResult]:
    """Check heartbeats and the state that workers report."""
    alive = sum(worker.heartbeat_status(now) is HeartbeatStatus.ALIVE for worker in workers)
    yield CheckResult(
        about="workers",
        message=f"{alive} alive",
        level="ok" if alive else "note",
        see="" if alive else DO_NOT_START,
    )
    yield from chain.from_iterable(_check_worker(worker, now) for worker in workers)


def _check_worker(worker: WorkerInfo, now: int) -> Iterator[CheckResult]:
    name, since = (
        f"{worker.id} on {worker.host} (pid {worker.pid})",
        format_duration(max(0, now - worker.heartbeat_at)),
    )
    match worker.heartbeat_status(now):
        case HeartbeatStatus.DEAD:
            yield CheckResult(
                about="workers",
                message=f"{name} has sent no heartbeat for {since}",
                level="note",
                todo="forebay sweep --dead-workers releases the jobs of dead workers",
                see="a-worker-is-killed-or-dies-again-and-again",
            )
            return
        case HeartbeatStatus.STALE:
            yield CheckResult(
                about="workers",
                message=f"{name} is stale: its last heartbeat was {since} ago",
                level="note",
                see=SILENT,
            )
    yield from (
        CheckResult(about="workers", message=f"{name} {problem}", level="problem", todo=todo, see=see)
        for problem, todo, see in _worker_problems(worker)
    )


def _worker_problems(worker: WorkerInfo) -> Iterator[tuple[str, str, str]]:
    show_stacks = f"forebay workers stacks {worker.id} shows where it hangs"
    if worker.state is WorkerState.UNRESPONSIVE:
        yield "is alive, but its loop is blocked: it claims and settles nothing", show_stacks, SILENT
    if worker.stuck:
        yield f"has {format_job_count(worker.stuck)} that did not stop when told to", show_stacks, RUNS_ON
    if worker.is_worn:
        problem = f"has {worker.abandoned} abandoned threads, more than it may replace"
        yield problem, f"{show_stacks}; then restart it", RUNS_ON
    if worker.is_overdue:
        kill = f"{show_stacks}; then kill {worker.pid} on {worker.host}"
        yield "has been stopping for longer than it may", kill, "a-worker-does-not-stop"


def check_stalled_queues(
    reader: Reader, workers: Sequence[WorkerInfo], counts: Mapping[QueueName, Counts], now: int
) -> Iterator[CheckResult]:
    """Check for queues with pending jobs and live workers where no job starts or ends.

    If the workers have running jobs, those may just be long: that is a note. If they have none, it is a
    problem.
    """
    started = {job.queue: job.started_at or 0 for job in sorted(iter_running(reader), key=_start_time)}
    for name, count in counts.items():
        active = [worker for worker in workers if name in worker.queues and name not in worker.paused]
        if not count.pending or not active:
            continue
        since = max(
            _find_last_finish(reader, name), started.get(name, 0), min(worker.started_at for worker in active)
        )
        waits = _find_oldest_pending(reader, name)
        if waits is not None and now - max(since, waits) > QUIET_MS:
            alive = "its worker is alive" if len(active) == 1 else f"its {len(active)} workers are alive"
            yield CheckResult(
                about=f"queue {name}",
                message=f"{format_job_count(count.pending)} could run, {alive}, and no job has "
                f"started or ended for "
                f"{format_duration(now - max(since, waits))}",
                level="note" if any(worker.running for worker in active) else "problem",
                todo=f"forebay workers stacks {active[0].id}; "
                f"forebay jobs list --queue {name} --state running",
                see=SILENT,
            )


def _start_time(job: object) -> int:
    return getattr(job, "started_at", None) or 0


def _find_last_finish(reader: Reader, queue: QueueName) -> int:
    """Return when a job of this queue last ended; 0 if no ended job is stored.

    Only the newest jobs are read. Jobs are listed in the order in which they were stored, and working workers
    also end new ones.
    """
    states = (JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED)
    page = reader.search(JobQuery(queues=(queue,), states=states), limit=100)
    return max((job.finished_at or 0 for job in page.jobs), default=0)


def _find_oldest_pending(reader: Reader, queue: QueueName) -> int | None:
    """Return since when the next job of a queue could run; None if no job can be claimed."""
    return next((max(job.created_at, job.run_at) for job in reader.peek(queue, 1)), None)


def check_timeouts(reader: Reader, now: int) -> Iterator[CheckResult]:
    """Check for jobs that run far beyond their timeout."""
    found = [job for job in _load_running(reader) if _overrun(job, now) > 0]
    if found:
        worst = max(found, key=lambda job: _overrun(job, now))
        yield CheckResult(
            about="timeouts",
            message=f"{format_job_count(len(found))} beyond the timeout; {worst.id} ({worst.task}) "
            f"by {format_duration(_overrun(worst, now))}",
            level="problem",
            todo=f"forebay workers stacks {worst.worker}; or forebay jobs cancel {worst.id} --force",
            see=RUNS_ON,
        )


def _load_running(reader: Reader) -> Iterator[Job]:
    ids = [job.id for job in iter_running(reader)]
    for start in range(0, len(ids), MAX_PAGE):
        yield from (job for job in reader.jobs(ids[start : start + MAX_PAGE]) if job is not None)


def _overrun(job: Job, now: int) -> int:
    """Return how long a job has been running beyond its timeout plus `OVERRUN_MS`; 0 if it has not."""
    if job.state is not JobState.RUNNING or job.timeout_ms is None or job.started_at is None:
        return 0
    over = now - job.started_at - job.timeout_ms
    return over if over > OVERRUN_MS else 0


def check_schedules(reader: Reader, now: int) -> Iterator[CheckResult]:
    """Check for schedules that are overdue and have not been fired."""
    waiting = [schedule for schedule in all_schedules(reader) if schedule.check_at is not None]
    late = sorted(
        (schedule.check_at or 0, schedule.name)
        for schedule in waiting
        if now - (schedule.check_at or 0) > OVERRUN_MS
    )
    if late:
        due_at, name = late[0]
        yield CheckResult(
            about="schedules",
            message=f"{len(late)} of {len(waiting)} were due and have not been fired; {name} "
            f"for {format_duration(now - due_at)}",
            level="problem",
            todo="workers of any queue fire schedules: start one, or `forebay scheduler`",
            see="a-schedule-is-silent",
        )


def check_unattempted(reader: Reader) -> Iterator[CheckResult]:
    """Check for dead letters without any attempt."""
    page = reader.search(JobQuery(states=(JobState.DEAD,)), limit=_MAX_DEAD_SCANNED)
    found = [job for job in page.jobs if job.attempt == 0]
    if found:
        reasons = _format_list({job.reason or "no reason" for job in found})
        yield CheckResult(
            about="dead letters",
            message=f"{format_job_count(len(found))} went from pending to dead without an attempt: {reasons}",
            level="note",
            todo=f"forebay dead show {found[0].id}",
            see=DEAD,
        )


def _format_list(items: Iterable[str]) -> str:
    some = sorted(items)
    return ", ".join(some[:3]) + (" ..." if len(some) > 3 else "")  # noqa: PLR2004 - as many as fit a line
