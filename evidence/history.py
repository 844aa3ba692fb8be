"""What has happened, from three sides, and whether it keeps the promises.

Producers write down what they were told, handlers what they did (outside of the store, with the fencing token
of their attempt), and the store says in the end what has become of each job. `problems` compares the three.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from forebay.domain.concurrency_and_rate_limits import Limit, narrow_scopes, scopes_of
from forebay.domain.job import Job, JobId, OnFailure, QueueName, UniqueUntil, WorkerId
from forebay.domain.job_history import Timeline
from forebay.domain.job_states import FINAL, JobState
from forebay.domain.lease import Lease
from forebay.domain.schedule import ScheduleRun, ScheduleRunStatus


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """What a producer was told: this job is stored. Times are those of the store."""

    id: JobId
    at: int
    due_at: int
    queue: QueueName
    task: str
    unique_key: str | None = None
    unique_until: UniqueUntil = UniqueUntil.FINAL
    parents: tuple[tuple[JobId, OnFailure], ...] = ()
    limit_keys: Mapping[str, str] = field(default_factory=dict)
    sequence: str | None = None


@dataclass(frozen=True, kw_only=True)
class Start:
    """A handler has begun, under this token."""

    lease: Lease
    worker: WorkerId
    at: int


@dataclass(frozen=True, kw_only=True)
class End:
    """A handler has come to its end; `is_good` if it returned."""

    lease: Lease
    at: int
    is_good: bool


@dataclass(kw_only=True)
class Span:
    """A stretch of time for which a lease was held. One that has ended and is renewed before another worker
    has taken the job over begins another stretch, which no claim has asked for."""

    began_at: int
    ends_at: int
    is_claimed: bool = True


@dataclass(kw_only=True)
class History:
    """All that was written down outside of the store."""

    accepted: dict[JobId, Accepted] = field(default_factory=dict)
    deleted: set[JobId] = field(default_factory=set)
    starts: list[Start] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    leases: dict[Lease, list[Span]] = field(default_factory=dict)

    def claimed(self, lease: Lease, at: int, ends_at: int) -> None:
        self.leases[lease] = [Span(began_at=at, ends_at=ends_at)]

    def renewed(self, lease: Lease, at: int, ends_at: int) -> None:
        spans = self.leases[lease]
        if at >= spans[-1].ends_at:
            spans.append(Span(began_at=at, ends_at=ends_at, is_claimed=False))
        spans[-1].ends_at = max(spans[-1].ends_at, ends_at)

    def over(self, lease: Lease, at: int) -> None:
        """The lease was settled, taken over or taken away."""
        for span in self.leases.get(lease, ()):
            span.ends_at = min(span.ends_at, at)


Lives = Mapping[JobId, Timeline | None]


def problems(
    history: History,
    lives: Lives,
    *,
    limits: Sequence[Limit] = (),
    schedule_runs: Mapping[str, Sequence[ScheduleRun]] | None = None,
    is_ordered: bool = True,
) -> Iterator[str]:
    """What is wrong; nothing where every promise was kept. `lives` has what the store says of each accepted
    job, `schedule_runs` what it says of each schedule. The store's times are compared unless `is_ordered` is
    false, because its clock was set back."""
    yield from lost(history, lives)
    yield from finishers(history, lives, is_ordered=is_ordered)
    for name, lines in (schedule_runs or {}).items():
        yield from fired_twice(name, lines)
    if not is_ordered:
        return
    yield from early(history, lives)
    yield from too_soon_after_parents(history, lives)
    yield from out_of_order(history, lives)
    yield from shared_keys(history, lives)
    for limit in limits:
        yield from exceeded(history, limit)


def lost(history: History, lives: Lives) -> Iterator[str]:
    """Every accepted job reaches a final state."""
    for job_id in history.accepted:
        life = lives.get(job_id)
        if life is None:
            if job_id not in history.deleted:
                yield f"{job_id} was accepted and is gone"
        elif life.job.state not in FINAL:
            yield f"{job_id} was accepted and is still {life.job.state}"


def finishers(history: History, lives: Lives, *, is_ordered: bool = True) -> Iterator[str]:
    """No attempt is run twice; of a completed job one attempt has finished it, the newest, and it is the one
    whose handler returned."""
    runs = Counter(start.lease for start in history.starts)
    yield from (f"{lease} was run {times} times" for lease, times in runs.items() if times > 1)
    newest: dict[JobId, int] = {}
    for lease in runs:
        newest[lease.job_id] = max(lease.attempt, newest.get(lease.job_id, 0))
    workers = {start.lease: start.worker for start in history.starts}
    # The time of a return means nothing where the store's clock was set back.
    returned = {end.lease: end.at if is_ordered else 0 for end in history.ends if end.is_good}
    for job_id, life in lives.items():
        if life is None:
            continue
        if newest.get(job_id, 0) > life.job.attempt:
            yield f"{job_id}: attempt {newest[job_id]} was run, and the store knows of {life.job.attempt}"
        if life.job.state is JobState.COMPLETED:
            yield from _finisher(life, workers, returned)


def _finisher(
    life: Timeline, workers: Mapping[Lease, WorkerId], returned: Mapping[Lease, int]
) -> Iterator[str]:
    lease = Lease(life.job.id, life.job.attempt)
    # One that returns later was not the one whose word has finished the job.
    if lease not in returned or returned[lease] > (life.job.finished_at or 0):
        yield f"{lease} is recorded as the finisher, and its handler had not returned"
    elif workers[lease] != life.job.worker:
        yield f"{lease} was finished by {life.job.worker}, and {workers[lease]} has run it"
    if any(row.attempt == lease.attempt for row in life.attempts):
        yield f"{lease} has finished the job and stands among the failed attempts"


def early(history: History, lives: Lives) -> Iterator[str]:
    """Nothing starts before it is due, unless it was revived, or without a lease of its own."""
    for start in history.starts:
        job, life = history.accepted.get(start.lease.job_id), lives.get(start.lease.job_id)
        if job is not None and life is not None and not _was_revived(life) and start.at < job.due_at:
            yield f"{start.lease} was started {job.due_at - start.at} ms before it was due"
        if history.leases and start.lease not in history.leases:
            yield f"{start.lease} was started and no worker has claimed it"


def too_soon_after_parents(history: History, lives: Lives) -> Iterator[str]:
    """A job that depends on others starts after they have ended, and not at all where they have failed and it
    was to fail with them. Parents that were revived have more than one end, and are left out."""
    first = _first_starts(history)
    for child in history.accepted.values():
        own = lives.get(child.id)
        if child.id not in first or own is None or _was_revived(own):
            continue
        for parent_id, on_failure in child.parents:
            life = lives.get(parent_id)
            if life is None or life.job.finished_at is None or _was_revived(life):
                continue
            if first[child.id] < life.job.finished_at:
                yield f"{child.id} was started before its parent {parent_id} had ended"
            if life.job.state is not JobState.COMPLETED and on_failure is not OnFailure.IGNORE:
                yield f"{child.id} was started, and its parent {parent_id} is {life.job.state}"


def _first_starts(history: History) -> dict[JobId, int]:
    first: dict[JobId, int] = {}
    for start in history.starts:
        first[start.lease.job_id] = min(start.at, first.get(start.lease.job_id, start.at))
    return first


def out_of_order(history: History, lives: Lives) -> Iterator[str]:
    """The jobs of a sequence run one after the other, in the order in which they were accepted. Those that
    were revived came last again, and are left out."""
    first = _first_starts(history)
    sequences: dict[str, list[Job]] = defaultdict(list)
    for accepted in history.accepted.values():
        life = lives.get(accepted.id)
        if accepted.sequence is not None and life is not None and not _was_revived(life):
            sequences[accepted.sequence].append(life.job)
    for sequence, jobs in sequences.items():
        jobs.sort(key=lambda job: job.seq)
        last: Job | None = None
        for job in jobs:
            ended_at = 0 if last is None else last.finished_at or 0
            if last is not None and first.get(job.id, ended_at) < ended_at:
                yield f"{job.id} of the sequence {sequence} was started before {last.id} had ended"
            if (job.finished_at or 0) >= ended_at:
                last = job


def _was_revived(life: Timeline) -> bool:
    return any(event.kind in ("revived", "more") for event in life.events)


def shared_keys(history: History, lives: Lives) -> Iterator[str]:
    """Of the jobs with one unique key only one is alive at a time."""
    holders: dict[tuple[str, str], list[tuple[int, int, JobId]]] = defaultdict(list)
    for job in history.accepted.values():
        life = lives.get(job.id)
        if life is None or _was_revived(life):
            continue
        ended_at = life.job.finished_at
        if job.unique_key is not None and job.unique_until is UniqueUntil.FINAL and ended_at is not None:
            holders[job.queue, job.unique_key].append((job.at, ended_at, job.id))
    for (queue, key), spans in holders.items():
        spans.sort()
        for (_, ended_at, one), (began_at, _, other) in pairwise(spans):
            if began_at < ended_at:
                yield f"{one} and {other} of {queue} were alive together with the unique key {key!r}"


def exceeded(history: History, limit: Limit) -> Iterator[str]:
    """No claim takes more than the limit leaves: at once, by leases that have not ended, and in a time. What
    was handed back before it was started does not count for a rate, and gives its token to another one."""
    started = {start.lease for start in history.starts}
    scopes: dict[str, list[Span]] = defaultdict(list)
    claims: dict[str, list[int]] = defaultdict(list)
    returns: dict[str, list[int]] = defaultdict(list)
    for lease, spans in history.leases.items():
        job = history.accepted.get(lease.job_id)
        for scope in () if job is None else _counted_by(limit, job):
            scopes[scope] += spans
            if lease in started:
                claims[scope].append(spans[0].began_at)
            else:
                returns[scope].append(spans[-1].ends_at)
    for scope, spans in scopes.items():
        most = _most_at_once(spans)
        if limit.concurrency is not None and most > limit.concurrency:
            yield f"{most} leases were held at once under the limit of {limit.concurrency} for {scope}"
    for scope, times in claims.items():
        yield from _too_fast(limit, scope, sorted(times), returns[scope])


def _counted_by(limit: Limit, job: Accepted) -> Iterator[str]:
    if limit.scope in scopes_of(job.queue):
        yield limit.scope
    yield from (scope for of, scope in narrow_scopes(job.task, job.limit_keys) if of == limit.scope)


def _most_at_once(spans: Iterable[Span]) -> int:
    """The most leases that there were right after a claim."""
    # Of what happens in one millisecond ends come first, then claims, then leases that are renewed too late:
    # those may have been renewed after the claim.
    changes = sorted(
        change
        for span in spans
        if span.ends_at > span.began_at
        for change in ((span.began_at, 1, not span.is_claimed), (span.ends_at, -1, True))
    )
    held = most = 0
    for _, change, is_unasked in changes:
        held += change
        if not is_unasked:
            most = max(most, held)
    return most


def _too_fast(limit: Limit, scope: str, claims: Sequence[int], returns: Sequence[int]) -> Iterator[str]:
    """A full bucket, what flows in meanwhile and what comes back is the most that any stretch of time has.

    Of all stretches that end with a claim the worst is known from the one before: it goes on, or a new one
    begins here. `used` is what that one takes out of the bucket, in parts of a token as `Limit` counts them.
    """
    if limit.rate is None:
        return
    backs = sorted(returns)
    used = count = began_at = last_at = 0
    for at in claims:
        back = bisect_right(backs, at) - bisect_right(backs, last_at)
        used -= (at - last_at) * limit.rate + back * limit.per_ms
        count, last_at = count + 1, at
        afresh = (bisect_left(backs, at) - bisect_right(backs, at)) * limit.per_ms
        if used <= afresh:
            used, count, began_at = afresh, 1, at
        used += limit.per_ms
        if used > limit.burst_size * limit.per_ms:
            yield f"{count} jobs of {scope} were started within {at - began_at} ms"
            return


def fired_twice(name: str, lines: Sequence[ScheduleRun]) -> Iterator[str]:
    """Each time of a schedule gives one job."""
    times = Counter(line.planned_at for line in lines if line.status is ScheduleRunStatus.ENQUEUED)
    yield from (f"{name} was fired {count} times for {at}" for at, count in times.items() if count > 1)
