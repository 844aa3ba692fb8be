"""What the code of a job may know about its attempt, be told while it runs, and say."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from time import sleep
from typing import TYPE_CHECKING, Any, Final, NamedTuple, ParamSpec, Protocol, TypeVar, overload

from msgspec.structs import replace

from forebay.app.codec import encode_result
from forebay.app.results import parent_results
from forebay.app.saying import Pending, made_line, made_progress
from forebay.app.stepping import encoded, fitted
from forebay.clock import SystemClock
from forebay.domain.job import MAX_COST, Job, JobId, NewJob, WorkerId, check_whole
from forebay.domain.note import MAX_STEPS, LogLine, Progress, Step, check_step_name
from forebay.domain.outcome import Completed
from forebay.domain.settlement import Settlement, decide
from forebay.errors import (
    Cancel,
    ConfigError,
    InvalidJob,
    LeaseLost,
    NewerPayload,
    StoreUnavailable,
)
from forebay.interrupts import uninterrupted

if TYPE_CHECKING:
    from asyncio import Lock
    from logging import Logger, LoggerAdapter

    from forebay.app.client import Client

P = ParamSpec("P")
R = TypeVar("R")

BEAT_SECONDS: Final = 1.0
# How long a thread that waits for its step is deaf to interrupts, and how soon it asks an absent store again.
LISTEN_SECONDS: Final = 0.05
ASK_AGAIN_SECONDS: Final = 0.5
MAX_FOLLOW_UPS: Final = 1_000

_CLOCK: Final = SystemClock()


class Token(NamedTuple):
    """What fences effects elsewhere: of one job, the greater attempt is the newer one."""

    attempt: int
    worker: WorkerId


class LeaseNews(NamedTuple):
    """What renewals have brought so far: when the last one succeeded (milliseconds since 1970, by this
    machine's clock), how many in a row have failed since, and why the lease is gone if it is."""

    renewed_at: int | None = None
    failures: int = 0
    lost_because: str | None = None


NO_NEWS: Final = LeaseNews()


class Voice(Protocol):
    """Where a context's words go: in a worker to `worker.noting`, in an isolated process to its worker.

    May be called from any thread, and be interrupted anywhere.
    """

    def say(self, context: JobContext, what: Progress | LogLine) -> None:
        """Keep this with the job, soon; of progress the latest, of lines the last."""
        ...

    def keep(self, context: JobContext, step: Step, tell: Callable[[], object] | None = None) -> Pending:
        """Store a step under the attempt's guard. `tell` is called, on any thread, with the answer."""
        ...

    def steps(self, context: JobContext) -> Mapping[str, bytes]:
        """The results of the steps that earlier attempts have done, by name. May raise StoreUnavailable."""
        ...


class _Own:
    """What an attempt has said and done through its context. Most have none of this."""

    __slots__ = (
        "beat_at",
        "cost",
        "follow_ups",
        "is_within",
        "looking",
        "progress",
        "steps",
        "under_way",
        "unread",
    )

    def __init__(self, attempt: int) -> None:
        self.progress = Progress(attempt=attempt)
        self.beat_at = -BEAT_SECONDS
        self.steps: dict[str, bytes] | None = None  # once earlier ones have been looked for
        self.looking: Lock | None = None  # held by the coroutine that does so
        self.under_way = 0
        self.follow_ups: list[NewJob] = []
        self.is_within = False
        self.cost: int | None = None
        self.unread: NewerPayload | None = None  # why a step or a result cannot be read here

    def begin_with(self, steps: dict[str, bytes]) -> None:
        # A thread of this job may have been faster, and done a step since.
        if self.steps is None:
            self.steps = steps


class JobContext:
    """What a task may know about its own attempt, be told while it runs, and say.

    `voice` is where its words go; without one they go nowhere, and steps are not stored. `client` is
    its task's, for transactions of the task's own.
    """

    __slots__ = ("_cancel_reason", "_is_overdue", "_news", "_own", "client", "job", "voice")

    def __init__(self, job: Job, voice: Voice | None = None) -> None:
        self.job: Job = job
        self.voice: Voice | None = voice
        self.client: Client | None = None
        self._own: _Own | None = None
        self._cancel_reason: str | None = None
        self._is_overdue = False
        self._news = NO_NEWS

    @property
    def id(self) -> JobId:
        """The id of the job, the same at each attempt."""
        return self.job.id

    @property
    def attempt(self) -> int:
        """The number of this attempt. It grows with each claim, also of a job that was handed back unstarted:
        it tells attempts apart. `run_number` counts runs."""
        return self.job.attempt

    @property
    def run_number(self) -> int:
        """The number of this run: 1 in the first one that has begun, however often the job was claimed and
        handed back unstarted before. A retry, and a run after a snooze, has a higher one."""
        return self.job.run_number

    @property
    def token(self) -> Token:
        """What fences this attempt: its number and its worker."""
        return Token(self.job.attempt, self.job.worker or WorkerId(""))

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody wants this job to stop."""
        return self._cancel_reason is not None

    @property
    def is_lost(self) -> bool:
        """Whether the lease is gone: another attempt may be running, and this one's result will not count."""
        return self._news.lost_because is not None

    @property
    def is_in_doubt(self) -> bool:
        """Whether the store has not answered the last renewal. Nothing is lost yet: go on, and be careful
        with effects that must not happen twice."""
        return self._news.failures > 0

    @property
    def is_overdue(self) -> bool:
        """Whether this attempt has run longer than its task's `soft_timeout`: time to come to an end."""
        return self._is_overdue

    @property
    def claimed_at(self) -> int | None:
        """When this attempt was claimed, in milliseconds since 1970, by the store's clock."""
        return self.job.started_at

    @property
    def renewals(self) -> LeaseNews:
        """How the renewals of this attempt's lease go."""
        return self._news

    @property
    def cancel_reason(self) -> str | None:
        """Why somebody has cancelled the job; None if nobody has."""
        return self._cancel_reason

    @property
    def logger(self) -> LoggerAdapter[Logger]:
        """A logger whose lines carry the job's id, task, queue, attempt and correlation id."""
        # An import, and `getLogger`, take locks that the whole process shares.
        with uninterrupted:
            from logging import LoggerAdapter, getLogger  # noqa: PLC0415 - programs that only enqueue need none

            from forebay.telemetry.logs import job_fields  # noqa: PLC0415 - it needs logging as well

            return LoggerAdapter(getLogger("forebay.task"), job_fields(self.job))

    # Say

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Say how far this attempt has come. The latest is kept with the job, once a second at most."""
        own = self._owned()
        own.progress = made_progress(self.job, done, total, message)
        own.beat_at = _CLOCK.monotonic()
        if self.voice is not None:
            self.voice.say(self, own.progress)

    def log(self, text: str, level: str = "INFO") -> None:
        """Keep a line with the job; of all attempts together the last 200 are kept."""
        if self.voice is not None:
            self.voice.say(self, made_line(self.job, text, level))

    def heartbeat(self) -> None:
        """Say that this attempt is alive, and hear whether it shall go on: raises LeaseLost if its lease is
        gone, and Cancel, which ends the job as cancelled, if somebody wants that. Call it often."""
        self._check_held()
        if self._cancel_reason is not None:
            raise Cancel(self._cancel_reason)
        own, now = self._owned(), _CLOCK.monotonic()
        if self.voice is not None and now >= own.beat_at + BEAT_SECONDS:
            own.beat_at = now
            own.progress = replace(own.progress)  # another one, to be written with a new time
            self.voice.say(self, own.progress)

    def cost(self, tokens: int) -> None:
        """Say what this attempt costs, in tokens of the rates that it is under, where that is known only now.
        When it ends they are charged, or given back, the difference to the job's `cost`; the last word
        counts."""
        check_whole("cost", tokens, 0, MAX_COST)
        self._owned().cost = tokens

    def follow_up(self, job: NewJob) -> None:
        """Enqueue a job, made by `task.job(...)`, together with the end of this one: both happen or neither.
        Nothing is enqueued if this attempt does not complete."""
        if not isinstance(job, NewJob):
            raise InvalidJob(f"a follow-up must be a job made by task.job(...), not {job!r:.60}", field="job")
        if self.is_within:
            raise InvalidJob(
                "this job is completed already: add follow-ups before complete_within", field="job"
            )
        follow_ups = self._owned().follow_ups
        if len(follow_ups) >= MAX_FOLLOW_UPS:
            raise InvalidJob(
                f"a job can have {MAX_FOLLOW_UPS:,} follow-ups; let one of them enqueue the others",
                field="job",
            )
        follow_ups.append(job if job.parent_id is not None else replace(job, parent_id=self.id))

    @property
    def follow_ups(self) -> tuple[NewJob, ...]:
        """What is to be enqueued when this attempt completes."""
        return () if self._own is None else tuple(self._own.follow_ups)

    # Complete

    def results(self) -> list[Any]:
        """What the jobs returned on which this one depends, in the order in which it named them.

        One that failed, where that is ignored, is there as the JobFailed or JobCancelled that asking for its
        result would raise; one that was forgotten meanwhile as JobNotFound.
        """
        with self._reading():
            return parent_results(self._asking(), self.id)

    async def results_async(self) -> list[Any]:
        """`results` for coroutines."""
        client = self._asking()
        with self._reading():
            return await client.offloaded(parent_results, client, self.id)

    def _asking(self) -> Client:
        if self.client is None:
            raise ConfigError("no worker runs this job, so there is nobody to ask")
        return self.client

    def complete_within(self, connection: object, result: Any = None) -> None:
        """Complete this job in your own open transaction on the store's database. With its commit the job is
        completed, with this result and with its follow-ups; what else it does there happens exactly once.

        Commit right after this. Raises LeaseLost if this attempt counts no more: roll back then. If the task
        returns and the transaction was rolled back, the attempt has failed. What the task returns is ignored.
        """
        client, settlement = self._joining(), self._completed(result)
        with uninterrupted, self._being_within():
            client.complete_within(connection, self.token.worker, settlement)

    async def complete_within_async(self, connection: object, result: Any = None) -> None:
        """`complete_within` with a connection that lives on this event loop."""
        client = self._joining()
        with self._being_within():
            await client.complete_within_async(connection, self.token.worker, self._completed(result))

    @contextmanager
    def _being_within(self) -> Iterator[None]:
        """Around the statement that completes the job in the caller's transaction.

        Set before it: an interrupt may come right behind the statement. The worker would then know nothing
        of the open transaction, and its settlement would wait for the lock of the lease. Cleared only for an
        error of the statement's own, after which the savepoint is undone. After an interrupt it stays set: a
        worker that asks in vain finds the lease held and settles as usual.
        """
        own = self._owned()
        was_within, own.is_within = own.is_within, True
        try:
            yield
        except Exception:
            own.is_within = was_within
            raise

    @property
    def is_within(self) -> bool:
        """Whether this attempt has completed its job in a transaction of its own, committed or not."""
        return self._own is not None and self._own.is_within

    def _joining(self) -> Client:
        if self.client is None:
            raise ConfigError("no worker runs this job, so there is nothing to complete")
        self._check_held()
        return self.client

    def _completed(self, result: Any) -> Settlement:
        return decide(self.job, Completed(encode_result(result), self.follow_ups), 0.0)

    # Steps

    def step(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Do a part of the job once: if it was done before, by this or an earlier attempt, its stored result
        is returned and `fn` is not called. Else `fn` is called, and this returns when its result is stored;
        raises LeaseLost if that is refused. Results come back as stored, fitted to the annotation of `fn`.
        """
        if inspect.iscoroutinefunction(fn):
            raise ConfigError(f"step {name!r:.60} is a coroutine function: await step_async instead")
        steps = self._loaded(name)
        if name not in steps:
            with self._doing(name, steps):
                data = encoded(name, fn(*args, **kwargs))
                self._keep(name, data)
                steps.setdefault(name, data)
        with self._reading():
            found: R = fitted(name, fn, steps[name])
        return found

    @overload
    async def step_async(
        self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...

    @overload
    async def step_async(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    async def step_async(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """`step` for coroutine tasks; `fn` may be a coroutine function. Nobody else on the loop waits."""
        steps = await self._loaded_async(name)
        if name not in steps:
            with self._doing(name, steps):
                value = fn(*args, **kwargs)
                data = encoded(name, await value if inspect.isawaitable(value) else value)
                await self._keep_async(name, data)
                # Of two calls of one name at the same time the first to be stored counts.
                steps.setdefault(name, data)
        with self._reading():
            return fitted(name, fn, steps[name])

    def _loaded(self, name: str) -> dict[str, bytes]:
        """The steps done so far; those of earlier attempts are looked for once."""
        check_step_name(name)
        own = self._owned()
        while own.steps is None:
            try:
                own.steps = self._earlier()
            except StoreUnavailable:  # an absent store is no failure of the task's
                sleep(ASK_AGAIN_SECONDS)
        return own.steps

    async def _loaded_async(self, name: str) -> dict[str, bytes]:
        if self.attempt == 1:
            return self._loaded(name)
        from asyncio import Lock, sleep, to_thread  # noqa: PLC0415 - most programs have no event loop

        check_step_name(name)
        own = self._owned()
        own.looking = own.looking or Lock()
        async with own.looking:  # hundreds of coroutines may begin with their steps, and one looks for all
            while own.steps is None:
                try:
                    own.begin_with(await to_thread(self._earlier))
                except StoreUnavailable:
                    await sleep(ASK_AGAIN_SECONDS)
        return own.steps

    def _earlier(self) -> dict[str, bytes]:
        if self.attempt == 1 or self.voice is None:
            return {}
        return dict(self.voice.steps(self))

    def _keep(self, name: str, data: bytes) -> None:
        if self.voice is None:
            return
        pending = self.voice.keep(self, Step(name=name, result=data, attempt=self.attempt))
        while not pending.wait(LISTEN_SECONDS):  # in slices: an interrupt is heard between two of them
            pass
        pending.check()

    async def _keep_async(self, name: str, data: bytes) -> None:
        from asyncio import get_running_loop  # noqa: PLC0415 - most programs have no event loop

        if self.voice is None:
            return
        loop = get_running_loop()
        bell = loop.create_future()

        def wake() -> None:
            if not bell.done():  # else nobody waits any more
                bell.set_result(None)

        step = Step(name=name, result=data, attempt=self.attempt)
        pending = self.voice.keep(self, step, lambda: loop.call_soon_threadsafe(wake))
        await bell
        pending.check()

    @contextmanager
    def _doing(self, name: str, steps: dict[str, bytes]) -> Iterator[None]:
        """Around a step: refuses it before the work, not after it, if it could not be stored."""
        self._check_held()
        if self.is_within:
            raise ConfigError(f"step {name!r:.60} comes too late: complete_within was called")
        own = self._owned()
        if len(steps) + own.under_way >= MAX_STEPS:
            raise ConfigError(f"step {name!r:.60} is one too many: a job can have {MAX_STEPS:,} steps")
        own.under_way += 1  # coroutines may do many at a time
        try:
            yield
        finally:
            own.under_way -= 1

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Around what other attempts and jobs have stored: another worker may be able to read what this one
        cannot, so if that ends the attempt its job is held for one, like a job with such arguments."""
        try:
            yield
        except NewerPayload as exc:
            self._owned().unread = exc
            raise

    def _check_held(self) -> None:
        if self._news.lost_because is not None:
            raise LeaseLost(
                f"the lease of job {self.id}, attempt {self.attempt}, is lost: {self._news.lost_because}; "
                "this attempt counts no more, so stop"
            )

    def _owned(self) -> _Own:
        if self._own is None:
            self._own = _Own(self.attempt)
        return self._own

    # Be told

    def tell_cancelled(self, reason: str) -> None:
        self._cancel_reason = reason

    def tell_overdue(self) -> None:
        self._is_overdue = True

    def tell_renewed(self, at: int) -> None:
        # What is lost stays so: the answer to a renewal may come after an attempt was given up.
        self._news = LeaseNews(renewed_at=at, lost_because=self._news.lost_because)

    def tell_regained(self, at: int) -> None:
        """The store has given this attempt the same lease again."""
        self._news = LeaseNews(renewed_at=at)

    def tell_in_doubt(self) -> None:
        self._news = self._news._replace(failures=self._news.failures + 1)

    def tell_lost(self, reason: str = "its renewal was refused") -> None:
        self._news = self._news._replace(failures=0, lost_because=reason)


def cost_said(context: JobContext) -> int | None:
    """What a task has said about the cost of its attempt; None if it has said nothing."""
    own = context._own
    return None if own is None else own.cost


def unread_by(context: JobContext) -> NewerPayload | None:
    """Why a step or a parent's result could not be read by this program; None if all could."""
    own = context._own
    return None if own is None else own.unread
