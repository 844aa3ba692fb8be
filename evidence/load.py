"""The mixed load of a soak: the tasks, what is asked for, and what operators do meanwhile.

Every task writes to a log outside of the store when it starts and how it ends, under the token of its
attempt. A producer writes down what it was told. What was not accepted, or may have been, is asked for
again under the same keys: so nothing is enqueued twice, and everything that was accepted is known.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from evidence.history import Accepted
from forebay import Forebay, Snooze, current_job
from forebay.clock import SystemClock
from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.domain.fairness import FAIRNESS
from forebay.domain.job import Dependency, JobId, NewJob, OnFailure, QueueName
from forebay.domain.retry_policy import MAX_RETRIES, Curve, RetryPolicy
from forebay.domain.schedule import ScheduleRun
from forebay.errors import StoreUnavailable

LEASE_MS: Final = 2_000  # short, so that some who are stopped lose theirs
SLICE_SECONDS: Final = 0.05
FEED_SECONDS: Final = 0.25
SCHEDULE_RUNS_SECONDS: Final = 5.0  # the store keeps the last hundred, and there is one each second
OPERATE_SECONDS: Final = 0.5
RECENT: Final = 100
MOST_LIVE: Final = 400  # some seconds' work for all workers
TENANTS: Final = 20
SLOW: Final = QueueName("slow")
LIMITS: Final = (
    Limit(scope="global", concurrency=12),
    Limit(scope="key:tenant", concurrency=2),
    Limit(scope="queue:slow", concurrency=3),
    Limit(scope="task:metered", rate=6, burst=10),
)
SCHEDULES: Final[dict[str, Any]] = {"each second": {"every": 1}, "by cron": {"cron": "*/2 * * * * *"}}
POLICY: Final = RetryPolicy(max_crashes=MAX_RETRIES, curve=Curve.FIXED, base_ms=100)
KEPT: Final = 0.1  # of what was asked for, how much an operator looks at

MODULE: Final = """
import os
from pathlib import Path

from evidence.load import make_app, opened

folder = Path(__file__).parent
url = (folder / f"url-{os.environ['SOAK_POST']}").read_text()
app = make_app(url, opened(folder / "effects.log"))
"""


class Boom(Exception):
    """A task fails on purpose."""


def opened(log: Path) -> int:
    """The log, to be written to by many processes: lines are short, and appended by one write each."""
    return os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


now_ms: Final = SystemClock().now_ms


@contextmanager
def noted(log: int) -> Iterator[None]:
    """Write down that a task starts, and whether it returns, fails by itself or is stopped."""
    context = current_job()
    token = f"{context.id} {context.attempt} {context.fencing_token.worker} {context.claimed_at}"

    def note(word: str) -> None:
        os.write(log, f"{word} {token} {now_ms()}\n".encode())

    note("start")
    try:
        yield
    except BaseException:
        note("stop")
        raise
    note("end")


def make_app(url: str, log: int) -> Forebay:
    """The app of every process."""
    app = Forebay(url)
    options: Any = {"lease": LEASE_MS / 1_000, "retry_policy": POLICY}

    @app.task(name="work", **options)
    def work(ms: int, fails: int = 0, snoozes: int = 0) -> int:
        with noted(log):
            ends = time.monotonic() + ms / 1_000
            while (left := ends - time.monotonic()) > 0:
                time.sleep(min(left, SLICE_SECONDS))
            _end_badly(fails, snoozes)
        return ms

    @app.task(name="wait", **options)
    async def wait(ms: int, fails: int = 0) -> int:
        with noted(log):
            await asyncio.sleep(ms / 1_000)
            _end_badly(fails, 0)
        return ms

    @app.task(name="metered", **options)
    def metered(ms: int) -> int:
        with noted(log):
            time.sleep(ms / 1_000)
        return ms

    return app


def _end_badly(fails: int, snoozes: int) -> None:
    """The first attempts of a job may end otherwise than well."""
    job = current_job().job
    if job.attempt <= snoozes:
        raise Snooze(0.3)
    if job.failures < fails:
        raise Boom("on purpose")


class Request(msgspec.Struct, kw_only=True):
    """A job that is asked for until it is accepted."""

    kind: str
    job: NewJob
    requested_at: int


def accepted(request: Request, job_id: JobId, parents: tuple[tuple[JobId, OnFailure], ...]) -> Accepted:
    """What a producer knows of its job; `at` is when it has asked first."""
    job = request.job
    return Accepted(
        id=job_id,
        at=request.requested_at,
        due_at=job.run_at or request.requested_at + job.delay_ms,
        queue=job.queue,
        task=job.task,
        unique_key=job.unique_key,
        parents=parents,
        limit_keys=job.limit_keys,
        sequence=job.sequence,
    )


class Feed:
    """Enqueues evenly over the time as long as not too much waits already, lets schedules fire, and cancels
    and revives now and then."""

    def __init__(self, app: Forebay, folder: Path, rate: float, dice: random.Random) -> None:
        self._app = app
        self._rate = rate
        self._dice = dice
        self._next = 0.0
        self._fed_at = 0.0
        self._owed = 0.0
        self._operate_at = 0.0
        self._schedule_runs_at = SCHEDULE_RUNS_SECONDS
        self._numbers = 0
        self._turns = cycle(KINDS)
        self._requests: list[Request] = []
        self._recent: deque[JobId] = deque(maxlen=RECENT)
        self._accepted_file = (folder / "told.jsonl").open("wb")
        self.schedule_runs: dict[str, dict[tuple[int, str], ScheduleRun]] = {name: {} for name in SCHEDULES}
        self.kinds: Counter[str] = Counter()
        self.refusals = 0
        self.live = 0

    def begin(self) -> None:
        """Set limits and schedules."""
        for limit in LIMITS:
            self._app.client.write(lambda store, limit=limit: store.save_limit(limit))  # type: ignore[misc]
        for name, when in SCHEDULES.items():
            self._app.schedules.save(name, "work", [5], **when)

    def give(self, lasts: float) -> None:
        """What is due after so many seconds."""
        try:
            if lasts >= self._next:
                self._next = lasts + FEED_SECONDS
                self._enqueue(lasts)
            if lasts >= self._operate_at:
                self._operate_at = lasts + OPERATE_SECONDS
                self._operate()
            if lasts >= self._schedule_runs_at:
                self._schedule_runs_at = lasts + SCHEDULE_RUNS_SECONDS
                self._look_at_schedule_runs()
        except StoreUnavailable:
            self.refusals += 1

    @property
    def is_whole(self) -> bool:
        """Every kind of job was accepted, and a schedule has fired."""
        return len(self.kinds) == len(KINDS) and any(self.schedule_runs.values())

    def end(self) -> bool:
        """Nothing more is asked for; whether all that was is accepted."""
        try:
            self._ask()
            for name in SCHEDULES:
                self._app.schedules.pause(name)
            self._look_at_schedule_runs()
        except StoreUnavailable:
            self.refusals += 1
            return False
        self._accepted_file.close()
        return True

    def _enqueue(self, lasts: float) -> None:
        """What the time since the last look brings, but not what an outage has kept us from: a producer that
        makes up for that has workers that never catch up."""
        self._owed = min(self._owed + (lasts - self._fed_at) * self._rate, self._rate)
        self._fed_at = lasts
        self.live = sum(counts.live for counts in self._app.counts().values())
        now, room = now_ms(), MOST_LIVE - self.live - len(self._requests)
        while self._owed >= 1 and room > 0:
            some = self._some()
            self._requests += [Request(kind=kind, job=job, requested_at=now) for kind, job in some]
            self._owed -= len(some)
            room -= len(some)
        self._ask()

    def _ask(self) -> None:
        if not self._requests:
            return
        handles = self._app.enqueue_many([one.job for one in self._requests])
        ids = [handle.id for handle in handles]
        for place, (one, job_id) in enumerate(zip(self._requests, ids, strict=True)):
            parents = tuple(
                (ids[place - need.parent] if isinstance(need.parent, int) else need.parent, need.on_failure)
                for need in one.job.depends_on
            )
            self._accepted_file.write(msgspec.json.encode(accepted(one, job_id, parents)) + b"\n")
            self.kinds[one.kind] += 1
        self._recent.extend(ids)
        self._requests = []

    def _some(self) -> list[tuple[str, NewJob]]:
        """The next jobs, of one kind."""
        kind = next(self._turns)
        made = []
        for job in KINDS[kind](self):
            keys = {"tenant": str(self._dice.randrange(TENANTS)), **job.limit_keys}
            made.append((kind, replace(job, idempotency_key=f"feed {self._numbers}", limit_keys=keys)))
            self._numbers += 1
        return made

    def _job(self, name: str, *args: Any, **changes: Any) -> NewJob:
        return replace(self._app.registry[name].job(*args), **changes)

    def _short(self) -> list[NewJob]:
        ms = self._dice.randint(1, 200)
        return [self._job(self._dice.choice(("work", "wait")), ms)]

    def _long(self) -> list[NewJob]:
        """Longer than a lease: it has to be renewed."""
        return [self._job(self._dice.choice(("work", "wait")), self._dice.randint(2_500, 6_000))]

    def _retrying(self) -> list[NewJob]:
        return [self._job(self._dice.choice(("work", "wait")), 5, self._dice.randint(1, 3))]

    def _dying(self) -> list[NewJob]:
        return [self._job("work", 5, 99, policy=replace(POLICY, max_retries=1))]

    def _snoozing(self) -> list[NewJob]:
        return [self._job("work", 5, 0, 2)]

    def _delayed(self) -> list[NewJob]:
        return [self._job("work", 5, delay_ms=self._dice.randint(100, 3_000))]

    def _dated(self) -> list[NewJob]:
        return [self._job("work", 5, run_at=now_ms() + self._dice.randint(100, 3_000))]

    def _expiring(self) -> list[NewJob]:
        """Some have not begun by then: the queue is slow."""
        return [
            self._job("work", 300, queue=SLOW, delay_ms=delay_ms, expires_at=now_ms() + 1_500)
            for delay_ms in (0, 0, 2_500)
        ]

    def _chain(self) -> list[NewJob]:
        """A step, three beside each other of which one may fail, and a join."""
        failing = self._dice.choice((0, 0, 99))
        on_failure = self._dice.choice((OnFailure.CANCEL, OnFailure.FAIL, OnFailure.IGNORE))
        return [
            self._job("work", 20),
            self._job("work", 30, depends_on=(Dependency(1),)),
            self._job("wait", 5, failing, depends_on=(Dependency(2),), policy=replace(POLICY, max_retries=0)),
            self._job("work", 10, depends_on=(Dependency(3),)),
            self._job("work", 5, depends_on=tuple(Dependency(place, on_failure) for place in (3, 2, 1))),
        ]

    def _join(self) -> list[NewJob]:
        """Behind what was accepted before, whatever has become of it."""
        needs = tuple(Dependency(one, OnFailure.IGNORE) for one in dict.fromkeys(list(self._recent)[-10:]))
        return [self._job("work", 5, depends_on=needs)]

    def _unique(self) -> list[NewJob]:
        return [self._job("work", 100, unique_key=f"key {self._dice.randrange(3)}")]

    def _in_sequence(self) -> list[NewJob]:
        fails = self._dice.choice((0, 0, 1))
        return [
            self._job("work", 20, fails, sequence=f"sequence {self._dice.randrange(5)}") for _ in range(2)
        ]

    def _shared(self) -> list[NewJob]:
        share = self._dice.choice(("small", "large", "large"))
        return [self._job("work", 10, limit_keys={FAIRNESS: share}) for _ in range(2)]

    def _metered(self) -> list[NewJob]:
        return [self._job("metered", 10)]

    def _operate(self) -> None:
        """Cancel or revive something that was accepted a moment ago, whether it waits, runs or has ended."""
        if not self._recent:
            return
        client, some = self._app.client, self._dice.sample(self._recent, min(len(self._recent), 5))
        if self._dice.random() < KEPT:
            client.revive(some)
        else:
            client.cancel(some[:1], dependants=self._dice.random() < KEPT)

    def _look_at_schedule_runs(self) -> None:
        for name, known in self.schedule_runs.items():
            for line in self._app.schedules.history(name):
                known[line.planned_at, line.job_id or ""] = line


KINDS: Final = {
    "short": Feed._short,
    "delayed": Feed._delayed,
    "in sequence": Feed._in_sequence,
    "retrying": Feed._retrying,
    "chain": Feed._chain,
    "short again": Feed._short,
    "dated": Feed._dated,
    "unique": Feed._unique,
    "metered": Feed._metered,
    "long": Feed._long,
    "shared": Feed._shared,
    "dying": Feed._dying,
    "expiring": Feed._expiring,
    "snoozing": Feed._snoozing,
    "join": Feed._join,
}
