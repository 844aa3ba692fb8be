"""What was written down during a soak, put together as a history and held against the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec
from msgspec import structs

from evidence.history import Accepted, End, History, Start, exceeded, problems
from evidence.load import LEASE_MS, LIMITS
from forebay import Forebay
from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.domain.job import DEFAULT_QUEUE, JobId, WorkerId
from forebay.domain.job_history import Timeline
from forebay.domain.lease import Lease
from forebay.domain.schedule import ScheduleRun, ScheduleRunStatus

# The store notes the time of a claim a moment before or after it takes the token, if it waits for a lock.
SLACK_SECONDS: Final = 1

ScheduleRuns = Mapping[str, Mapping[tuple[int, str], ScheduleRun]]


@dataclass
class Account:
    """What has become of all jobs, and what is wrong."""

    accepted: int = 0
    states: Counter[str] = field(default_factory=Counter)
    bad_attempts: Counter[str] = field(default_factory=Counter)
    attempts: int = 0
    schedule_runs: int = 0
    problems: list[str] = field(default_factory=list)


def compare(app: Forebay, folder: Path, schedule_runs: ScheduleRuns) -> Account:
    """Hold what was told and done against what the store says."""
    lines = {name: list(known.values()) for name, known in schedule_runs.items()}
    fired = [
        line.job_id for known in lines.values() for line in known if line.status is ScheduleRunStatus.ENQUEUED
    ]
    accepted = read_accepted(folder / "told.jsonl")
    lives = {job_id: app.client.history(job_id) for job_id in (*accepted, *fired) if job_id is not None}
    done = done_of(folder / "effects.log")
    for job_id, life in lives.items():
        done.history.accepted[job_id] = as_accepted(job_id, accepted.get(job_id), life)
    account = Account(accepted=len(lives), attempts=len(done.history.starts), schedule_runs=len(fired))
    for life in (one for one in lives.values() if one is not None):
        account.states["expired" if life.job.reason == "expired" else life.job.state.value] += 1
        account.bad_attempts.update(row.outcome.value for row in life.attempts)
    account.problems += [*problems(done.history, lives, schedule_runs=lines), *done.beyond_limits()]
    account.problems += app.client.read(lambda reader: reader.health()).problems
    return account


def as_accepted(job_id: JobId, accepted: Accepted | None, life: Timeline | None) -> Accepted:
    """A job as its producer knows it; one of a schedule is due when it is made. When it took its unique key
    only the store can say."""
    created_at = life.job.created_at if life is not None else 0
    if accepted is None:
        return Accepted(id=job_id, at=created_at, due_at=created_at, queue=DEFAULT_QUEUE, task="work")
    return replace(accepted, at=created_at)


def read_accepted(file: Path) -> dict[JobId, Accepted]:
    """What producers were told. Of those who heard of the same job the first has asked for it, and the others
    found their unique key taken."""
    decoder = msgspec.json.Decoder(Accepted)
    accepted: dict[JobId, Accepted] = {}
    with file.open("rb") as lines:
        for one in map(decoder.decode, lines):
            accepted.setdefault(one.id, one)
    return accepted


@dataclass
class Done:
    """What handlers have written down."""

    history: History = field(default_factory=History)
    claimed_at: dict[Lease, int] = field(default_factory=dict)

    def note(self, word: str, job_id: str, attempt: str, worker: str, claimed_at: str, at: str) -> None:
        lease = Lease(JobId(job_id), int(attempt))
        self.claimed_at[lease] = int(claimed_at)
        if word == "start":
            self.history.starts.append(Start(lease=lease, worker=WorkerId(worker), at=int(at)))
        else:
            self.history.ends.append(End(lease=lease, at=int(at), is_good=word == "end"))

    def beyond_limits(self) -> Iterator[str]:
        """An attempt counts from its first line to its last, but for no longer than an unrenewed lease lasts
        from its claim: so long it surely had its lease. Of one without a last line that is unknown. Under a
        rate it is the claim that counts."""
        started = {start.lease: start.at for start in self.history.starts}
        for limit in LIMITS:
            self.history.leases = {}
            if limit.rate is not None:
                for lease, at in self.claimed_at.items():
                    self.history.claimed(lease, at, at)
            else:
                for end in self.history.ends:
                    until = min(end.at, self.claimed_at[end.lease] + LEASE_MS)
                    self.history.claimed(end.lease, started[end.lease], until)
            yield from exceeded(self.history, _with_slack(limit))


def _with_slack(limit: Limit) -> Limit:
    if limit.rate is None:
        return limit
    return structs.replace(limit, burst=limit.burst_size + limit.rate * SLACK_SECONDS)


def done_of(file: Path) -> Done:
    done = Done()
    with file.open(encoding="ascii") as lines:
        for line in lines:
            done.note(*line.split())
    return done
