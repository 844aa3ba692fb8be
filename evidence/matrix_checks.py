"""What a store shows before and after a kill, how all other processes go on, and what must hold in the
end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

import msgspec

from evidence.history import Accepted, End, History, Lives, Start, problems
from evidence.matrix_places import Place
from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.domain.job import Job, JobId, NewJob, QueueName, WorkerId
from forebay.domain.job_query import JobQuery
from forebay.domain.lease import Lease
from forebay.domain.metrics import TEN_SECONDS
from forebay.domain.outcome import Completed, Lost
from forebay.domain.queue import QueueState
from forebay.domain.schedule_runs import plan_advance
from forebay.domain.settlement import decide
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.shared.metric_rows import iter_rows

HOUR: Final = 3_600_000
MOST_ROUNDS: Final = 30
QUEUES: Final = (QueueName("default"), QueueName("mail"))
OTHER: Final = WorkerId("the other worker")
SWEEPER: Final = WorkerId("the sweeper")
# A number that was drawn by a transaction that came to nothing is not drawn again.
_NUMBERS: Final = frozenset({"seq", "rank"})


class Stage:
    """One store with what was told and done outside of it: a row sets its scene here."""

    store: Store
    reader: Reader

    def __init__(self, place: Place) -> None:
        self._place = place
        self.clock = place.clock
        self.history = History()
        self.limits: list[Limit] = []
        self.commands: list[str] = []

    @contextmanager
    def open(self) -> Iterator[None]:
        """Inside, the store can be used. Not while a process is forked, which SQLite cannot bear."""
        engine = self._place.ours()
        with closing(engine.store()) as self.store, closing(engine.reader()) as self.reader:
            yield

    def put(self, *jobs: NewJob) -> list[JobId]:
        """Insert jobs as a producer who hears the answer."""
        ids = [JobId(str(receipt.id)) for receipt in self.store.insert(jobs)]
        for job, job_id in zip(jobs, ids, strict=True):
            self.accept(job_id, job)
        return ids

    def accept(self, job_id: JobId, job: NewJob) -> None:
        now = self.clock.now_ms()
        self.history.accepted[job_id] = Accepted(
            id=job_id,
            at=now,
            due_at=now + job.delay_ms,
            queue=job.queue,
            task=job.task,
            unique_key=job.unique_key,
            unique_until=job.unique_until,
            parents=tuple((JobId(str(need.parent)), need.on_failure) for need in job.depends_on),
            limit_keys=job.limit_keys,
        )

    def run(self, n: int = 1, worker: WorkerId = OTHER) -> list[Job]:
        """Claim jobs of all queues, and begin with them."""
        claims = [QueueClaim(queue, n) for queue in QUEUES]
        jobs = self.store.settle_and_claim(worker, claims=claims, room=n).jobs
        now = self.clock.now_ms()
        for job in jobs:
            lease = Lease(job.id, job.attempt)
            self.history.claimed(lease, now, job.lease_expires_at or now)
            self.history.starts.append(Start(lease=lease, worker=worker, at=now))
        return list(jobs)

    def returned(self, *jobs: Job) -> None:
        """Their handlers have come to an end."""
        now = self.clock.now_ms()
        self.history.ends += [End(lease=Lease(job.id, job.attempt), at=now, is_good=True) for job in jobs]

    def completed(self, *jobs: Job, worker: WorkerId = OTHER) -> None:
        """Their handlers have come to an end, and the store knows."""
        self.returned(*jobs)
        self.store.settle_and_claim(worker, [decide(job, Completed(b"1"), 0.0) for job in jobs])
        for job in jobs:
            self.history.over(Lease(job.id, job.attempt), self.clock.now_ms())

    def may_go(self, *ids: JobId) -> None:
        """An operator removes these."""
        self.history.deleted.update(ids)

    def job_ids(self) -> list[JobId]:
        """All there are, in the order in which they came."""
        return [job.id for job in reversed(self.reader.search(JobQuery(), limit=1_000).jobs)]


def shown(stage: Stage) -> dict[str, Any]:
    """All that the store shows, without what differs from store to store."""
    reader, ids = stage.reader, stage.job_ids()
    names = [schedule.name for schedule in reader.schedules()]
    commands = [one for one in reader.commands(stage.commands) if one is not None]
    seen = {
        "lives": {job_id: reader.history(job_id) for job_id in ids},
        "edges": reader.parents(ids),
        "counts": reader.counts(),
        "queues": reader.queues(),
        "held": reader.lanes(),
        "order": {queue: [job.id for job in reader.peek(queue, 100)] for queue in QUEUES},
        "workers": reader.workers(),
        "commands": [msgspec.structs.replace(one, id="") for one in commands],
        "limits": reader.limits(),
        "documents": reader.documents("api_key"),
        "metrics": list(iter_rows(reader, TEN_SECONDS, 0, 1)),
        "schedules": reader.schedules(),
        "schedule_runs": {name: reader.schedule_runs(name) for name in names},
        "audit": [event for _, event in reader.audit(limit=1_000)],
        "chain": [line.position for line in reader.audit_chain(limit=1_000)],
        "archive": reader.archive(),
    }
    return _comparable(seen, stage)


def _comparable(seen: dict[str, Any], stage: Stage) -> dict[str, Any]:
    """With numbers for ids, which are by chance."""
    text = msgspec.json.encode(_without_numbers(msgspec.to_builtins(seen))).decode()
    for number, job_id in enumerate(dict.fromkeys([*stage.history.accepted, *stage.job_ids()])):
        text = text.replace(job_id, f"job {number}")
    plain: dict[str, Any] = msgspec.json.decode(text)
    return plain


def _without_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_numbers(one) for key, one in value.items() if key not in _NUMBERS}
    return [_without_numbers(one) for one in value] if isinstance(value, list) else value


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Where two of these differ, for the developer who has to find out why."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}, key=str):
            yield from differences(one.get(key), other.get(key), f"{path}.{key}")
    elif one != other:
        yield f"{path.removeprefix('.')} is {one!r:.200} and not {other!r:.200}"


def goes_on(stage: Stage) -> None:
    """All other processes go on: time passes, leases end, and one worker does what is there to be done."""
    known = set(stage.history.accepted)
    for job in stage.reader.jobs([job_id for job_id in stage.job_ids() if job_id not in known]):
        if job is not None:
            stage.accept(job.id, NewJob(task=job.task, queue=job.queue))
    for queue in stage.reader.queues():
        stage.store.save_queue(queue.name, state=QueueState.ACTIVE)
    for _ in range(MOST_ROUNDS):
        stage.clock.advance(HOUR)
        _run_maintenance(stage)
        while jobs := stage.run(100):
            stage.completed(*jobs)
        if not any(counts.live for counts in stage.reader.counts().values()):
            return


def _run_maintenance(stage: Stage) -> None:
    store = stage.store
    store.promote()
    lost = store.sweep(SWEEPER)
    store.settle_and_claim(SWEEPER, [decide(job, Lost("its worker died"), 0.0) for job in lost])
    due = store.due_schedules()
    for fired in store.fire_schedules([plan_advance(schedule, due.now, 0.0) for schedule in due.schedules]):
        for schedule_run in fired.runs:
            [job] = stage.reader.jobs([schedule_run.job_id]) if schedule_run.job_id else [None]
            if job is not None and job.id not in stage.history.accepted:
                stage.accept(job.id, NewJob(task=job.task, queue=job.queue))
    store.promote()


def broken(stage: Stage) -> list[str]:
    """What does not hold in the end: what the checker finds, and what the store says of itself."""
    reader = stage.reader
    lives: Lives = {job_id: reader.history(job_id) for job_id in stage.history.accepted}
    schedule_runs = {schedule.name: reader.schedule_runs(schedule.name) for schedule in reader.schedules()}
    found = list(problems(stage.history, lives, limits=stage.limits, schedule_runs=schedule_runs))
    return [*found, *reader.health().problems]
