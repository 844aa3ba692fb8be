"""What workers and their jobs look like when something is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal

from forebay.app.schedules import all_schedules
from forebay.cli.commands.stats import iter_running
from forebay.cli.output import format_duration, format_job_count
from forebay.domain.job import Job, QueueName
from forebay.domain.lifecycle import JobState
from forebay.domain.query import MAX_PAGE, Counts, JobQuery
from forebay.domain.worker import HeartbeatStatus, WorkerInfo, WorkerState
from forebay.stores.contract.reader import Reader

# The worker itself ends a job at its timeout; whoever is still running so much later is not being watched.
OVERRUN_MS: Final = 60_000
# A pool in which nothing has begun for so long, though jobs could, is not slow but stuck.
QUIET_MS: Final = 300_000
# How many of the newest dead letters are looked at.
_MAX_DEAD_SCANNED: Final = 1_000

# Where users read more about what is found; `see` names a heading of it.
TROUBLESHOOTING: Final = "docs/troubleshooting.md"
DO_NOT_START: Final = "jobs-do-not-start"
RUNS_ON: Final = "a-job-runs-and-does-not-end"
SILENT: Final = "a-worker-is-silent-or-claims-nothing"
DEAD: Final = "jobs-are-dead"

Level = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One thing that was looked at. `todo` is what to do next, empty if nothing; `see` is the heading of the
    page about troubles that tells more, as links name it."""

    about: str
    message: str
    level: Level = "ok"
    todo: str = ""
    see: str = ""

    @property
    def page(self) -> str:
        """Where more is told, empty if nowhere."""
        return f"{TROUBLESHOOTING}#{self.see}" if self.see else ""


def check_workers(workers: Sequence[WorkerInfo], now: int) -> Iterator[CheckResult]:
    """Who is alive, who has gone without a word, and who is there and not well."""
    alive = sum(one.heartbeat_status(now) is HeartbeatStatus.ALIVE for one in workers)
    yield CheckResult(
        about="workers",
        message=f"{alive} alive",
        level="ok" if alive else "note",
        see="" if alive else DO_NOT_START,
    )
    yield from chain.from_iterable(_check_worker(one, now) for one in workers)


def _check_worker(worker: WorkerInfo, now: int) -> Iterator[CheckResult]:
    name, since = (
        f"{worker.id} on {worker.host} (pid {worker.pid})",
        format_duration(max(0, now - worker.heartbeat_at)),
    )
    match worker.heartbeat_status(now):
        case HeartbeatStatus.DEAD:
            yield CheckResult(
                about="workers",
                message=f"{name} has been silent for {since}",
                level="note",
                todo="forebay sweep --dead-workers hands back the jobs of workers that died",
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
        CheckResult(about="workers", message=f"{name} {trouble}", level="problem", todo=todo, see=see)
        for trouble, todo, see in _worker_problems(worker)
    )


def _worker_problems(worker: WorkerInfo) -> Iterator[tuple[str, str, str]]:
    look = f"forebay workers stacks {worker.id} shows where it hangs"
    if worker.state is WorkerState.UNRESPONSIVE:
        yield "lives, and its loop does not move: it claims and settles nothing", look, SILENT
    if worker.stuck:
        yield f"has {format_job_count(worker.stuck)} that did not stop when told to", look, RUNS_ON
    if worker.is_worn:
        what = f"has {worker.abandoned} abandoned threads, more than it may replace"
        yield what, f"{look}; then restart it", RUNS_ON
    if worker.is_overdue:
        kill = f"{look}; then kill {worker.pid} on {worker.host}"
        yield "is stopping for longer than it may", kill, "a-worker-does-not-stop"


def check_stalled_queues(
    reader: Reader, workers: Sequence[WorkerInfo], counts: Mapping[QueueName, Counts], now: int
) -> Iterator[CheckResult]:
    """Queues whose workers are alive while nothing comes of it: jobs could run, and none begins or ends.

    Where the workers have jobs, those may just be long: that is worth a note. Where they have none, something
    is wrong.
    """
    started = {job.queue: job.started_at or 0 for job in sorted(iter_running(reader), key=_start_time)}
    for name, count in counts.items():
        able = [one for one in workers if name in one.queues and name not in one.paused]
        if not count.pending or not able:
            continue
        since = max(
            _find_last_finish(reader, name), started.get(name, 0), min(one.started_at for one in able)
        )
        waits = _find_oldest_pending(reader, name)
        if waits is not None and now - max(since, waits) > QUIET_MS:
            alive = "its worker is alive" if len(able) == 1 else f"its {len(able)} workers are alive"
            yield CheckResult(
                about=f"queue {name}",
                message=f"{format_job_count(count.pending)} could run, {alive}, and nothing has "
                f"begun or ended for "
                f"{format_duration(now - max(since, waits))}",
                level="note" if any(one.running for one in able) else "problem",
                todo=f"forebay workers stacks {able[0].id}; forebay jobs list --queue {name} --state running",
                see=SILENT,
            )


def _start_time(job: object) -> int:
    return getattr(job, "started_at", None) or 0


def _find_last_finish(reader: Reader, queue: QueueName) -> int:
    """When a job of this queue has last come to an end; 0 if none is kept. The newest are looked at: jobs are
    listed by the order in which they were stored, and a pool that works ends new ones too."""
    states = (JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED)
    page = reader.search(JobQuery(queues=(queue,), states=states), limit=100)
    return max((job.finished_at or 0 for job in page.jobs), default=0)


def _find_oldest_pending(reader: Reader, queue: QueueName) -> int | None:
    """Since when the job that comes next could have been run; None if no claim would find one."""
    return next((max(job.created_at, job.run_at) for job in reader.peek(queue, 1)), None)


def check_timeouts(reader: Reader, now: int) -> Iterator[CheckResult]:
    """Jobs that run far beyond their time limit."""
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
    """How long a job has been running beyond what can be explained; 0 if it has not."""
    if job.state is not JobState.RUNNING or job.timeout_ms is None or job.started_at is None:
        return 0
    over = now - job.started_at - job.timeout_ms
    return over if over > OVERRUN_MS else 0


def check_schedules(reader: Reader, now: int) -> Iterator[CheckResult]:
    """Schedules that were due long ago, and that nobody has fired."""
    waiting = [one for one in all_schedules(reader) if one.check_at is not None]
    late = sorted((one.check_at or 0, one.name) for one in waiting if now - (one.check_at or 0) > OVERRUN_MS)
    if late:
        due_at, name = late[0]
        yield CheckResult(
            about="schedules",
            message=f"{len(late)} of {len(waiting)} were due and have not been fired; {name} "
            f"for {format_duration(now - due_at)}",
            level="problem",
            todo="schedules are fired by workers of any queue: start one, or `forebay scheduler`",
            see="a-schedule-is-silent",
        )


def check_unattempted(reader: Reader) -> Iterator[CheckResult]:
    """Dead letters that nobody has ever tried."""
    page = reader.search(JobQuery(states=(JobState.DEAD,)), limit=_MAX_DEAD_SCANNED)
    found = [job for job in page.jobs if job.attempt == 0]
    if found:
        reasons = _format_list({job.reason or "no reason" for job in found})
        yield CheckResult(
            about="dead letters",
            message=f"{format_job_count(len(found))} went from pending to dead without a single "
            f"attempt: {reasons}",
            level="note",
            todo=f"forebay dead show {found[0].id}",
            see=DEAD,
        )


def _format_list(items: Iterable[str]) -> str:
    some = sorted(items)
    return ", ".join(some[:3]) + (" ..." if len(some) > 3 else "")  # noqa: PLR2004 - as many as fit a line
