from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from time import sleep

import pytest

from forebay.clock import SystemClock
from forebay.domain.histogram import histogram_of
from forebay.domain.job import QueueName, WorkerId
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.domain.lease import Lease
from forebay.domain.metrics import TEN_SECONDS, MetricRow, TaskStats, start_of
from forebay.domain.worker import WorkerInfo
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from forebay.testing.manual_clock import ManualClock
from tests.cli.command_runner import DEADLINE, answer, call, ids, make, put, refusal
from tests.stores.contract import steps

MAIL = QueueName("mail")
HOUR_MS = 3_600_000


@pytest.fixture
def past(store: Store) -> Store:
    """A handle to the same store whose clock stands two hours ago."""
    clock = ManualClock(now_ms=SystemClock().now_ms() - 2 * HOUR_MS)
    return open_engine("sqlite:///jobs.db", clock=clock).store()


def test_jobs_are_counted_by_queue_and_state_with_their_sum(store: Store) -> None:
    steps.put_many(store, 3)
    make(store, JobState.COMPLETED, queue=MAIL)
    steps.started(store, queue=QueueName("gone"))
    answer("queues", "delete", "gone", "--force", "--yes")

    found = answer("stats")

    assert (found["total"]["pending"], found["total"]["live"], found["total"]["total"]) == (3, 4, 5)
    states = {queue["name"]: queue["state"] for queue in found["queues"]}
    assert states == {"default": "active", "gone": "dropped", "mail": "active"}


def test_workers_are_listed(store: Store) -> None:
    store.heartbeat(WorkerInfo(id=WorkerId("w9"), host="here", pid=7, queues=(MAIL,)))

    [worker] = answer("stats")["workers"]
    page = call("stats").stdout

    assert (worker["id"], worker["host"], worker["pid"], worker["queues"]) == ("w9", "here", 7, ["mail"])
    assert " ago" in page


@pytest.mark.shows("R-CLI-06")
def test_jobs_that_run_for_too_long_are_stuck(store: Store, past: Store) -> None:
    old = steps.started(past, queue=MAIL)
    steps.started(store)
    past.close()

    assert ids(answer("stuck", "--age-hours", "1")["jobs"]) == [old.id]
    assert answer("stuck", "--age-hours", "3")["jobs"] == []
    assert "2h" in call("stuck").stdout


@pytest.mark.parametrize("hours", ["nan", "inf", "-1", "many"])
def test_an_age_that_is_none_is_bad_input(hours: str, store: Store) -> None:
    assert refusal("stuck", "--age-hours", hours)["status"] == 2


@pytest.mark.shows("R-CLI-04")
def test_a_sweep_by_hand_settles_attempts_whose_lease_has_ended(
    store: Store, past: Store, reader: Reader
) -> None:
    lost = steps.started(past, queue=MAIL)
    held = steps.started(store)
    past.close()

    assert answer("sweep", "--dead-workers") == {"swept": 0}
    assert answer("sweep", "--now") == {"swept": 1}

    assert steps.look(reader, held.id).state is JobState.RUNNING
    job = steps.look(reader, lost.id)
    assert (job.state, job.crashes) == (JobState.PENDING, 1)
    assert EventKind.SWEPT in steps.kinds_of(reader, lost.id)


def test_a_sweep_by_hand_waits_for_workers_that_renew_after_an_outage(
    store: Store, past: Store, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, living = steps.started(past, queue=MAIL), steps.started(past)
    past.close()
    waited: list[float] = []

    def renew_meanwhile(seconds: float) -> None:
        waited.append(seconds)
        store.renew(steps.W1, [Lease(living.id, living.attempt)])
        sleep(seconds)

    monkeypatch.setattr("forebay.cli.commands.sweep_leases.time.sleep", renew_meanwhile)

    assert answer("sweep") == {"swept": 1}

    assert waited
    assert steps.look(reader, living.id).state is JobState.RUNNING
    assert steps.look(reader, lost.id).state is JobState.PENDING


@pytest.mark.shows("R-CLI-07")
def test_the_jobs_of_dead_workers_are_handed_back_at_once(store: Store, reader: Reader) -> None:
    dying = open_engine("sqlite:///jobs.db").store()
    dying.heartbeat(WorkerInfo(id=steps.W2))
    orphan = steps.started(dying, steps.W2)
    dying.close()  # without a word, as a process that is killed: the lock on its file is gone

    assert answer("sweep", "--dead-workers") == {"swept": 1}

    assert steps.look(reader, orphan.id).state is JobState.PENDING


def test_a_store_is_created_and_brought_up_to_date(folder: Path) -> None:
    first = answer("migrate", "--url", "sqlite:///new.db")
    second = answer("migrate", "--url", "sqlite:///new.db")

    assert first == second
    assert (first["engine"], first["store"]) == ("sqlite", "sqlite:///new.db")
    assert (folder / "new.db").exists()


def test_a_pending_job_says_how_many_go_before_it(store: Store) -> None:
    put(store)
    second = put(store)

    assert answer("jobs", "show", second)["position"] == {"ahead": 1, "is_exact": True}


def test_what_became_of_jobs_lately_is_shown(store: Store) -> None:
    now = SystemClock().now_ms()
    lengths = histogram_of([4_000] * 30)
    tasks = {"t": TaskStats({"completed": 30, "failed": 10, "dead": 1}, {"Boom": 10}, lengths, lengths)}
    start = start_of(now, TEN_SECONDS) - TEN_SECONDS
    store.record_metrics(
        [MetricRow(resolution_ms=TEN_SECONDS, starts_at=start, queue=MAIL, worker="w", tasks=tasks)]
    )
    steps.put_many(store, 1, queue=MAIL)
    steps.put_many(store, 1)

    mail = next(one for one in answer("stats", "--window", "300")["metrics"] if one["queue"] == "mail")
    page = call("stats", "--window", "300").stdout

    assert (mail["completed"], mail["throughput_per_second"], mail["error_rate"]) == (30, 0.1, 0.25)
    assert "In the last 5m" in page
    [line] = [line for line in page.splitlines() if line.startswith("mail") and "ms" in line]
    assert line.split()[:5] == ["mail", "0.1", "30", "10", "1"]


def test_long_waits_are_shown_without_powers_of_ten(store: Store) -> None:
    start = start_of(SystemClock().now_ms(), TEN_SECONDS) - TEN_SECONDS
    task_stats = TaskStats({"completed": 1}, {}, histogram_of([2_000_000]), histogram_of([4_000]))
    store.record_metrics(
        [
            MetricRow(
                resolution_ms=TEN_SECONDS, starts_at=start, queue=MAIL, worker="w", tasks={"t": task_stats}
            )
        ]
    )
    steps.put_many(store, 1, queue=MAIL)

    page = call("stats", "--window", "300").stdout

    [line] = [line for line in page.splitlines() if line.startswith("mail") and "ms" in line]
    assert re.search(r" [12],\d\d\d ms ", line)
    assert "e+" not in line


def test_a_look_is_repeated_until_a_user_stops_it(store: Store) -> None:
    steps.put_many(store, 1)
    command = [
        sys.executable,
        "-m",
        "forebay",
        "stats",
        "--url",
        "sqlite:///jobs.db",
        "--watch",
        "--every",
        "0.1",
    ]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert watching.stdout is not None

    looks = 0
    while looks < 3:
        line = watching.stdout.readline()
        assert line, "it has ended by itself"
        looks += "1 live, 1 in all" in line
    watching.send_signal(signal.SIGINT)

    watching.communicate(timeout=DEADLINE)
    assert watching.returncode == 0
