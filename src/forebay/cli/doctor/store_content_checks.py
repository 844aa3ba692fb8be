"""Checks of the content of a store: workers, queues, running jobs and schedules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from forebay.app.schedules import all_schedules
from forebay.cli.commands.stuck_jobs import HOUR_MS, find_running_longer, iter_running
from forebay.cli.doctor.check_result import DEAD, DO_NOT_START, RUNS_ON, SILENT, CheckResult
from forebay.cli.output import format_duration, format_job_count
from forebay.cli.store_session import StoreSession
from forebay.domain.fairness import is_fairness_lane
from forebay.domain.job import Job, QueueName
from forebay.domain.job_query import MAX_PAGE, JobQuery
from forebay.domain.job_states import WAITING, JobState
from forebay.domain.lane import is_limit_lane
from forebay.domain.queue import Queue, QueueState
from forebay.domain.queue_counts import Counts, LaneCount
from forebay.domain.worker import HeartbeatStatus, WorkerInfo, WorkerState
from forebay.stores.contract.reader import Reader

# Problems of the store with a better remedy than a backup, by the end of their message.
_REMEDIES: Final = {
    "was due and has not been moved": "workers promote due jobs in batches, so let one run and check again "
    "in a minute; jobs that stay can be cancelled and enqueued again",
    "in no order": "stop all workers, make a copy, and rebuild the indexes of SQLite with REINDEX",
}
_PROBLEMS_SHOWN: Final = 20

# A worker ends a job at its timeout. A job that still runs this much later is not supervised any more.
OVERRUN_MS: Final = 60_000
# A queue whose workers start nothing for this time, although jobs are pending, is stuck, not slow.
QUIET_MS: Final = 300_000
# How many of the newest dead letters are read.
_MAX_DEAD_SCANNED: Final = 1_000


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


def check_contents(session: StoreSession, *, quick: bool) -> Iterator[CheckResult]:
    """Check the contents of the store."""
    if not quick:
        yield from check_consistency(session.reader.health().problems)
    now, workers = session.reader.now(), session.reader.workers()
    alive = [worker for worker in workers if worker.heartbeat_status(now) is not HeartbeatStatus.DEAD]
    yield from check_workers(workers, now)
    counts = session.reader.counts()
    queues = session.reader.queues(list(counts)) if counts else []
    for queue in queues:
        yield from check_queue(queue, counts[queue.name], alive, session.settings.get("app"))
    yield from check_lanes(session.reader.lanes())
    yield from check_running(session, now)
    inactive = (QueueState.PAUSED, QueueState.DROPPED)
    active = {queue.name: counts[queue.name] for queue in queues if queue.state not in inactive}
    yield from check_stalled_queues(session.reader, alive, active, now)
    yield from check_timeouts(session.reader, now)
    yield from check_schedules(session.reader, now)
    yield from check_unattempted(session.reader)
    dead = sum(count.dead for count in counts.values())
    if dead:
        yield CheckResult(
            about="dead letters",
            message=f"{format_job_count(dead)} will not be retried",
            level="note",
            todo="forebay dead list; then forebay dead revive or forebay dead purge",
            see=DEAD,
        )


def check_consistency(problems: Iterable[str]) -> Iterator[CheckResult]:
    """Report the problems that the consistency check of the store found."""
    found = list(problems)
    if not found:
        yield CheckResult(about="consistency", message="jobs, leases, keys and counts agree")
    for problem in found[:_PROBLEMS_SHOWN]:
        yield CheckResult(about="consistency", message=problem, level="problem", todo=_remedy(problem))
    if found[_PROBLEMS_SHOWN:]:
        more = len(found) - _PROBLEMS_SHOWN
        yield CheckResult(about="consistency", message=f"and {more:,} more of this kind", level="problem")


def _remedy(problem: str) -> str:
    matching = (remedy for end, remedy in _REMEDIES.items() if problem.endswith(end))
    return next(matching, "restore the store from a backup")


def check_queue(
    queue: Queue, counts: Counts, alive: list[WorkerInfo], app: str | None
) -> Iterator[CheckResult]:
    """Check that the waiting jobs of a queue have a worker."""
    waiting = sum(getattr(counts, state) for state in WAITING)
    if not waiting:
        return
    about, wait = f"queue {queue.name}", f"{format_job_count(waiting)} {'waits' if waiting == 1 else 'wait'}"
    if queue.state is QueueState.PAUSED:
        yield CheckResult(
            about=about,
            message=f"it is paused, and {wait}",
            level="note",
            todo=f"forebay queues resume {queue.name}",
            see=DO_NOT_START,
        )
    elif queue.state is QueueState.DROPPED:
        yield CheckResult(
            about=about,
            message=f"it was deleted, and {wait}; the sweep moves them to the dead letters",
            level="note",
        )
    elif not any(queue.name in worker.queues for worker in alive):
        yield CheckResult(
            about=about,
            message=f"{wait}, and no worker works on it",
            level="problem",
            todo=f"forebay worker {app or 'package.module:app'} --queues {queue.name}",
            see=DO_NOT_START,
        )


def check_lanes(lanes: Iterable[LaneCount]) -> Iterator[CheckResult]:
    """Check for parked jobs: no worker of their queue could run them."""
    for lane in lanes:
        if is_fairness_lane(lane.lane) or is_limit_lane(lane.lane):
            continue  # these jobs wait for their fairness key or for a limit, as intended
        needed, todo = _lane_requirement(lane.lane)
        wait = "waits" if lane.jobs == 1 else "wait"
        yield CheckResult(
            about=f"queue {lane.queue}",
            message=f"{format_job_count(lane.jobs)} {wait} for a worker that {needed}",
            level="problem",
            todo=f"{todo}; or cancel the jobs",
            see=DO_NOT_START,
        )


def _lane_requirement(lane: str) -> tuple[str, str]:
    """Return what a worker needs to run the jobs of a lane, and the remedy."""
    kind, _, name = lane.partition(":")
    if kind == "task":
        return (
            f"has the task {name}",
            f"start a worker whose app has it; if the function was renamed, give its task aliases=[{name!r}]",
        )
    if kind == "payload":
        return f"reads payloads of version {name}", "upgrade the workers of this queue"
    if name == "blobs":
        return (
            "has the blob store",
            "start workers with blob_store=, and check that they can reach it",
        )
    return f"has the {name}", "start workers with it in encryption_keys="


def check_running(session: StoreSession, now: int) -> Iterator[CheckResult]:
    """Check for jobs that have been running for more than an hour."""
    stuck = find_running_longer(session.reader, now, HOUR_MS)
    if stuck:
        longest = stuck[0]
        since = format_duration(now - (longest.started_at or now))
        yield CheckResult(
            about="running",
            message=f"{format_job_count(len(stuck))} for over an hour; {longest.id} "
            f"({longest.task}) for {since}",
            level="problem",
            todo=f"forebay stuck; then forebay jobs cancel {longest.id}",
            see=RUNS_ON,
        )
