"""What workers and their jobs look like when something is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal

from forebay.app.schedules import all_schedules
from forebay.cli.output import jobs_of, length
from forebay.cli.stats import running
from forebay.domain.job import Job, QueueName
from forebay.domain.lifecycle import JobState
from forebay.domain.query import MAX_PAGE, Counts, JobQuery
from forebay.domain.worker import Pulse, WorkerInfo, WorkerState
from forebay.stores.protocol import Reader

# The worker itself ends a job at its timeout; whoever is still running so much later is not being watched.
OVERRUN_MS: Final = 60_000
# A pool in which nothing has begun for so long, though jobs could, is not slow but stuck.
QUIET_MS: Final = 300_000
# How many of the newest dead letters are looked at.
_DEAD_LOOKED_AT: Final = 1_000

# Where users read more about what is found; `see` names a heading of it.
TROUBLESHOOTING: Final = "docs/troubleshooting.md"
DO_NOT_START: Final = "jobs-do-not-start"
RUNS_ON: Final = "a-job-runs-and-does-not-end"
SILENT: Final = "a-worker-is-silent-or-claims-nothing"
DEAD: Final = "jobs-are-dead"

Level = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
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


def of_workers(workers: Sequence[WorkerInfo], now: int) -> Iterator[Finding]:
    """Who is alive, who has gone without a word, and who is there and not well."""
    alive = sum(one.pulse(now) is Pulse.ALIVE for one in workers)
    yield Finding(
        about="workers",
        message=f"{alive} alive",
        level="ok" if alive else "note",
        see="" if alive else DO_NOT_START,
    )
    yield from chain.from_iterable(_of_worker(one, now) for one in workers)


def _of_worker(one: WorkerInfo, now: int) -> Iterator[Finding]:
    name, since = f"{one.id} on {one.host} (pid {one.pid})", length(max(0, now - one.beat_at))
    match one.pulse(now):
        case Pulse.DEAD:
            yield Finding(
                about="workers",
                message=f"{name} has been silent for {since}",
                level="note",
                todo="forebay sweep --dead-workers hands back the jobs of workers that died",
                see="a-worker-is-killed-or-dies-again-and-again",
            )
            return
        case Pulse.STALE:
            yield Finding(
                about="workers",
                message=f"{name} is stale: its last beat was {since} ago",
                level="note",
                see=SILENT,
            )
    yield from (
        Finding(about="workers", message=f"{name} {trouble}", level="problem", todo=todo, see=see)
        for trouble, todo, see in _troubles(one)
    )


def _troubles(one: WorkerInfo) -> Iterator[tuple[str, str, str]]:
    look = f"forebay workers stacks {one.id} shows where it hangs"
    if one.state is WorkerState.SILENT:
        yield "lives, and its loop does not move: it claims and settles nothing", look, SILENT
    if one.stuck:
        yield f"has {jobs_of(one.stuck)} that did not stop when told to", look, RUNS_ON
    if one.is_worn:
        what = f"has {one.abandoned} abandoned threads, more than it may replace"
        yield what, f"{look}; then restart it", RUNS_ON
    if one.is_overdue:
        kill = f"{look}; then kill {one.pid} on {one.host}"
        yield "is stopping for longer than it may", kill, "a-worker-does-not-stop"


def of_pools(
    reader: Reader, workers: Sequence[WorkerInfo], counts: Mapping[QueueName, Counts], now: int
) -> Iterator[Finding]:
    """Queues whose workers are alive while nothing comes of it: jobs could run, and none begins or ends.

    Where the workers have jobs, those may just be long: that is worth a note. Where they have none, something
    is wrong.
    """
    started = {job.queue: job.started_at or 0 for job in sorted(running(reader), key=_began)}
    for name, count in counts.items():
        able = [one for one in workers if name in one.queues and name not in one.paused]
        if not count.pending or not able:
            continue
        since = max(_last_ended(reader, name), started.get(name, 0), min(one.started_at for one in able))
        waits = _oldest(reader, name)
        if waits is not None and now - max(since, waits) > QUIET_MS:
            alive = "its worker is alive" if len(able) == 1 else f"its {len(able)} workers are alive"
            yield Finding(
                about=f"queue {name}",
                message=f"{jobs_of(count.pending)} could run, {alive}, and nothing has begun or ended for "
                f"{length(now - max(since, waits))}",
                level="note" if any(one.running for one in able) else "problem",
                todo=f"forebay workers stacks {able[0].id}; forebay jobs list --queue {name} --state running",
                see=SILENT,
            )


def _began(job: object) -> int:
    return getattr(job, "started_at", None) or 0


def _last_ended(reader: Reader, queue: QueueName) -> int:
    """When a job of this queue has last come to an end; 0 if none is kept. The newest are looked at: jobs are
    listed by the order in which they were stored, and a pool that works ends new ones too."""
    states = (JobState.COMPLETED, JobState.DEAD, JobState.CANCELLED)
    page = reader.search(JobQuery(queues=(queue,), states=states), limit=100)
    return max((job.finished_at or 0 for job in page.jobs), default=0)


def _oldest(reader: Reader, queue: QueueName) -> int | None:
    """Since when the job that comes next could have been run; None if no claim would find one."""
    return next((max(job.created_at, job.run_at) for job in reader.peek(queue, 1)), None)


def of_overrun(reader: Reader, now: int) -> Iterator[Finding]:
    """Jobs that run far beyond their time limit."""
    found = [job for job in _records(reader) if _overrun(job, now) > 0]
    if found:
        worst = max(found, key=lambda job: _overrun(job, now))
        yield Finding(
            about="timeouts",
            message=f"{jobs_of(len(found))} beyond the timeout; {worst.id} ({worst.task}) "
            f"by {length(_overrun(worst, now))}",
            level="problem",
            todo=f"forebay workers stacks {worst.worker}; or forebay jobs cancel {worst.id} --force",
            see=RUNS_ON,
        )


def _records(reader: Reader) -> Iterator[Job]:
    ids = [job.id for job in running(reader)]
    for start in range(0, len(ids), MAX_PAGE):
        yield from (job for job in reader.jobs(ids[start : start + MAX_PAGE]) if job is not None)


def _overrun(job: Job, now: int) -> int:
    """How long a job has been running beyond what can be explained; 0 if it has not."""
    if job.state is not JobState.RUNNING or job.timeout_ms is None or job.started_at is None:
        return 0
    over = now - job.started_at - job.timeout_ms
    return over if over > OVERRUN_MS else 0


def of_schedules(reader: Reader, now: int) -> Iterator[Finding]:
    """Schedules that were due long ago, and that nobody has fired."""
    waiting = [one for one in all_schedules(reader) if one.due_at is not None]
    late = sorted((one.due_at or 0, one.name) for one in waiting if now - (one.due_at or 0) > OVERRUN_MS)
    if late:
        due_at, name = late[0]
        yield Finding(
            about="schedules",
            message=f"{len(late)} of {len(waiting)} were due and have not been fired; {name} "
            f"for {length(now - due_at)}",
            level="problem",
            todo="schedules are fired by workers of any queue: start one, or `forebay scheduler`",
            see="a-schedule-is-silent",
        )


def of_unrun(reader: Reader) -> Iterator[Finding]:
    """Dead letters that nobody has ever tried."""
    page = reader.search(JobQuery(states=(JobState.DEAD,)), limit=_DEAD_LOOKED_AT)
    found = [job for job in page.jobs if job.attempt == 0]
    if found:
        reasons = _listed({job.reason or "no reason" for job in found})
        yield Finding(
            about="dead letters",
            message=f"{jobs_of(len(found))} went from pending to dead without a single attempt: {reasons}",
            level="note",
            todo=f"forebay dead show {found[0].id}",
            see=DEAD,
        )


def _listed(words: Iterable[str]) -> str:
    some = sorted(words)
    return ", ".join(some[:3]) + (" ..." if len(some) > 3 else "")  # noqa: PLR2004 - as many as fit a line
