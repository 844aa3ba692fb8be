"""A worker's death is seen by its lock at once; the living and the paused keep their leases."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from forebay.clock import SystemClock
from forebay.domain.job import DEFAULT_QUEUE, Job, WorkerId
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.domain.outcome import Lost
from forebay.domain.settlement import decide
from forebay.domain.worker import WorkerInfo
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.sqlite.engine import SqliteEngine
from forebay.stores.sqlite.store import SqliteStore
from forebay.testing.manual_clock import ManualClock
from tests.stores.sqlite_support import Program, folder_of, probe, problems, program
from tests.stores.support import OTHER_WORKER, SWEEPER, WORKER, claim, complete, new_job

DAY: Final = 86_400_000

WORK: Final = """
engine = SqliteEngine(path)
store = engine.store()
worker = WorkerId(sys.argv[2])
store.heartbeat(WorkerInfo(id=worker, pid=os.getpid()))
jobs = store.settle_and_claim(worker, claims=[QueueClaim(DEFAULT, 2, 86_400_000)], room=2).jobs
say("holds", len(jobs))
while True:
    line = hear()
    if line == "settle":
        answer = store.settle_and_claim(worker, [decide(one, Completed(b"1"), 0.0) for one in jobs])
        say("settled", len(answer.settled), "refused", len(answer.refused))
    elif line == "heartbeat":
        store.heartbeat(WorkerInfo(id=worker, pid=os.getpid()))
        say("heartbeat")
    elif line == "fork":
        if os.fork() == 0:
            say("forked")
            hear()
            os._exit(0)
    else:
        break
"""


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "jobs.db"
    yield path
    assert problems(SqliteEngine(str(path))) == ()


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    """Another program's handle, with four jobs waiting."""
    store = SqliteEngine(str(path)).store()
    store.insert([new_job()] * 4)
    yield store
    store.close()


def start(worker: Program) -> Program:
    assert worker.hear() == "holds 2"
    return worker


def locks(path: Path) -> list[str]:
    return sorted(file.name for file in folder_of(path).glob("worker-*"))


@pytest.mark.shows("R-SWEEP-05", "R-SWEEP-27", "R-EDGE-08")
@pytest.mark.parametrize("only_dead", [True, False])
def test_the_leases_of_a_killed_worker_are_taken_over_at_once(
    path: Path, store: SqliteStore, only_dead: bool
) -> None:
    with program(WORK, path, "w1") as worker:
        start(worker).kill()

    swept = store.sweep(SWEEPER, only_dead=only_dead)
    answer = store.settle_and_claim(SWEEPER, [decide(job, Lost("its worker died"), 0.0) for job in swept])

    assert [(job.attempt, job.worker) for job in swept] == [(1, SWEEPER)] * 2
    assert len(answer.settled) == 2
    assert len(claim(store, 10)) == 4
    assert store.sweep(SWEEPER, only_dead=only_dead) == []
    assert locks(path) == []


@pytest.mark.shows("R-EDGE-06")
@pytest.mark.parametrize("only_dead", [True, False])
def test_the_leases_of_a_living_worker_are_left_alone(
    path: Path, store: SqliteStore, only_dead: bool
) -> None:
    with program(WORK, path, "w1") as worker:
        start(worker)
        swept = store.sweep(SWEEPER, only_dead=only_dead)
        worker.write_line("settle")
        settled = worker.hear()

    assert swept == []
    assert settled == "settled 2 refused 0"


def test_of_two_workers_only_the_dead_ones_leases_go(path: Path, store: SqliteStore) -> None:
    with program(WORK, path, "dead") as dead, program(WORK, path, "living") as living:
        start(dead)
        start(living)
        dead.kill()
        swept = store.sweep(SWEEPER)
        living.write_line("settle")
        settled = living.hear()
        reader = SqliteEngine(str(path)).reader()
        events = [event for _, event in reader.audit() if event.kind is EventKind.SWEPT]
        reader.close()

    assert len(swept) == 2
    assert settled == "settled 2 refused 0"
    assert {(event.actor, event.detail) for event in events} == {("sweeper", "dead")}


@pytest.mark.shows("R-EDGE-06")
def test_a_worker_that_stands_still_is_not_taken_for_dead(path: Path, store: SqliteStore) -> None:
    with program(WORK, path, "w1") as worker:
        start(worker).send(signal.SIGSTOP)
        swept = store.sweep(SWEEPER)
        worker.send(signal.SIGCONT)
        worker.write_line("settle")
        settled = worker.hear()

    assert swept == []
    assert settled == "settled 2 refused 0"


@pytest.mark.shows("R-EDGE-04")
def test_a_worker_that_stood_still_for_longer_than_its_lease_is_refused(
    path: Path, store: SqliteStore
) -> None:
    later = ManualClock(now_ms=SystemClock().now_ms() + 2 * DAY)
    other = SqliteEngine(str(path), clock=later).store()

    with program(WORK, path, "w1") as worker:
        start(worker).send(signal.SIGSTOP)
        swept = other.sweep(SWEEPER)
        worker.send(signal.SIGCONT)
        worker.write_line("settle")
        settled = worker.hear()
    other.settle_and_claim(SWEEPER, [decide(job, Lost("silent"), 0.0) for job in swept])
    other.close()

    assert len(swept) == 2
    assert settled == "settled 0 refused 2"


def test_a_program_that_is_started_again_does_not_wait_for_its_own_jobs(
    path: Path, store: SqliteStore
) -> None:
    with program(WORK, path, "first start") as worker:
        start(worker).kill()

    again = SqliteEngine(str(path)).store()
    again.heartbeat(WorkerInfo(id=WORKER))
    swept = again.sweep(WORKER, only_dead=True)
    again.settle_and_claim(WORKER, [decide(job, Lost("its worker died"), 0.0) for job in swept])
    jobs = claim(again, 10)
    again.close()

    assert len(swept) == 2
    assert sorted(job.attempt for job in jobs) == [1, 1, 2, 2]


def test_a_worker_that_never_said_it_lives_is_not_known_to_be_dead(path: Path, store: SqliteStore) -> None:
    silent = WORK.replace("store.heartbeat(WorkerInfo(id=worker, pid=os.getpid()))\njobs", "jobs")

    with program(silent, path, "w1") as worker:
        start(worker).kill()

    assert store.sweep(SWEEPER) == []


def test_a_child_that_lives_on_keeps_the_lock(path: Path, store: SqliteStore) -> None:
    with program(WORK, path, "w1") as worker:
        start(worker).write_line("fork")
        assert worker.hear() == "forked"
        worker.send(signal.SIGKILL)
        assert worker.wait() == -signal.SIGKILL
        while_the_child_lives = store.sweep(SWEEPER)
    after = probe(lambda: store.sweep(SWEEPER), "the child's end is seen")

    assert while_the_child_lives == []
    assert len(after) == 2


# Several handles in one process


def live_store(path: Path, worker: WorkerId) -> SqliteStore:
    store = SqliteEngine(str(path)).store()
    store.heartbeat(WorkerInfo(id=worker))
    return store


def test_two_handles_of_one_process_see_each_other_alive_and_closed(path: Path, store: SqliteStore) -> None:
    one, other = live_store(path, WORKER), live_store(path, OTHER_WORKER)
    held = claim(one, 2, worker=WORKER)
    both_open = other.sweep(OTHER_WORKER)

    one.close()
    one_closed = other.sweep(OTHER_WORKER)
    other.close()

    assert both_open == []
    assert {job.id for job in one_closed} == {job.id for job in held}


def test_a_worker_does_not_take_its_own_leases_for_those_of_the_dead(path: Path, store: SqliteStore) -> None:
    one = live_store(path, WORKER)
    claim(one, 2)

    assert one.sweep(WORKER) == []
    one.close()


def test_a_second_heartbeat_changes_nothing(path: Path, store: SqliteStore) -> None:
    one = live_store(path, WORKER)
    for _ in range(3):
        one.heartbeat(WorkerInfo(id=WORKER))
    claim(one, 1)

    assert store.sweep(SWEEPER) == []
    assert locks(path) == ["worker-w1.lock"]
    one.close()


def test_a_worker_that_ended_in_order_leaves_no_lock(path: Path, store: SqliteStore) -> None:
    one = live_store(path, WORKER)
    jobs = claim(one, 2)
    one.settle_and_claim(WORKER, [complete(job) for job in jobs])

    one.remove_worker(WORKER)
    one.close()

    assert locks(path) == []
    assert store.sweep(SWEEPER) == []


def test_forgetting_another_handles_worker_leaves_its_lock(path: Path, store: SqliteStore) -> None:
    one = live_store(path, WORKER)
    claim(one, 2)

    store.remove_worker(WORKER)
    swept = store.sweep(SWEEPER)
    one.close()

    assert swept == []


@pytest.mark.parametrize("name", ["a/b", "ä ö", "..", "%2F", "x" * 60, "w.lock"])
def test_any_worker_id_makes_a_lock(path: Path, store: SqliteStore, name: str) -> None:
    one = live_store(path, WorkerId(name))
    claim(one, 2, worker=WorkerId(name))
    while_open = store.sweep(SWEEPER)

    one.close()
    after = store.sweep(SWEEPER)

    assert (while_open, len(after)) == ([], 2)
    assert locks(path) == []


def test_a_sweep_that_fails_leaves_the_death_for_the_next_one(
    path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = live_store(path, WORKER)
    claim(one, 2)
    one.close()

    monkeypatch.setattr("forebay.stores.sqlite.leases.sweep", _fail)
    with pytest.raises(RuntimeError, match="on purpose"):
        store.sweep(SWEEPER)
    monkeypatch.undo()
    swept = store.sweep(SWEEPER)

    assert len(swept) == 2


def _fail(*_: object, **__: object) -> list[Job]:
    raise RuntimeError("on purpose")


def test_more_leases_of_the_dead_than_one_sweep_takes_are_all_taken_in_the_end(
    path: Path, store: SqliteStore
) -> None:
    one = live_store(path, WORKER)
    one.settle_and_claim(WORKER, claims=[QueueClaim(DEFAULT_QUEUE, 4, DAY)], room=4)
    one.close()

    swept = [store.sweep(SWEEPER, limit=3), store.sweep(SWEEPER, limit=3), store.sweep(SWEEPER, limit=3)]

    assert [len(batch) for batch in swept] == [3, 1, 0]
    assert {job.state for batch in swept for job in batch} == {JobState.RUNNING}


# Deaths that the caller knows of


def test_the_lock_of_a_living_process_does_not_save_a_worker_that_is_named_as_dead(
    path: Path, store: SqliteStore
) -> None:
    with program(WORK, path, WORKER) as worker:
        start(worker)

        swept = store.sweep(SWEEPER, only_dead=True, dead=[WORKER])
        worker.write_line("settle")

        assert len(swept) == 2
        assert worker.hear() == "settled 0 refused 2"
        assert locks(path) == ["worker-w1.lock"]


def test_a_handle_that_holds_the_lock_may_name_its_own_worker_as_dead(path: Path, store: SqliteStore) -> None:
    one = live_store(path, WORKER)
    held = claim(one, 2)

    swept = one.sweep(SWEEPER, only_dead=True, dead=[WORKER])
    left = locks(path)
    one.remove_worker(WORKER)
    one.close()

    assert {job.id for job in swept} == {job.id for job in held}
    assert left == ["worker-w1.lock"]
    assert locks(path) == []


def test_an_unreported_death_is_found_in_the_same_sweep(path: Path, store: SqliteStore) -> None:
    one, other = live_store(path, WORKER), live_store(path, OTHER_WORKER)
    claim(one, 2, worker=WORKER)
    claim(other, 2, worker=OTHER_WORKER)
    one.close()

    swept = store.sweep(SWEEPER, only_dead=True, dead=[OTHER_WORKER])

    assert len(swept) == 4
    assert locks(path) == ["worker-w2.lock"]
    other.close()
