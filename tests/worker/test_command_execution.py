"""A worker is paused, resumed, stopped and looked into, by a call and through the store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from math import nan
from threading import Event
from typing import Any, cast

import pytest

from forebay import Forebay, JobHandle
from forebay.domain.job import DEFAULT_QUEUE, QueueName, WorkerId
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Interrupted
from forebay.domain.worker import WorkerInfo, WorkerState
from forebay.domain.worker_command import Command, CommandKind
from forebay.errors import ConfigError, StoreUnavailable
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from forebay.worker.assigned_job import Assignment
from forebay.worker.command_execution import Control
from forebay.worker.coordinator_inbox import Inbox
from forebay.worker.coordinator_watchdog import Watchdog
from forebay.worker.queue_weights_and_pauses import QueueWeights
from forebay.worker.slots import Slots
from forebay.worker.worker import Worker
from tests.app.watched_engine import WatchedEngine
from tests.worker.rig import Rig
from tests.worker.support import DEADLINE, an_assignment, eventually, no_thread_stays


class Holding:
    """Jobs that run until they are let go."""

    def __init__(self, app: Forebay) -> None:
        self.go_on = Event()
        self.started: list[int] = []
        self.task = app.task(name="hold")(self._hold)

    def _hold(self, number: int) -> int:
        self.started.append(number)
        self.go_on.wait(DEADLINE)
        return number

    def runs(self, *numbers: int) -> None:
        eventually(lambda: sorted(self.started) == sorted(numbers))


@pytest.fixture
def holding(app: Forebay) -> Iterator[Holding]:
    holding = Holding(app)
    yield holding
    holding.go_on.set()


@contextmanager
def working(app: Forebay, **options: Any) -> Iterator[Worker]:
    worker = Worker(app.engine, app.registry, **options)
    with no_thread_stays():
        worker.start()
        try:
            yield worker
        finally:
            worker.stop(0)


def answer_text(app: Forebay, worker: Worker, kind: CommandKind, queue: str | None = None) -> str:
    """Ask through the store; the worker's answer."""
    store = app.engine.store()
    try:
        [command] = store.send_command(
            kind, [worker.id], queue=QueueName(queue) if queue else None, actor="ada"
        )
    finally:
        store.close()
    return eventually(lambda: answer_to(app, command.id)) or ""


def answer_to(app: Forebay, command_id: str) -> str | None:
    [command] = app.client.read(lambda reader: reader.commands([command_id]))
    return None if command is None else command.response


def listed(app: Forebay, worker: Worker) -> WorkerInfo | None:
    found = app.client.read(lambda reader: reader.workers())
    return next((one for one in found if one.id == worker.id), None)


def shown(app: Forebay, worker: Worker) -> str:
    info = listed(app, worker)
    return info.state if info else "gone"


def states(jobs: list[JobHandle[int]]) -> list[JobState]:
    return [job.refresh().state for job in jobs]


# ------------------------------------------------------------------ pausing


@pytest.mark.shows("R-WORK-42", "R-EDGE-83", "R-WORK-01")
def test_a_paused_worker_lets_its_job_end_starts_nothing_and_goes_on_at_once_when_resumed(
    app: Forebay, holding: Holding
) -> None:
    with working(app, threads=1) as worker:
        first = holding.task.enqueue(1)
        holding.runs(1)
        worker.pause()
        second = holding.task.enqueue(2)
        holding.go_on.set()

        assert first.result(DEADLINE) == 1
        eventually(lambda: worker.status().info.state is WorkerState.PAUSED)
        assert (holding.started, second.refresh().state) == ([1], JobState.PENDING)

        worker.resume()

        assert second.result(DEADLINE) == 2


@pytest.mark.shows("R-WORK-42")
def test_a_pause_hands_back_what_was_claimed_and_not_started(rig: Rig) -> None:
    coordinator = rig.coordinator(threads=3)
    ids = rig.insert(3)
    coordinator.tick()
    [running] = rig.threads.begin(1)

    coordinator.queue_weights.pause()
    coordinator.tick()

    assert rig.states(ids) == {"running": 1, "pending": 2}
    rig.threads.finish(running)
    coordinator.tick()
    assert rig.states(ids) == {"completed": 1, "pending": 2}
    assert {rig.job(job_id).failures + rig.job(job_id).crashes for job_id in ids} == {0}


def test_what_a_claim_brings_after_the_pause_is_not_started(rig: Rig) -> None:
    paused = rig.coordinator()

    class Late:
        """A store whose claim is under way while an operator pauses the worker."""

        def __getattr__(self, name: str) -> Any:
            return getattr(rig.store, name)

        def settle_and_claim(self, *args: Any, **more: Any) -> Any:
            answer = rig.store.settle_and_claim(*args, **more)
            paused.queue_weights.pause()
            return answer

    paused._store = cast(Store, Late())
    ids = rig.insert(2)
    paused.tick()

    assert rig.threads.given == []
    paused.tick()
    assert rig.states(ids) == {"pending": 2}


def test_the_first_thread_to_take_ownership_has_the_job() -> None:
    slots, inbox = Slots(2), Inbox()
    queue_weights = QueueWeights({DEFAULT_QUEUE: 1}, slots, inbox)
    begun, waiting = an_assignment(), an_assignment(id="other")
    slots.add([begun, waiting])
    assert begun.acquire()

    queue_weights.pause()

    assert inbox.drain() == [(waiting, Interrupted(started=False))]
    assert not waiting.acquire()


@pytest.mark.shows("R-QUEUE-15")
def test_one_queue_is_paused_for_one_worker_and_for_no_other(app: Forebay) -> None:
    ran: list[str] = []

    @app.task(name="note")
    def note(queue: str) -> None:
        ran.append(queue)

    with working(app, queues=["mail", "reports"]) as worker:
        worker.pause("mail")
        mail = note.using(queue="mail").enqueue("mail")
        note.using(queue="reports").enqueue("reports").wait(DEADLINE)
        eventually(lambda: shown(app, worker) == "idle")
        info = worker.status().info
        assert (ran, info.paused, info.state) == (["reports"], ("mail",), WorkerState.IDLE)

        with working(app, queues=["mail"]):
            mail.wait(DEADLINE)

        worker.resume("mail")
        note.using(queue="mail").enqueue("again").wait(DEADLINE)

    [queue] = app.client.read(lambda reader: reader.queues([QueueName("mail")]))
    assert queue.state == "active"


def test_a_queue_that_is_not_the_workers_own_cannot_be_paused(app: Forebay) -> None:
    worker = Worker(app.engine, app.registry, queues=["mail"])

    with pytest.raises(ConfigError, match="does not serve queue reports, but mail"):
        worker.pause("reports")


# ------------------------------------------------------------------ through the store


@pytest.mark.shows("R-WORK-44", "R-WORK-42")
def test_a_worker_is_paused_and_resumed_through_the_store(app: Forebay, holding: Holding) -> None:
    holding.go_on.set()
    with working(app) as worker:
        assert answer_text(app, worker, CommandKind.PAUSE) == "paused all queues; 0 running jobs go on"
        eventually(lambda: shown(app, worker) == "paused")
        job = holding.task.enqueue(1)

        assert answer_text(app, worker, CommandKind.RESUME) == "resumed all queues"
        assert job.result(DEADLINE) == 1

        assert answer_text(app, worker, CommandKind.PAUSE, DEFAULT_QUEUE).startswith(
            f"paused {DEFAULT_QUEUE};"
        )
        refused = answer_text(app, worker, CommandKind.PAUSE, "mail")
    assert refused == f"refused: this worker does not serve queue mail, but {DEFAULT_QUEUE}"


@pytest.mark.shows("R-WORK-44")
def test_a_worker_is_stopped_through_the_store_and_lets_its_job_end(app: Forebay, holding: Holding) -> None:
    with working(app, threads=1) as worker:
        jobs = app.enqueue_many([holding.task.job(number) for number in (1, 2)])
        eventually(lambda: len(holding.started) == 1)

        answer = answer_text(app, worker, CommandKind.STOP)
        eventually(lambda: shown(app, worker) == "stopping")
        holding.go_on.set()
        eventually(lambda: worker.is_over)

    assert answer == "stopping; 1 running job goes on, for up to 25 s"
    assert sorted(states(jobs)) == [JobState.COMPLETED, JobState.PENDING]
    assert shown(app, worker) == "gone"


def test_a_drain_has_no_limit_and_a_stop_after_it_has(app: Forebay, holding: Holding) -> None:
    with working(app) as worker:
        holding.task.enqueue(1)
        holding.runs(1)

        answer = answer_text(app, worker, CommandKind.DRAIN)
        unlimited = worker._drain_until
        answer_text(app, worker, CommandKind.STOP)
        limited = worker._drain_until
        holding.go_on.set()

    assert answer == "draining; 1 running job goes on, for as long as it takes"
    assert (unlimited, limited < unlimited) == (float("inf"), True)


@pytest.mark.shows("R-WORK-35")
def test_a_halt_interrupts_what_runs_and_hands_it_back(app: Forebay) -> None:
    began = Event()

    @app.task(name="spin")
    def spin() -> None:
        began.set()
        while True:
            Event().wait(0.001)

    with working(app) as worker:
        job = spin.enqueue()
        assert began.wait(DEADLINE)
        assert (
            answer_text(app, worker, CommandKind.HALT) == "halting; what runs is interrupted and handed back"
        )
        eventually(lambda: worker.is_over)

    record = job.refresh()
    assert (record.state, record.failures, record.crashes) == (JobState.PENDING, 0, 0)


@pytest.mark.shows("R-CLI-23")
def test_the_stacks_name_threads_and_the_jobs_they_run(app: Forebay, holding: Holding) -> None:
    @app.task(name="wait")
    async def wait() -> None:
        while not holding.go_on.is_set():
            await asyncio.sleep(0.01)

    with working(app) as worker:
        job, coroutine = holding.task.enqueue(1), wait.enqueue()
        eventually(lambda: worker.status().info.running and len(worker.status().info.running) == 2)
        text = answer_text(app, worker, CommandKind.STACKS)
        holding.go_on.set()

    assert f"runs hold, job {job.id}, attempt 1" in text
    assert f"coroutine runs wait, job {coroutine.id}, attempt 1" in text
    assert "in _hold" in text
    assert "forebay-coordinator" in text
    assert "MB resident" in text
    assert "objects in memory" in text


def test_a_command_leaves_an_event_that_says_who_asked(app: Forebay) -> None:
    with working(app) as worker:
        answer_text(app, worker, CommandKind.STACKS)

    [event] = [
        event
        for _, event in app.client.read(lambda reader: reader.audit())
        if event.kind is EventKind.WORKER_COMMAND
    ]
    assert (event.actor, worker.id in event.detail) == ("ada", True)


class Stub:
    """A worker that cannot be paused, and remembers what it was asked."""

    drain_seconds = 25.0

    def pause(self, queue: str | None = None) -> None:
        raise RuntimeError("broken")

    def resume(self, queue: str | None = None) -> None:
        pass

    def request_stop(self, drain: float | None = None) -> None:
        pass

    def stop_now(self) -> None:
        pass


def a_command(kind: CommandKind) -> Command:
    return Command(id="c1", worker=WorkerId("w"), kind=kind)


def test_a_command_that_goes_wrong_is_answered_too(caplog: pytest.LogCaptureFixture) -> None:
    answer = Control(Stub(), Slots(1)).carry_out(a_command(CommandKind.PAUSE))

    assert answer == "failed: RuntimeError: broken"
    assert "a command to pause went wrong" in caplog.text


def test_an_answer_that_the_store_did_not_take_is_given_again_and_the_command_is_not_repeated(
    store: Store,
) -> None:
    store.heartbeat(WorkerInfo(id=WorkerId("w")))
    [sent] = store.send_command(CommandKind.RESUME, [WorkerId("w")])
    control = Control(Stub(), Slots(1))
    answered: list[str] = []

    class Away:
        def answer_command(self, command_id: str, text: str) -> None:
            raise StoreUnavailable("away")

    class Back:
        def answer_command(self, command_id: str, text: str) -> None:
            answered.append(f"{command_id} {text}")

    with pytest.raises(StoreUnavailable):
        control.serve(Away(), [sent])  # type: ignore[arg-type]
    control.serve(Back(), [])  # type: ignore[arg-type]
    control.serve(Back(), [])  # type: ignore[arg-type]

    assert answered == [f"{sent.id} resumed all queues"]


# ------------------------------------------------------------------ states and status


@pytest.mark.shows("R-WORK-01", "R-WORK-35")
@pytest.mark.parametrize("graceful", [True, False])
def test_a_worker_runs_what_is_registered_until_it_is_stopped_in_order_or_at_once(
    app: Forebay, graceful: bool
) -> None:
    began, go_on = Event(), Event()

    def spin(number: int) -> int:
        began.set()
        while not go_on.is_set():
            Event().wait(0.001)
        return number

    task = app.task(name="spin")(spin)
    worker = Worker(app.engine, app.registry)
    with no_thread_stays():
        worker.start()
        job = task.enqueue(7)
        assert began.wait(DEADLINE)
        assert worker.status().info.running == (job.id,)
        if graceful:
            worker.request_stop()
            eventually(lambda: worker.status().info.state is WorkerState.STOPPING)
            go_on.set()
        worker.stop(None if graceful else 0)

    record = job.refresh()
    assert record.state is (JobState.COMPLETED if graceful else JobState.PENDING)
    assert (record.failures, record.crashes, worker.is_over) == (0, 0, True)


@pytest.mark.shows("R-WORK-03")
def test_each_state_is_published(app: Forebay, holding: Holding) -> None:
    infos: list[WorkerInfo] = []

    def hear(name: str, args: tuple[Any, ...]) -> None:
        if name == "heartbeat":
            infos.append(args[0])

    worker = Worker(WatchedEngine(app.engine, hear).contract, app.registry)
    worker.start()
    try:
        eventually(lambda: infos[-1].state is WorkerState.IDLE)
        holding.task.enqueue(1)
        holding.runs(1)
        worker._renewal.request_heartbeat()
        eventually(lambda: infos[-1].state is WorkerState.WORKING)
        worker.pause()
        eventually(lambda: infos[-1].state is WorkerState.PAUSED)
        worker.request_stop()
        eventually(lambda: infos[-1].state is WorkerState.STOPPING)
    finally:
        holding.go_on.set()
        worker.stop()

    assert infos[0].state is WorkerState.STARTING
    assert worker.status().info.state is WorkerState.STOPPED
    assert listed(app, worker) is None


def test_a_stop_that_comes_while_the_worker_begins_is_shown(
    app: Forebay, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(app.engine, app.registry)
    changes, phases = worker._set_phase, list[WorkerState]()

    def stopped_meanwhile(phase: WorkerState) -> None:
        if phase is WorkerState.WORKING:
            worker.request_stop()
        changes(phase)
        phases.append(worker._status_reporter.phase)

    monkeypatch.setattr(worker, "_set_phase", stopped_meanwhile)
    worker.start()
    worker.stop()

    assert WorkerState.WORKING in phases
    assert phases[phases.index(WorkerState.WORKING) + 1] is WorkerState.STOPPING


@pytest.mark.shows("R-WORK-04", "R-WORK-06", "R-WORK-01")
def test_the_status_tells_state_jobs_queues_depths_and_counts(app: Forebay, holding: Holding) -> None:
    @app.task(name="fail", retries=0)
    def fail() -> None:
        raise ValueError("on purpose")

    with working(app, threads=1, queues=[DEFAULT_QUEUE, "mail"]) as worker:
        fail.enqueue().wait(DEADLINE)
        running = holding.task.enqueue(1)
        holding.runs(1)
        waiting = holding.task.enqueue(2)
        busy = eventually(lambda: _status(worker, depth=1, completed=0))
        holding.go_on.set()
        waiting.wait(DEADLINE)
        # The worker counts when the store has answered, and others see it before.
        done = eventually(lambda: _status(worker, depth=0, completed=2))

    info = busy.info
    assert (info.id, info.queues, info.state) == (worker.id, (DEFAULT_QUEUE, "mail"), WorkerState.WORKING)
    assert (info.running, info.completed, info.failed, info.slots >= 101) == ((running.id,), 0, 1, True)
    assert (busy.depths, busy.is_healthy) == ({DEFAULT_QUEUE: 1, "mail": 0}, True)
    assert info.pid > 0
    assert info.host
    assert (info.memory or 0) > 1_000_000
    assert done.info.failed == 1


def _status(worker: Worker, *, depth: int, completed: int) -> Any:
    status = worker.status()
    depths = status.depths or {}
    return status if (depths.get(DEFAULT_QUEUE), status.info.completed) == (depth, completed) else None


def test_a_status_can_be_had_while_the_store_is_away(app: Forebay, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(app.engine, app.registry)

    def away() -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(app.engine, "reader", away)

    assert worker.status().depths is None


def test_ten_jobs_are_named_and_all_are_counted(app: Forebay, holding: Holding) -> None:
    with working(app, threads=12) as worker:
        app.enqueue_many([holding.task.job(number) for number in range(12)])
        eventually(lambda: len(holding.started) == 12)
        assert len(worker.status().info.running) == 10
        holding.go_on.set()
        eventually(lambda: worker.status().info.completed == 12)


@pytest.mark.shows("R-CFG-47")
@pytest.mark.parametrize("heartbeat", [4.9, 301, -1, nan])
def test_a_heartbeat_outside_of_its_range_is_refused(app: Forebay, heartbeat: float) -> None:
    with pytest.raises(ConfigError, match="heartbeat must be a number of seconds from 5 to 300"):
        Worker(app.engine, app.registry, heartbeat=heartbeat)


@pytest.mark.shows("R-CFG-47")
def test_the_heartbeat_is_part_of_what_a_worker_says(app: Forebay) -> None:
    with working(app, heartbeat=5) as worker:
        info = listed(app, worker)

    assert info is not None
    assert info.heartbeat_ms == 5_000


@pytest.mark.parametrize("queues", [{"mail": 0}, {"mail": 1.5}, {"mail": True}, {}, "mail"])
def test_queues_and_weights_that_make_no_sense_are_refused(app: Forebay, queues: Any) -> None:
    with pytest.raises(ConfigError, match=r"weight|list of at least one queue"):
        Worker(app.engine, app.registry, queues=queues)


# ------------------------------------------------------------------ the watchdog


def test_a_loop_that_hangs_is_seen_said_and_shown(
    app: Forebay, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("forebay.worker.coordinator_watchdog.SILENT_SECONDS", 0.05)
    monkeypatch.setattr("forebay.worker.coordinator_watchdog.HOPELESS_SECONDS", 0.1)
    reached, go_on = Event(), Event()
    error_types: list[str] = []
    app.on_error(lambda job, error: error_types.append(error.type))

    def hang(name: str, args: tuple[Any, ...]) -> None:
        if name == "settle_and_claim":
            reached.set()
            go_on.wait(DEADLINE)

    worker = Worker(WatchedEngine(app.engine, hang).contract, app.registry)
    with caplog.at_level(logging.ERROR):
        worker.start()
        try:
            assert reached.wait(DEADLINE)
            eventually(lambda: shown(app, worker) == "unresponsive")
            eventually(lambda: "the worker's loop has not moved for" in caplog.text)
            eventually(lambda: error_types == ["WorkerStuck"])
            assert worker.is_hopeless
            assert not worker.status().is_healthy
            assert "forebay-coordinator" in answer_text(app, worker, CommandKind.STACKS)
            monkeypatch.undo()
            go_on.set()
            eventually(lambda: worker.status().is_healthy)
            eventually(lambda: shown(app, worker) == "idle")
        finally:
            go_on.set()
            worker.stop()
    assert caplog.text.count("has not moved") == 1


def test_time_in_which_the_whole_process_was_stopped_is_not_held_against_the_loop(clock: ManualClock) -> None:
    watchdog = Watchdog(clock)

    def watched(seconds: float) -> bool:
        for _ in range(round(seconds * 2)):
            clock.advance(seconds=0.5)
            watchdog.check()
        return watchdog.is_hopeless

    watchdog.mark_progress()
    before = watched(10)
    clock.advance(seconds=3_600)  # as by SIGSTOP: neither the loop nor its watchdog moves
    after = (watchdog.is_hopeless, watchdog.is_silent)

    assert (before, after) == (False, (False, False))
    assert (watched(59.5), watched(0.5)) == (False, True)


def test_a_worker_whose_loop_has_crashed_says_that_it_is_not_well(app: Forebay) -> None:
    def crash(name: str, args: tuple[Any, ...]) -> None:
        if name == "settle_and_claim":
            raise SystemExit("crashed")

    worker = Worker(WatchedEngine(app.engine, crash).contract, app.registry)
    worker.start()
    eventually(lambda: worker.is_over)
    status = worker.status()
    with pytest.raises(SystemExit):
        worker.stop()

    assert (status.info.state, status.is_healthy) == (WorkerState.STOPPED, False)


def test_claimed_and_running_slots_do_not_confuse_the_stacks() -> None:
    one = an_assignment()
    one.started_at = 1.0
    slots = Slots(1)
    slots.add([one])

    text = Control(Stub(), slots).carry_out(a_command(CommandKind.STACKS))

    assert text.startswith("1 running jobs, ")
    assert isinstance(one, Assignment)
