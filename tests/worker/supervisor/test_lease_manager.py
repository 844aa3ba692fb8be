"""What a supervisor does with the store, move by move, on every engine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from forebay.domain.job import DEFAULT_QUEUE, Job, JobId, QueueName, WorkerId
from forebay.domain.job_states import JobState
from forebay.domain.lease import Lease
from forebay.domain.retry_policy import RetryPolicy
from forebay.domain.worker import WorkerInfo, WorkerState
from forebay.domain.worker_command import CommandKind
from forebay.errors import StoreBusy, StoreUnavailable
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from forebay.worker.lease_table import LeaseRow, LeaseTable
from forebay.worker.supervisor.channel import Channel
from forebay.worker.supervisor.lease_manager import LeaseManager
from forebay.worker.supervisor.messages import (
    TO_SUPERVISOR,
    TO_WORKER,
    CancelsRequested,
    CommandSent,
    JobMarkedDead,
    LeasesRenewed,
    RenewalFailed,
    ToWorker,
    WakeUp,
    WorkerAccepted,
)
from forebay.worker.supervisor.worker_process import WorkerProcess
from tests.stores.support import new_job
from tests.worker.support import eventually

WORKER = WorkerId("the worker")


class Troubled:
    """An engine whose stores fail on request: before a call, or after it, when only the answer is lost."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.fails_before: set[str] = set()
        self.busy_for: set[tuple[str, WorkerId]] = set()  # methods, and the worker that a call is about
        self.fails_after: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def store(self) -> Any:
        return TroubledStore(self._engine.store(), self)


class TroubledStore:
    def __init__(self, store: Store, engine: Troubled) -> None:
        self._store = store
        self._engine = engine

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if name in self._engine.fails_before:
                raise StoreUnavailable("away")
            if any(
                name == method and worker in _workers(args, kwargs)
                for method, worker in self._engine.busy_for
            ):
                raise StoreBusy("another transaction holds a job")
            answer = getattr(self._store, name)(*args, **kwargs)
            if name in self._engine.fails_after:
                self._engine.fails_after.discard(name)
                raise StoreUnavailable("the answer is lost")
            return answer

        return call


def _workers(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    return [*args[:1], *kwargs.get("dead", ())]


class Scene:
    """Manager with one child, whose process does nothing. Tests write its leases and read its channel."""

    def __init__(self, engine: Engine, store: Store, reader: Reader, clock: ManualClock) -> None:
        self.engine = Troubled(engine)
        self.store = store
        self.reader = reader
        self.clock = clock
        ours, theirs = socket.socketpair()
        self.process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        self.child = WorkerProcess(self.process, Channel(ours, TO_SUPERVISOR), LeaseTable.create(100))
        self.child.info = WorkerInfo(id=WORKER, pid=self.process.pid)
        self._theirs = Channel(theirs, TO_WORKER)
        self.children = [self.child]
        self.manager = LeaseManager(
            engine=self.engine,
            clock=clock,
            supervisor=os.getpid(),
            children=lambda: self.children,
            is_paused=lambda: False,
        )

    def welcomed(self) -> None:
        self.manager.welcome(self.child)
        assert self.manager.tick()
        assert self.heard() == [WorkerAccepted()]

    @contextmanager
    def another(self) -> Iterator[tuple[WorkerProcess, Callable[[], list[ToWorker]]]]:
        """Another child that is up, and what was said to it."""
        ours, theirs = socket.socketpair()
        child, end = (
            WorkerProcess(self.process, Channel(ours, TO_SUPERVISOR), LeaseTable.create(10)),
            Channel(theirs, TO_WORKER),
        )
        child.info = WorkerInfo(id=WorkerId("another"))
        child.is_up = True
        self.children.append(child)
        try:
            yield child, lambda: [one for one in end.receive() or [] if one != WakeUp()]
        finally:
            self.children.remove(child)
            child.close()
            end.close()

    def heard(self) -> list[ToWorker]:
        """What was said to the child, but for the wake-ups, which come when they like."""
        return [one for one in self._theirs.receive() or [] if one != WakeUp()]

    def is_woken(self) -> bool:
        return WakeUp() in (self._theirs.receive() or [])

    def claim(self, count: int, worker: WorkerId = WORKER) -> list[Job]:
        self.store.insert([new_job() for _ in range(count)])
        return list(
            self.store.settle_and_claim(
                worker, claims=[QueueClaim(QueueName(DEFAULT_QUEUE), count)], room=count
            ).jobs
        )

    def write(self, job: Job, *, is_begun: bool) -> LeaseRow:
        line = self.child.lease_table.write(job, self.clock.monotonic())
        assert line is not None
        if is_begun:
            line.start(self.clock.monotonic())
        return line

    def dies(self) -> None:
        self.children.clear()
        self.child.mark_exited(-9)
        self.manager.release_exited(self.child, "was killed by SIGKILL")

    def job(self, job_id: JobId) -> Job:
        [job] = self.reader.jobs([job_id])
        assert job is not None
        return job

    def close(self) -> None:
        self.manager.stop(0)
        self.process.returncode = None  # in some tests it plays dead
        self.process.kill()
        self.process.wait()
        self.child.close()
        self._theirs.close()


@pytest.fixture
def scene(engine: Engine, store: Store, reader: Reader, clock: ManualClock) -> Iterator[Scene]:
    scene = Scene(engine, store, reader, clock)
    yield scene
    scene.close()


def lease(job: Job) -> Lease:
    return Lease(job.id, job.attempt)


# ------------------------------------------------------------------ waking


def test_a_process_that_is_up_is_woken_when_work_comes(scene: Scene) -> None:
    scene.manager.welcome(scene.child)
    assert scene.manager.tick()

    scene.store.insert([new_job()])

    eventually(scene.is_woken)


def test_a_process_that_is_not_up_yet_is_left_alone(scene: Scene) -> None:
    assert scene.manager.tick()  # listens from now on
    other = Scene(scene.engine, scene.store, scene.reader, scene.clock)
    other.manager = scene.manager
    other.child.is_up = True
    scene.children.append(other.child)

    scene.store.insert([new_job()])

    eventually(other.is_woken)
    assert not scene.is_woken()
    other.close()


# ------------------------------------------------------------------ keeping


def test_a_worker_is_welcomed_only_when_it_is_on_the_list(scene: Scene) -> None:
    scene.engine.fails_before.add("heartbeat")
    scene.manager.welcome(scene.child)

    assert not scene.manager.tick()
    assert scene.heard() == []
    assert not scene.child.is_up
    scene.engine.fails_before.clear()
    assert scene.manager.tick()

    assert scene.heard() == [WorkerAccepted()]
    assert [(info.id, info.supervisor) for info in scene.reader.workers()] == [(WORKER, os.getpid())]


def test_leases_on_the_page_are_renewed_after_a_third_of_their_length_and_no_others(scene: Scene) -> None:
    scene.welcomed()
    one, unknown = scene.claim(2)
    scene.write(one, is_begun=True)

    scene.clock.advance(9_000)
    scene.manager.tick()
    assert scene.heard() == []
    scene.clock.advance(2_000)
    scene.manager.tick()

    (kept,) = scene.heard()
    assert isinstance(kept, LeasesRenewed)
    assert (kept.renewed, kept.refused) == ((lease(one),), ())
    assert (scene.job(one.id).lease_expires_at or 0) == (one.lease_expires_at or 0) + 11_000
    assert scene.job(unknown.id).lease_expires_at == unknown.lease_expires_at


@pytest.mark.shows("R-EDGE-31")
def test_a_long_lease_is_renewed_every_ten_seconds(scene: Scene) -> None:
    scene.welcomed()
    scene.store.insert([new_job()])
    [one] = scene.store.settle_and_claim(
        WORKER, claims=[QueueClaim(DEFAULT_QUEUE, 1, 3_600_000)], room=1
    ).jobs
    scene.write(one, is_begun=True)

    for _ in range(2):
        scene.clock.advance(9_000)
        scene.manager.tick()
        assert scene.heard() == []
        scene.clock.advance(2_000)
        scene.manager.tick()
        assert [message.renewed for message in scene.heard() if isinstance(message, LeasesRenewed)] == [
            (lease(one),)
        ]


def test_a_lease_that_is_lost_is_told_once(scene: Scene) -> None:
    scene.welcomed()
    (one,) = scene.claim(1)
    scene.write(one, is_begun=True)
    scene.store.cancel([one.id], force=True)

    scene.clock.advance(11_000)
    scene.manager.tick()
    (kept,) = scene.heard()
    scene.clock.advance(11_000)
    scene.manager.tick()

    assert isinstance(kept, LeasesRenewed)
    assert [refusal.lease for refusal in kept.refused] == [lease(one)]
    assert scene.heard() == []


def test_requests_to_cancel_are_passed_on(scene: Scene) -> None:
    scene.welcomed()
    (one,) = scene.claim(1)
    scene.write(one, is_begun=True)
    scene.store.cancel([one.id], "enough")

    scene.clock.advance(11_000)
    scene.manager.tick()

    requests = [message for message in scene.heard() if isinstance(message, CancelsRequested)]
    assert [[tuple(cancel) for cancel in message.cancels] for message in requests] == [[(one.id, "enough")]]


def test_while_the_store_is_away_leases_are_in_doubt_and_renewed_when_it_is_back(scene: Scene) -> None:
    scene.welcomed()
    (one,) = scene.claim(1)
    scene.write(one, is_begun=True)
    scene.clock.advance(11_000)
    scene.engine.fails_before.add("renew")

    assert not scene.manager.tick()
    assert scene.heard() == [RenewalFailed(leases=(lease(one),), failures=1)]
    assert scene.manager.answers_since(scene.clock.monotonic()) == scene.clock.monotonic()
    scene.engine.fails_before.clear()
    assert scene.manager.tick()

    assert [type(message) for message in scene.heard()] == [LeasesRenewed]


def test_the_page_tells_when_leases_were_last_renewed_and_not_while_the_store_is_away(scene: Scene) -> None:
    scene.welcomed()
    scene.clock.advance(seconds=10)
    assert scene.manager.tick()
    kept_at = scene.clock.monotonic()
    assert scene.child.lease_table.renewed_at == kept_at

    [job] = scene.claim(1)
    scene.write(job, is_begun=True)
    scene.engine.fails_before.add("renew")
    scene.clock.advance(seconds=10)

    assert not scene.manager.tick()
    assert scene.child.lease_table.renewed_at == kept_at


def test_a_silent_worker_is_shown_at_once_and_so_is_its_return(scene: Scene) -> None:
    scene.welcomed()

    scene.child.is_silent = True
    scene.manager.tick()
    assert [info.state for info in scene.reader.workers()] == [WorkerState.UNRESPONSIVE]
    scene.child.is_silent = False
    scene.manager.tick()

    assert [info.state for info in scene.reader.workers()] == [WorkerState.IDLE]


@pytest.mark.shows("R-WORK-03")
def test_a_worker_that_has_begun_is_shown_so_at_once(scene: Scene) -> None:
    info = scene.child.info
    assert info is not None
    scene.child.info = replace(info, state=WorkerState.STARTING)
    scene.welcomed()
    assert [info.state for info in scene.reader.workers()] == [WorkerState.STARTING]

    scene.child.info = replace(info, state=WorkerState.IDLE)
    scene.manager.tick()

    assert [info.state for info in scene.reader.workers()] == [WorkerState.IDLE]


# ------------------------------------------------------------------ what a silent worker has not started


def test_what_a_silent_worker_has_not_begun_goes_back_when_it_had_time_to_say_so(scene: Scene) -> None:
    scene.welcomed()
    begun, waiting, late = scene.claim(3)
    scene.write(begun, is_begun=True)
    scene.write(waiting, is_begun=False)
    line = scene.write(late, is_begun=False)
    scene.child.is_silent = True

    scene.manager.tick()
    assert scene.job(waiting.id).state is JobState.RUNNING
    assert not line.start(scene.clock.monotonic())  # it wakes up, and hears that it is too late
    scene.clock.advance(250)
    scene.manager.tick()

    assert [scene.job(job.id).state for job in (begun, waiting, late)] == [
        JobState.RUNNING,
        JobState.PENDING,
        JobState.PENDING,
    ]
    assert (scene.job(waiting.id).crashes, scene.job(waiting.id).failures) == (0, 0)
    assert [scene.job(job.id).run_number for job in (begun, waiting, late)] == [1, 0, 0]


def test_a_job_that_begins_just_before_the_request_stays_where_it_is(scene: Scene) -> None:
    scene.welcomed()
    (one,) = scene.claim(1)
    line = scene.write(one, is_begun=False)
    scene.child.is_silent = True

    # As if the worker had read the page a moment before the request was written there.
    line.start(scene.clock.monotonic())
    scene.manager.tick()
    scene.clock.advance(250)
    scene.manager.tick()

    assert scene.job(one.id).state is JobState.RUNNING


# ------------------------------------------------------------------ the dead


@pytest.mark.shows("R-SWEEP-09")
def test_of_a_dead_worker_what_had_begun_is_lost_and_the_rest_counts_for_nothing(scene: Scene) -> None:
    scene.welcomed()
    begun, waiting, unknown = scene.claim(3)
    scene.write(begun, is_begun=True)
    scene.write(waiting, is_begun=False)

    scene.dies()
    assert scene.manager.tick()

    records = [scene.job(job.id) for job in (begun, waiting, unknown)]
    assert [(job.state, job.crashes, job.run_number) for job in records] == [
        (JobState.PENDING, 1, 1),
        (JobState.PENDING, 0, 0),
        (JobState.PENDING, 0, 0),
    ]
    message = f"worker process {scene.process.pid} was killed by SIGKILL"
    assert [error.message for error in records[0].errors] == [message]
    assert scene.reader.workers() == []
    assert scene.manager.is_idle


@pytest.mark.parametrize("method", ["sweep", "settle_and_claim", "remove_worker"])
@pytest.mark.parametrize("is_lost", [True, False], ids=["the answer is lost", "it never arrived"])
def test_a_dead_worker_is_removed_as_soon_as_the_store_answers(
    scene: Scene, method: str, is_lost: bool
) -> None:
    scene.welcomed()
    (one,) = scene.claim(1)
    scene.write(one, is_begun=True)
    (scene.engine.fails_after if is_lost else scene.engine.fails_before).add(method)

    scene.dies()
    assert not scene.manager.tick()
    assert not scene.manager.is_idle
    scene.engine.fails_before.clear()
    assert scene.manager.tick()

    assert (scene.job(one.id).state, scene.job(one.id).crashes) == (JobState.PENDING, 1)
    assert scene.reader.workers() == []
    assert scene.manager.is_idle


@pytest.mark.parametrize("method", ["sweep", "lease_status", "remove_worker"])
def test_while_a_transaction_holds_what_a_dead_worker_held_leases_of_the_living_are_renewed(
    scene: Scene, method: str
) -> None:
    scene.welcomed()
    (one,) = scene.claim(1)
    scene.write(one, is_begun=True)
    scene.engine.busy_for.add((method, WORKER))
    scene.dies()
    with scene.another() as (child, heard):
        (held,) = scene.claim(1, WorkerId("another"))
        child.lease_table.write(held, scene.clock.monotonic())
        scene.clock.advance(seconds=10)
        scene.manager.tick()

        assert [message.renewed for message in heard() if isinstance(message, LeasesRenewed)] == [
            (lease(held),)
        ]
        assert not scene.manager.is_idle
        scene.engine.busy_for.clear()
        assert scene.manager.tick()

    assert (scene.job(one.id).state, scene.job(one.id).crashes) == (JobState.PENDING, 1)
    assert scene.manager.is_idle


def test_a_renewal_that_a_transaction_holds_up_costs_no_other_process_its_own(scene: Scene) -> None:
    scene.welcomed()
    (one,) = scene.claim(1)
    scene.write(one, is_begun=True)
    scene.engine.busy_for.add(("renew", WORKER))
    with scene.another() as (child, heard):
        (held,) = scene.claim(1, WorkerId("another"))
        child.lease_table.write(held, scene.clock.monotonic())
        scene.clock.advance(seconds=10)
        scene.manager.tick()

        assert [message.renewed for message in heard() if isinstance(message, LeasesRenewed)] == [
            (lease(held),)
        ]
    assert [type(message) for message in scene.heard()] == [RenewalFailed]
    scene.engine.busy_for.clear()
    assert scene.manager.tick()
    assert [message.renewed for message in scene.heard() if isinstance(message, LeasesRenewed)] == [
        (lease(one),)
    ]


@pytest.mark.shows("R-WORK-13")
def test_a_job_that_is_given_up_is_told_to_a_process_that_lives(scene: Scene) -> None:
    scene.welcomed()
    scene.store.insert([new_job(policy=RetryPolicy(max_crashes=0))])
    [job] = scene.store.settle_and_claim(
        WORKER, claims=[QueueClaim(QueueName(DEFAULT_QUEUE), 1)], room=1
    ).jobs
    scene.write(job, is_begun=True)
    scene.children.clear()
    scene.manager.release_exited(scene.child, "was killed by SIGKILL")
    assert scene.manager.tick()

    # The message waits: no process was there to call the listeners.
    with scene.another() as (child, heard):
        assert scene.manager.tick()

        [message] = [one for one in heard() if isinstance(one, JobMarkedDead)]
        assert (message.job_id, message.attempt, message.crashes, message.error.type) == (
            job.id,
            1,
            1,
            "Lost",
        )
        assert message.reason is not None
        assert scene.manager.tick()
        assert heard() == []
        assert child.is_up


def test_a_process_that_dies_before_its_welcome_leaves_nothing_behind(scene: Scene) -> None:
    scene.manager.welcome(scene.child)
    scene.dies()

    assert scene.manager.tick()

    assert scene.reader.workers() == []
    assert scene.manager.is_idle


# ------------------------------------------------------------------ commands


def test_commands_go_to_the_worker_and_its_answers_to_the_store(scene: Scene) -> None:
    scene.welcomed()
    (command,) = scene.store.send_command(CommandKind.PAUSE, [WORKER])

    scene.clock.advance(1_000)
    scene.manager.tick()
    assert [message.command.id for message in scene.heard() if isinstance(message, CommandSent)] == [
        command.id
    ]
    scene.manager.answer(command.id, "paused")
    scene.manager.tick()

    (answered,) = scene.reader.commands([command.id])
    assert answered is not None
    assert answered.response == "paused"


def test_the_last_answer_of_a_worker_comes_before_it_is_taken_off_the_list(scene: Scene) -> None:
    """A caller that waits for an answer does so for as long as the worker is listed."""
    scene.welcomed()
    (command,) = scene.store.send_command(CommandKind.HALT, [WORKER])
    scene.manager.answer(command.id, "halting")
    scene.engine.fails_before.add("remove_worker")

    scene.dies()
    assert not scene.manager.tick()

    (answered,) = scene.reader.commands([command.id])
    assert answered is not None
    assert answered.response == "halting"
    scene.engine.fails_before.clear()


def test_a_lost_lease_that_the_child_was_given_again_is_renewed_again(scene: Scene) -> None:
    [job] = scene.claim(1)
    line = scene.write(job, is_begun=True)
    scene.welcomed()
    scene.store.settle_and_claim(WORKER, [])
    lost = replace(job, attempt=job.attempt + 1)  # as if the store did not know of this attempt
    scene.child.lease_table.free_rows.append(line)
    line = scene.write(lost, is_begun=True)
    scene.clock.advance(seconds=10)
    assert scene.manager.tick()
    assert [one.refused[0].lease for one in scene.heard() if isinstance(one, LeasesRenewed)] == [
        Lease(job.id, lost.attempt)
    ]
    scene.clock.advance(seconds=10)
    assert scene.manager.tick()
    assert not scene.heard()

    line.renew(scene.clock.monotonic())
    scene.clock.advance(seconds=10)
    assert scene.manager.tick()

    assert [one.refused[0].lease for one in scene.heard() if isinstance(one, LeasesRenewed)] == [
        Lease(job.id, lost.attempt)
    ]
