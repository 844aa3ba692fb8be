"""Random operations on each engine and on the memory engine side by side: they must never differ.

The memory engine is the model, the shortest reading of the contract. After every step the answers are
compared, then all that readers can see. For a longer run:

    export FOREBAY_MODEL_EXAMPLES=2000 FOREBAY_MODEL_STEPS=60
    pytest --hypothesis-profile=hunt tests/stores/test_model.py
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Final

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec.structs import asdict, replace

from forebay.domain.job import (
    Dependency,
    Job,
    JobId,
    NewJob,
    OnFailure,
    QueueName,
    UniqueUntil,
    WorkerId,
)
from forebay.domain.job_history import Event, EventKind
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import LIVE, JobState
from forebay.domain.job_update import JobUpdate
from forebay.domain.lane import lanes_for_program
from forebay.domain.lease import Lease
from forebay.domain.outcome import (
    AttemptError,
    Cancelled,
    Completed,
    Discarded,
    Failed,
    Interrupted,
    Lost,
    Outcome,
    Parked,
    Snoozed,
)
from forebay.domain.progress import LogLine, Progress, ProgressUpdate, StepResult
from forebay.domain.queue import QueueState
from forebay.domain.retry_policy import RetryPolicy
from forebay.domain.settlement import Settlement, decide
from forebay.domain.worker import WorkerInfo, WorkerState
from forebay.domain.worker_command import Command, CommandKind
from forebay.errors import ForebayError
from forebay.stores.contract.claims_and_results import OnConflict, QueueClaim
from forebay.stores.contract.engine import Engine
from forebay.stores.memory.engine import MemoryEngine
from forebay.stores.sqlite.engine import SqliteEngine
from forebay.testing.manual_clock import ManualClock
from tests.clocks import FollowedClock
from tests.stores import redis_support
from tests.stores.postgres_support import make_engine, release
from tests.stores.support import counting_ids, everything

SECOND: Final = 1_000
HOUR: Final = 3_600_000
DAY: Final = 86_400_000
ABSENT: Final = JobId("absent")
_PLAIN: Final = frozenset((int, bool, float, bytes))  # most values: a step compares thousands
_ERROR_FIELDS: Final = ("field", "queue", "limit", "holder", "client", "retry_after")  # by errors
MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it

EXAMPLES: Final = int(os.environ.get("FOREBAY_MODEL_EXAMPLES", "60"))
FEW: Final = 20  # for `make test`
STEPS: Final = int(os.environ.get("FOREBAY_MODEL_STEPS", "30"))

MakeEngine = Callable[[str, ManualClock], Engine]


def sqlite_with_given_ids(folder: str, clock: ManualClock) -> Engine:
    return SqliteEngine(f"{folder}/jobs.db", clock=clock, new_id=counting_ids(), durability="relaxed")


def sqlite_with_its_own_ids(folder: str, clock: ManualClock) -> Engine:
    return SqliteEngine(f"{folder}/jobs.db", clock=clock, durability="relaxed")


def postgresql(folder: str, clock: ManualClock) -> Engine:
    return make_engine(clock)


def postgresql_with_given_ids(folder: str, clock: ManualClock) -> Engine:
    return make_engine(clock, new_id=counting_ids())


def redis(folder: str, clock: ManualClock) -> Engine:
    return redis_support.make_engine(clock)


ENGINES: Final[dict[str, MakeEngine]] = {
    "sqlite": sqlite_with_its_own_ids,
    "sqlite-given-ids": sqlite_with_given_ids,
    "postgresql": postgresql,
    "postgresql-given-ids": postgresql_with_given_ids,
    "redis": redis,
}

# ------------------------------------------------------------------ what is played: few names, so they meet

QUEUES: Final = (QueueName("a"), QueueName("b"), QueueName("c"))
WORKERS: Final = (WorkerId("w1"), WorkerId("w2"), WorkerId("w3"))
BROKEN: Final = "\ud800"  # half of a surrogate pair, which no engine can write

A, B, C = QUEUES
queues = st.sampled_from([A, A, B, A, B, C])  # most jobs meet in one queue
workers = st.sampled_from(WORKERS)
picks = st.integers(0, 9)
some = st.lists(picks, min_size=1, max_size=3)
limits = st.sampled_from([1_000, 1, 2])
waits = st.sampled_from([1, SECOND, 5 * SECOND, 90 * SECOND, HOUR])
pauses = st.sampled_from([0, SECOND, 31 * SECOND, 3 * HOUR, 2 * DAY])
moments = st.sampled_from([-SECOND, 0, 1, SECOND, 5 * SECOND, HOUR, DAY])

POLICIES: Final = (
    RetryPolicy(max_retries=1, max_crashes=1, base_ms=SECOND, jitter_high=0.0),
    RetryPolicy(max_retries=0, max_crashes=0),
    RetryPolicy(max_retries=20, max_crashes=20, base_ms=1, floor_ms=0, jitter_high=0.0),
)
ERROR: Final = AttemptError(type="Boom", message="it broke", traceback="line 1")

plain = st.fixed_dictionaries({"queue": queues}, optional={"task": st.just("u")})
keyed = st.fixed_dictionaries(
    {"queue": queues, "unique_key": st.sampled_from(["u1", "u2"])},
    optional={
        "unique_until": st.sampled_from(UniqueUntil),
        "idempotency_key": st.just("u1"),
        "idempotency_ttl_ms": waits,
    },
)
timed = st.fixed_dictionaries(
    {"queue": queues},
    optional={
        "delay_ms": waits,
        "run_in": moments,
        "expires_in": moments,
        "deadline_in": moments,
        "idempotency_key": st.sampled_from(["o1", "u1"]),
        "idempotency_ttl_ms": waits,
    },
)
special = st.fixed_dictionaries(
    {"queue": queues},
    optional={
        "id": st.sampled_from(["mine-1", "mine-2"]),
        "priority": st.sampled_from([-2, -1, 0, 1, 2]),
        "lease_ms": st.sampled_from([SECOND, HOUR]),
        "extension_ms": st.sampled_from([SECOND, 10 * SECOND]),
        "policy": st.sampled_from(POLICIES),
        "metadata": st.sampled_from([{"k": 1}, {"k": None, "l": [True]}]),
        "tags": st.sampled_from([("t1",), ("t1", "t2")]),
        "parent_id": st.just("another"),
        "task": st.just("u"),
    },
)
# Parents among the newest jobs, an unknown one, or the job just before.
parents = st.lists(
    st.tuples(st.one_of(picks, st.none()), st.sampled_from(OnFailure)),
    min_size=1,
    max_size=2,
    unique_by=lambda need: need[0],
)
dependent = st.fixed_dictionaries(
    {"queue": queues, "parents": parents},
    optional={
        "delay_ms": waits,
        "expires_in": moments,
        "unique_key": st.just("u1"),
        "id": st.sampled_from(["mine-1", "mine-3"]),
        "sequence": st.sampled_from(["s1", "s2"]),
    },
)
ordered = st.fixed_dictionaries(
    {"queue": queues, "sequence": st.sampled_from(["s1", "s1", "s2"])},
    optional={"delay_ms": waits, "expires_in": moments, "priority": st.sampled_from([-2, 2])},
)
specs: st.SearchStrategy[dict[str, Any]] = st.one_of(plain, keyed, timed, special, dependent, ordered)
outcomes: st.SearchStrategy[Outcome] = st.sampled_from(
    [
        Completed(b"1"),
        Failed(ERROR),
        Interrupted(),
        Completed(),
        Failed(ERROR, 0),
        Failed(ERROR, 2 * SECOND),
        Snoozed(SECOND),
        Discarded(ERROR),
        Cancelled("enough"),
        Lost("its worker died"),
        Lost("its worker died", started=False),
        Parked("payload:2", "too new"),
        Failed(AttemptError(type="Boom", message=BROKEN)),
    ]
)
ends = st.tuples(picks, outcomes, st.lists(specs, max_size=2))
claims = st.lists(
    st.builds(
        QueueClaim,
        queues,
        st.sampled_from([1, 2, 10, 0]),
        st.sampled_from([None, SECOND, HOUR]),
        st.sampled_from(
            [None, lanes_for_program(["t", "u"], 2), lanes_for_program(["t"], 1), lanes_for_program(["u"], 2)]
        ),
        max_payload=st.none(),
    ),
    max_size=3,
)
sayings = st.tuples(
    picks,
    st.fixed_dictionaries(
        {},
        optional={
            "progress": st.sampled_from([Progress(done=1, total=2), Progress(done=2, message="a\x00b")]),
            "lines": st.sampled_from([1, 3, 150]).map(
                lambda times: (LogLine(at=5, level="info", text="hello"),) * times
            ),
            "steps": st.sampled_from([("s1", b"1"), ("s2", b"2"), ("s1", b"3"), (BROKEN, b"4")]).map(
                lambda step: (StepResult(name=step[0], result=step[1]),)
            ),
        },
    ),
)
changes = st.sampled_from(
    [
        {},
        {"max_length": 2},
        {"max_length": None},
        {"enqueue_rate": 1, "enqueue_burst": 4},
        {"enqueue_rate": None},
        {"mode": "aging"},
        {"mode": "strict"},
        {"mode": "fifo"},
        {"aging_ms": SECOND, "max_aging_bonus": 4.0},
        {"max_aging_bonus": 0.0},
        {"max_aging_bonus": None},
        {"retry_penalty": 10.0},
        {"deadline_weight": 100.0, "deadline_horizon_ms": 8 * SECOND},
        {"min_priority": -1, "max_priority": 1},
        {"min_priority": -100, "max_priority": 100, "default_priority": 1},
        {"keep_finished_ms": SECOND, "keep_dead_ms": 5 * SECOND},
        {"keep_finished_ms": 0, "keep_dead_ms": 0},
        {"archive": True},
        {"archive": True, "keep_archive_ms": HOUR},
        {"lease_ms": SECOND},
        {"weight": 0},
        {"colour": "red"},
    ]
)


def new_job(spec: dict[str, Any], now: int, ids: Sequence[JobId] = ()) -> NewJob:
    """The request for a spec, whose times count from now, and whose parents are among these jobs."""
    fields = {"task": "t", "payload": b"{}", **spec}
    if "parents" in fields:
        named = [ABSENT, *ids]
        needs = {
            1 if number is None else named[-1 - number % len(named)]: on_failure
            for number, on_failure in fields.pop("parents")
        }
        fields["depends_on"] = tuple(Dependency(parent, on_failure) for parent, on_failure in needs.items())
    for relative, absolute in (
        ("run_in", "run_at"),
        ("expires_in", "expires_at"),
        ("deadline_in", "deadline_at"),
    ):
        if relative in fields:
            fields[absolute] = now + fields.pop(relative)
    if "run_at" in fields:
        fields.pop("delay_ms", None)
    return NewJob(**fields)


# ------------------------------------------------------------------ the two sides


class Side:
    """One engine. It may give ids of its own, so all that goes in and comes out is translated."""

    def __init__(self, engine: Engine) -> None:
        self.store = engine.store()
        self.reader = engine.reader()
        self.sent: list[str] = []
        self._theirs: dict[str, JobId] = {}
        self._ours: dict[str, str] = {}

    def id(self, ours: JobId) -> JobId:
        return self._theirs.get(ours, ours)

    def ids(self, ours: Sequence[JobId]) -> list[JobId]:
        return [self.id(each) for each in ours]

    def progress_updates(self, ours: Sequence[ProgressUpdate]) -> list[ProgressUpdate]:
        return [replace(each, lease=Lease(self.id(each.lease.job_id), each.lease.attempt)) for each in ours]

    def leases(self, ours: Sequence[Lease]) -> list[Lease]:
        return [Lease(self.id(each.job_id), each.attempt) for each in ours]

    def settlements(self, ours: Sequence[Settlement]) -> list[Settlement]:
        """Each side numbers its jobs itself; one that is gone has no number."""
        found = self.reader.jobs(self.ids([each.job_id for each in ours]))
        return [
            replace(
                each,
                job_id=self.id(each.job_id),
                seq=None if job is None else job.seq,
                follow_ups=tuple(self.jobs(each.follow_ups)),
            )
            for each, job in zip(ours, found, strict=True)
        ]

    def jobs(self, ours: Sequence[NewJob]) -> list[NewJob]:
        return [
            replace(each, depends_on=tuple(map(self._need, each.depends_on))) if each.depends_on else each
            for each in ours
        ]

    def _need(self, ours: Dependency) -> Dependency:
        return ours if isinstance(ours.parent, int) else replace(ours, parent=self.id(ours.parent))

    def learn(self, ours: JobId, theirs: JobId) -> None:
        self._theirs[ours] = theirs
        self._ours[theirs] = ours

    def listed(self) -> list[JobId]:
        """The ids of all jobs, oldest first."""
        return [JobId(self._text(job.id)) for job in reversed(everything(self.reader))]

    def send(self, kind: CommandKind, names: Sequence[WorkerId] | None, expires_ms: int) -> object:
        sent = self.store.send_command(kind, names, queue=A, expires_ms=expires_ms, actor="ann")
        self.sent += [command.id for command in sent]
        return self._without_ids(sent)

    def take(self, names: Sequence[WorkerId], text: str) -> object:
        """Take commands and answer the first."""
        taken = self.store.take_commands(names)
        for command in taken[:1]:
            self.store.answer_command(command.id, text)
        return self._without_ids(taken)

    @staticmethod
    def _without_ids(commands: Sequence[Command | None]) -> list[Command | None]:
        """Each side names its commands itself."""
        return [command and replace(command, id="") for command in commands]

    def answer(self, step: Callable[[Side], object]) -> object:
        """What a step answers; an error of ours is an answer too."""
        try:
            return step(self)
        except ForebayError as error:
            return error

    def plain(self, value: object) -> Any:
        """A value as plain data that can be compared, in the words of the model."""
        if value is None or type(value) in _PLAIN:
            return value
        match value:
            case str():
                return self._text(value.value if isinstance(value, Enum) else value)
            case ForebayError():
                return {"raised": type(value).__name__, **self._details(value)}
            case Job():
                return self._job(value)
            case msgspec.Struct():
                return {name: self.plain(each) for name, each in asdict(value).items()}
            case dict():
                return {self.plain(key): self.plain(each) for key, each in value.items()}
            case list() | tuple():
                return [self.plain(each) for each in value]
            case _:
                return value

    def _details(self, error: ForebayError) -> dict[str, object]:
        details = {name: getattr(error, name, None) for name in _ERROR_FIELDS}
        if details["holder"] is not None:  # it may be a job of the very batch that was undone
            details["holder"] = self._ours.get(str(details["holder"]), "undone")
        return details

    def _job(self, job: Job) -> Any:
        fields = asdict(job)
        del fields["seq"]
        if job.state is not JobState.PENDING:  # then a place means nothing
            del fields["rank"], fields["age_capped"]
        return {name: self.plain(each) for name, each in fields.items()}

    def _text(self, text: str) -> str:
        if text in self._ours:
            return self._ours[text]
        if " " not in text and "," not in text:
            return text
        # As in "its unique key is held by ..." and "..., which it depends on, is dead".
        words = re.split("([ ,])", text)
        return "".join(self._ours.get(word, word) for word in words)

    def view(self, ids: Sequence[JobId], closely: Sequence[JobId]) -> dict[str, Any]:
        """All that readers can see; of some jobs also what takes longer to look at."""
        reader = self.reader
        theirs, some = self.ids(ids), self.ids(closely)
        seen = {
            "jobs": reader.jobs(theirs),
            "counts": reader.counts(QUEUES),
            "all counts": reader.counts(),
            "peek": [reader.peek(queue) for queue in QUEUES],
            "held": reader.lanes(),
            "position": [reader.position(each) for each in some],
            "history": [reader.history(each) for each in some],
            "parents": reader.parents(theirs),
            "dependants": reader.dependants(theirs),
            "audit": [event for _, event in reader.audit(limit=1_000)],
            "queues": reader.queues(),
            "named queues": reader.queues(QUEUES),
            "workers": reader.workers(),
            "commands": self._without_ids(reader.commands(self.sent)),
            "search": everything(reader, limit=3),
            "waiting in a": everything(reader, JobQuery(queues=QUEUES[:1], states=(JobState.PENDING,))),
            "archive": sorted(reader.archive(limit=1_000), key=lambda line: (line.finished_at, line.id)),
            "problems": reader.health().problems,
        }
        plain = {name: self.plain(value) for name, value in seen.items()}
        # Translated once: an id of this side may be that of another job on the model's side.
        return {**plain, "dependants": sorted(plain["dependants"], key=str)}

    def close(self) -> None:
        self.store.close()
        self.reader.close()


def difference(theirs: Any, ours: Any, path: str = "") -> str:
    """Where two values of plain data first differ."""
    match theirs, ours:
        case dict(), dict() if theirs.keys() == ours.keys():
            keys: Sequence[Any] = list(ours)
        case list(), list() if len(theirs) == len(ours):
            keys = range(len(ours))
        case _:
            return f"{path}: the engine has {theirs!r}, the model {ours!r}"
    return next(
        difference(theirs[key], ours[key], f"{path}/{key}") for key in keys if theirs[key] != ours[key]
    )


class SideBySide(RuleBasedStateMachine):
    """Every rule plays one operation on the model and on the engine."""

    engine: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.clock = FollowedClock(now_ms=1_800_000_000_000)
        self.looks = 0
        self.ids: list[JobId] = []
        self.held: list[Job] = []  # what was ever claimed or swept, as it was then

    # Every example begins with work in all stages: the rules that are left out of it by chance may be those
    # that would bring some.
    @initialize(
        specified=st.lists(specs, min_size=2, max_size=5),
        settled=st.lists(outcomes, min_size=2, max_size=3),
        kept_ms=st.sampled_from([SECOND, DAY]),
    )
    def begin(self, specified: list[dict[str, Any]], settled: list[Outcome], kept_ms: int) -> None:
        self._open()
        kept = {"keep_finished_ms": kept_ms, "keep_dead_ms": kept_ms, "archive": True}
        self.both(lambda side: side.store.save_queue(A, kept))
        for outcome in settled:
            self.run_through({"queue": A}, WORKERS[0], outcome)
        jobs = [new_job(spec, self.now(), self.ids) for spec in [*specified, {"queue": A}, {"queue": B}]]
        self.both(lambda side: side.store.insert(side.jobs(jobs)))
        self._settle_and_claim(WORKERS[1], [], [QueueClaim(A, 1), QueueClaim(B, 1)], 2, None)

    def _open(self) -> None:
        self._folder = TemporaryDirectory(prefix="model-", dir=MEMORY if MEMORY.is_dir() else None)
        self.model = Side(MemoryEngine(clock=self.clock, new_id=counting_ids()))
        self.other = Side(ENGINES[self.engine](self._folder.name, self.clock))

    def teardown(self) -> None:
        if hasattr(self, "other"):
            self.other.close()
            self._folder.cleanup()
            release()
            if self.engine == "redis":
                redis_support.release()

    @invariant()
    def readers_see_the_same(self) -> None:
        self.looks += 1
        # The newest, and in turn all others: every job is looked at closely again and again.
        closely = [
            *self.ids[-2:],
            *(each for each in self.ids[:-2] if self.ids.index(each) % 4 == self.looks % 4),
        ]
        model, other = self.model.view(self.ids, closely), self.other.view(self.ids, closely)
        assert other == model, difference(other, model)
        assert model["problems"] == []

    @invariant()
    def of_a_sequence_one_job_may_run(self) -> None:
        live = [job for job in self.model.reader.jobs(self.ids) if job is not None and job.state in LIVE]
        may_run = [job.sequence for job in live if job.sequence and job.state is not JobState.BLOCKED]
        assert len(may_run) == len(set(may_run))

    def both(self, step: Callable[[Side], object]) -> Any:
        """Play one step on both sides; the model's answer, if the other one is the same."""
        model, other = self.model.answer(step), self.other.answer(step)
        self._learn()
        theirs, ours = self.other.plain(other), self.model.plain(model)
        assert theirs == ours, difference(theirs, ours)
        return None if isinstance(model, ForebayError) else model

    def _learn(self) -> None:
        """Which of the other side's new jobs is which of the model's: they are listed in one order."""
        ours, theirs = self.model.listed(), self.other.listed()
        assert len(theirs) == len(ours), "jobs were stored on one side only"
        for our, their in zip(ours, theirs, strict=True):
            if our not in self.ids:
                self.ids.append(our)
                self.model.learn(our, our)
                self.other.learn(our, their)
            assert self.other.id(our) == self.other.id(their), "jobs are listed in another order"

    def now(self) -> int:
        return self.clock.now_ms()

    def pick(self, number: int) -> JobId:
        """One of the newest jobs, or an unknown one."""
        return [ABSENT, *self.ids][-1 - number % (len(self.ids) + 1)]

    def picked(self, numbers: Sequence[int]) -> list[JobId]:
        return [self.pick(number) for number in numbers]

    def leases_of(self, worker: WorkerId) -> list[Job]:
        """Leases to play with: first those that the worker really has, then stale ones and others'."""
        return sorted(reversed(self.held), key=lambda job: (not self._is_held(job), job.worker != worker))

    def _is_held(self, job: Job) -> bool:
        [now] = self.model.reader.jobs([job.id])
        held = (JobState.RUNNING, job.attempt, job.worker)
        return now is not None and (now.state, now.attempt, now.worker) == held

    def decided_settlements(
        self, worker: WorkerId, specified: Sequence[tuple[int, Outcome, list[Any]]]
    ) -> list[Settlement]:
        leases = self.leases_of(worker)
        return [
            replace(
                decide(leases[number % len(leases)], outcome, 0.0),
                follow_ups=tuple(new_job(spec, self.now(), self.ids) for spec in specs),
            )
            for number, outcome, specs in specified
            if leases
        ]

    # Jobs come and go

    @rule(
        specified=st.lists(specs, min_size=1, max_size=4),
        on_conflict=st.sampled_from(["return", "raise", "ignore"]),
        atomic=st.booleans(),
        create=st.sampled_from([True, True, False]),
    )
    def insert(
        self, specified: list[dict[str, Any]], on_conflict: OnConflict, atomic: bool, create: bool
    ) -> None:
        jobs = [new_job(spec, self.now(), self.ids) for spec in specified]
        self.both(
            lambda side: side.store.insert(
                side.jobs(jobs), on_conflict=on_conflict, atomic=atomic, create_queues=create
            )
        )

    @rule(spec=specs)
    def insert_one(self, spec: dict[str, Any]) -> None:
        job = new_job(spec, self.now(), self.ids)
        self.both(lambda side: side.store.insert(side.jobs([job])))

    @rule(spec=specs, worker=workers, outcome=outcomes)
    def run_through(self, spec: dict[str, Any], worker: WorkerId, outcome: Outcome) -> None:
        """What happens to most jobs: it comes, it runs, it ends."""
        job = new_job(spec, self.now(), self.ids)
        self.both(lambda side: side.store.insert(side.jobs([job])))
        self._settle_and_claim(worker, [], [QueueClaim(spec["queue"], 1)], 1, None)
        if self.held:
            self._settle_and_claim(worker, [decide(self.held[-1], outcome, 0.0)], [], 0, None)

    @rule(worker=workers, queue=queues, most=st.sampled_from([1, 2, 10]))
    def claim(self, worker: WorkerId, queue: QueueName, most: int) -> None:
        self._settle_and_claim(worker, [], [QueueClaim(queue, most)], most, None)

    @precondition(lambda self: bool(self.held))
    @rule(worker=workers, specified=st.lists(ends, min_size=1, max_size=3))
    def settle(self, worker: WorkerId, specified: list[Any]) -> None:
        self._settle_and_claim(worker, self.decided_settlements(worker, specified), [], 0, None)

    @precondition(lambda self: bool(self.held))
    @rule(number=picks, outcome=outcomes, again=st.booleans())
    def settle_as_holder(self, number: int, outcome: Outcome, again: bool) -> None:
        leases = self.leases_of(WORKERS[0])
        job = leases[number % len(leases)]
        times = 2 if again else 1
        self._settle_and_claim(job.worker or WORKERS[0], [decide(job, outcome, 0.0)] * times, [], 0, None)

    @rule(
        worker=workers,
        specified=st.lists(ends, max_size=2),
        claims=claims,
        room=st.sampled_from([0, 1, 2, 10]),
        # One for all claims of a call. A small one lets an engine end a claim early, each at its own place.
        max_payload=st.sampled_from([None, 2**70]),
        known=st.one_of(st.none(), st.lists(picks, max_size=2)),
        reports=st.lists(sayings, max_size=2),
    )
    def round_trip(
        self,
        worker: WorkerId,
        specified: list[Any],
        claims: list[QueueClaim],
        max_payload: int | None,
        room: int,
        known: list[int] | None,
        reports: list[Any],
    ) -> None:
        claims = [claim_request._replace(max_payload=max_payload) for claim_request in claims]
        leases = [Lease(job.id, job.attempt) for job in self.leases_of(worker)]
        knows = None if known is None else [leases[number % len(leases)] for number in known if leases]
        self._settle_and_claim(
            worker,
            self.decided_settlements(worker, specified),
            claims,
            room,
            knows,
            self.progress_updates(worker, reports),
        )

    @precondition(lambda self: bool(self.held))
    @rule(reports=st.lists(sayings, min_size=1, max_size=3))
    def note(self, reports: list[Any]) -> None:
        """Mostly the holder of the lease speaks, and sometimes another worker."""
        progress_updates = self.progress_updates(WORKERS[0], reports)
        holder = next((job.worker for job in self.held if job.id == progress_updates[0].lease.job_id), None)
        self._settle_and_claim(holder or WORKERS[0], [], [], 0, None, progress_updates)

    def progress_updates(self, worker: WorkerId, reports: list[Any]) -> list[ProgressUpdate]:
        leases = self.leases_of(worker)
        picked = [(leases[number % len(leases)], words) for number, words in reports if leases]
        return [ProgressUpdate(lease=Lease(job.id, job.attempt), **words) for job, words in picked]

    def _settle_and_claim(
        self,
        worker: WorkerId,
        ended: list[Settlement],
        claims: list[QueueClaim],
        room: int,
        known: list[Lease] | None,
        progress_updates: Sequence[ProgressUpdate] = (),
    ) -> None:
        answer = self.both(
            lambda side: side.store.settle_and_claim(
                worker,
                side.settlements(ended),
                claims,
                room,
                None if known is None else side.leases(known),
                side.progress_updates(progress_updates),
            )
        )
        if answer is not None:
            self.held = [*self.held, *answer.jobs][-12:]

    @precondition(lambda self: bool(self.held))
    @rule(worker=workers, numbers=some, lease_ms=st.sampled_from([None, SECOND, HOUR]))
    def renew(self, worker: WorkerId, numbers: list[int], lease_ms: int | None) -> None:
        held = self.leases_of(worker)
        leases = [held[number % len(held)] for number in numbers]
        known = [Lease(job.id, job.attempt) for job in leases]
        self.both(lambda side: side.store.renew(worker, side.leases(known), lease_ms))

    # By the clock

    @rule(ms=st.sampled_from([1, SECOND, 2 * SECOND, 10 * SECOND, 31 * SECOND, HOUR]))
    def wait(self, ms: int) -> None:
        self.clock.advance(ms=ms)

    @rule(days=st.sampled_from([1, 8, 31, 91]))
    def wait_long(self, days: int) -> None:
        self.clock.advance(ms=days * DAY)

    @rule(
        after_ms=pauses,
        sweeper=workers,
        limit=limits,
        lease_ms=st.sampled_from([SECOND, HOUR]),
        only_dead=st.sampled_from([False, False, True]),
        settles=st.booleans(),
        dead=st.lists(workers, max_size=2, unique=True),
    )
    def sweep(
        self,
        after_ms: int,
        sweeper: WorkerId,
        limit: int,
        lease_ms: int,
        only_dead: bool,
        settles: bool,
        dead: list[WorkerId],
    ) -> None:
        self.clock.advance(ms=after_ms)
        swept = self.both(
            lambda side: side.store.sweep(sweeper, limit, lease_ms, only_dead=only_dead, dead=dead)
        )
        self.held = [*self.held, *swept][-12:]
        if settles:
            lost = [decide(job, Lost("its lease ran out"), 0.0) for job in swept]
            self._settle_and_claim(sweeper, lost, [], 0, None)

    @rule(after_ms=pauses, limit=limits)
    def promote(self, after_ms: int, limit: int) -> None:
        self.clock.advance(ms=after_ms)
        self.both(lambda side: side.store.promote(limit))

    @rule(after_ms=pauses, limit=limits)
    def rescore(self, after_ms: int, limit: int) -> None:
        """How many steps it takes is the engine's own affair; where it ends is not."""
        self.clock.advance(ms=after_ms)
        for side in (self.model, self.other):
            for _ in range(1_000):
                if side.store.rescore(limit) == 0:
                    break
            else:
                raise AssertionError("rescore never comes to an end")

    @rule(limit=limits, days=st.sampled_from([0, 1, 8, 31]))
    def prune(self, limit: int, days: int) -> None:
        """Which one goes first of jobs that ended at the same time, and how much besides jobs goes in one
        call, is the engine's own affair; so the rest goes before a reader looks."""
        self.clock.advance(ms=days * DAY)
        self.both(lambda side: [side.store.prune(limit), side.store.prune()])

    # Operators

    @precondition(lambda self: bool(self.held))
    @rule(number=picks, force=st.booleans())
    def cancel_running(self, number: int, force: bool) -> None:
        held = self.leases_of(WORKERS[0])
        job_id = held[number % len(held)].id
        self.both(lambda side: side.store.cancel([side.id(job_id)], "stop it", force=force))

    @rule(
        numbers=some,
        reason=st.sampled_from(["no longer needed", "wrong"]),
        force=st.booleans(),
        actor=st.sampled_from(["", "ann"]),
        dependants=st.booleans(),
    )
    def cancel(self, numbers: list[int], reason: str, force: bool, actor: str, dependants: bool) -> None:
        ids = self.picked(numbers)
        self.both(
            lambda side: side.store.cancel(
                side.ids(ids), reason, actor=actor, force=force, dependants=dependants
            )
        )

    @rule(
        number=picks,
        priority=st.sampled_from([None, -2, 0, 2]),
        delay_ms=st.sampled_from([None, 0, SECOND, HOUR]),
        metadata=st.sampled_from([None, {"k": 2}, {"k": None, "m": "x"}]),
        queue=st.one_of(st.none(), queues),
    )
    def update(
        self,
        number: int,
        priority: int | None,
        delay_ms: int | None,
        metadata: dict[str, Any] | None,
        queue: QueueName | None,
    ) -> None:
        change = JobUpdate(priority=priority, delay_ms=delay_ms, metadata=metadata, queue=queue)
        job_id = self.pick(number)
        self.both(lambda side: side.store.update_job(side.id(job_id), change, actor="ann"))

    @rule(
        numbers=some,
        queue=st.one_of(st.none(), queues, st.just(QueueName("no name!"))),
        delay_ms=st.sampled_from([0, SECOND]),
        reset=st.booleans(),
        dependants=st.booleans(),
    )
    def revive(
        self, numbers: list[int], queue: QueueName | None, delay_ms: int, reset: bool, dependants: bool
    ) -> None:
        ids = self.picked(numbers)
        self.both(
            lambda side: side.store.revive(
                side.ids(ids), queue=queue, delay_ms=delay_ms, reset=reset, actor="ann", dependants=dependants
            )
        )

    @rule(numbers=some)
    def delete(self, numbers: list[int]) -> None:
        ids = self.picked(numbers)
        self.both(lambda side: side.store.delete(side.ids(ids), actor="ann"))

    @rule(queue=queues, changed=changes, state=st.sampled_from([None, None, None, *QueueState]))
    def save_queue(self, queue: QueueName, changed: dict[str, object], state: QueueState | None) -> None:
        self.both(lambda side: side.store.save_queue(queue, changed, state=state, actor="ann"))

    @precondition(lambda self: bool(self.model.reader.queues()))
    @rule(queue=queues, force=st.booleans(), limit=limits)
    def drop_queue(self, queue: QueueName, force: bool, limit: int) -> None:
        self.both(lambda side: side.store.drop_queue(queue, force=force, limit=limit, actor="ann"))

    # Workers, maintenance tasks, events

    @rule(worker=workers, started_in=st.sampled_from([None, 0, -SECOND]), forget=st.booleans())
    def heartbeat(self, worker: WorkerId, started_in: int | None, forget: bool) -> None:
        started_at = 0 if started_in is None else self.now() + started_in
        state = WorkerState.WORKING if started_at else WorkerState.STARTING
        info = WorkerInfo(
            id=worker,
            host="h",
            pid=1,
            queues=QUEUES[:2],
            state=state,
            started_at=started_at,
            paused=QUEUES[1:] if forget else (),
            slots=4,
            memory=self.now() % 7 or None,
        )
        self.both(lambda side: side.store.heartbeat(info))
        if forget:
            self.both(lambda side: side.store.remove_worker(WORKERS[0]))
        self.both(lambda side: side.store.acquire_maintenance("sweep", HOUR if forget else SECOND))

    @rule(
        kind=st.sampled_from(CommandKind),
        names=st.one_of(st.none(), st.lists(workers, max_size=2)),
        expires_ms=waits,
        taken=st.one_of(st.none(), st.lists(workers, min_size=1, max_size=3, unique=True)),
    )
    def command(
        self,
        kind: CommandKind,
        names: list[WorkerId] | None,
        expires_ms: int,
        taken: list[WorkerId] | None,
    ) -> None:
        self.both(lambda side: side.send(kind, names, expires_ms))
        if taken is not None:
            self.both(lambda side: side.take(taken, f"done: {kind}"))

    @rule(number=st.one_of(st.none(), picks), times=st.sampled_from([1, 2, 60]), at=st.sampled_from([0, 5]))
    def record(self, number: int | None, times: int, at: int) -> None:
        job_id = None if number is None else self.pick(number)

        def step(side: Side) -> None:
            theirs = None if job_id is None else side.id(job_id)
            note = Event(
                kind=EventKind.COMMENT,
                occurred_at=at and self.now() - at,
                job_id=theirs,
                actor="ann",
                detail="x",
            )
            side.store.record_events([note] * times)

        self.both(step)


@pytest.mark.shows("R-TEST-62", "R-STORE-01")
@pytest.mark.parametrize("name", ["sqlite", "postgresql", "redis"])
def test_an_engine_does_what_the_model_does_in_a_few_examples(name: str) -> None:
    play(name, min(FEW, EXAMPLES))


@pytest.mark.shows("R-TEST-62", "R-STORE-01")
@pytest.mark.extended
@pytest.mark.timeout(600 + 2 * EXAMPLES)  # a difference is made as short as can be, and that takes minutes
@pytest.mark.parametrize("name", ENGINES)
def test_an_engine_does_what_the_model_does(name: str) -> None:
    play(name, EXAMPLES)


def play(name: str, examples: int) -> None:
    machine: type[SideBySide] = type("Model", (SideBySide,), {"engine": name})
    run_state_machine_as_test(
        machine,
        settings=settings(
            # A server takes its time for every look.
            max_examples=max(examples // 3, 1) if not name.startswith("sqlite") else examples,
            stateful_step_count=STEPS,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
