"""Which queue comes first, and a worker that is stopped, killed or paused: CP2.1, CP2.3, CP2.4 and CP2.7."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from forebay.domain.job_states import JobState
from forebay.domain.worker import HeartbeatStatus, WorkerInfo
from tests.end_to_end.crews import DEADLINE, Crew, a_crew
from tests.worker.support import eventually


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
def crew(tmp_path: Path, url: str) -> Iterator[Crew]:
    with a_crew(tmp_path, url) as crew:
        yield crew


def forebay(crew: Crew, *words: str) -> Any:
    """What a command answers, run as a program of its own."""
    command = [sys.executable, "-m", "forebay", *words, "--url", (crew.folder / "url").read_text(), "--json"]
    result = subprocess.run(
        command, cwd=crew.folder, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def only(crew: Crew) -> WorkerInfo:
    [worker] = crew.workers()
    return worker


def heartbeat_status(crew: Crew) -> HeartbeatStatus:
    return only(crew).heartbeat_status(crew.app.client.read(lambda reader: reader.now()))


@pytest.mark.shows("R-TEST-10")
def test_cp2_1_jobs_of_the_heavier_queue_are_processed_first_and_all_of_them_in_time(crew: Crew) -> None:
    jobs = [crew.enqueue("note", number, queue="low") for number in range(100, 150)]
    jobs += [crew.enqueue("note", number, queue="high") for number in range(50)]

    crew.worker("--queues", "low:1,high:3", "--threads", "1")
    for job in jobs:
        crew.final(job)

    order = [line.number for line in crew.began()]
    places = {number: place for place, number in enumerate(order)}
    assert order[0] == 0
    assert mean(places[number] for number in range(50)) < mean(places[number] for number in range(100, 150))
    assert len(order) == 100


@pytest.mark.shows("R-TEST-10")
def test_cp2_1_a_strict_worker_takes_the_lower_queue_only_when_the_higher_is_empty(crew: Crew) -> None:
    jobs = [crew.enqueue("note", number, queue="low") for number in range(100, 150)]
    jobs += [crew.enqueue("note", number, queue="high") for number in range(50)]

    crew.worker("--queues", "high,low", "--strict", "--threads", "1")
    for job in jobs:
        crew.final(job)

    assert [line.number for line in crew.began()] == [*range(50), *range(100, 150)]


@pytest.mark.shows("R-TEST-12")
def test_cp2_3_after_sigterm_the_current_job_finishes_and_the_others_stay_queued(crew: Crew) -> None:
    worker = crew.worker("--threads", "1")
    jobs = [crew.enqueue("hold", number) for number in range(4)]
    crew.has_begun(0)

    worker.send_signal(signal.SIGTERM)
    eventually(lambda: only(crew).state == "stopping", DEADLINE)
    crew.touch("go on")

    assert worker.ends() == 0
    assert [job.refresh().state for job in jobs] == [JobState.COMPLETED] + [JobState.PENDING] * 3
    assert [line.number for line in crew.began()] == [0]
    assert crew.workers() == []


@pytest.mark.shows("R-TEST-13", "R-WORK-39", "R-TEST-69")
def test_cp2_4_the_heartbeat_of_a_killed_worker_expires_and_that_is_seen(crew: Crew) -> None:
    worker = crew.worker("--heartbeat", "5")
    assert heartbeat_status(crew) is HeartbeatStatus.ALIVE

    worker.send_signal(signal.SIGKILL)
    worker.ends()
    eventually(lambda: heartbeat_status(crew) is not HeartbeatStatus.ALIVE, DEADLINE)
    [listed] = forebay(crew, "workers")["workers"]
    eventually(lambda: heartbeat_status(crew) is HeartbeatStatus.DEAD, DEADLINE)
    found = forebay(crew, "doctor", "--quick")["findings"]

    assert listed["heartbeat_status"] in ("stale", "dead")  # programs take their time to start
    assert any("has sent no heartbeat for" in one["message"] for one in found)


@pytest.mark.shows("R-TEST-16", "R-EDGE-83", "R-WORK-42", "R-WORK-44")
def test_cp2_7_a_paused_worker_processes_nothing_and_resumes_fully(crew: Crew) -> None:
    crew.worker("--heartbeat", "5", "--threads", "1")
    running = crew.enqueue("hold", 0)
    crew.has_begun(0)

    [reply] = forebay(crew, "workers", "pause", "--all")["answers"]
    jobs = [crew.enqueue("note", number) for number in range(1, 6)]
    crew.touch("go on")
    crew.final(running)
    eventually(lambda: only(crew).state == "paused", DEADLINE)
    heartbeat_at = only(crew).heartbeat_at
    eventually(lambda: only(crew).heartbeat_at > heartbeat_at, DEADLINE)  # it lives, and has had many turns

    assert reply["answer"] == "paused all queues; 1 running job goes on"
    assert [line.number for line in crew.began()] == [0]
    assert {job.refresh().state for job in jobs} == {JobState.PENDING}

    forebay(crew, "workers", "resume", only(crew).id[:12])
    for job in jobs:
        crew.final(job)
    assert [line.number for line in crew.ended()] == [0, 1, 2, 3, 4, 5]


@pytest.mark.shows("R-WORK-44")
def test_worker_processes_under_a_supervisor_hear_commands_too(crew: Crew) -> None:
    program = crew.worker(processes=2)
    eventually(lambda: len(crew.workers()) == 2, DEADLINE)

    paused = forebay(crew, "workers", "pause", "--all")["answers"]
    eventually(lambda: {one.state for one in crew.workers()} == {"paused"}, DEADLINE)
    job = crew.enqueue("note", 1)
    stacks = forebay(crew, "workers", "stacks", "--all")["answers"]
    forebay(crew, "workers", "resume", "--all")
    crew.final(job)
    forebay(crew, "workers", "stop", "--all", "--yes")

    assert program.ends() == 0
    assert [one["answer"] for one in paused] == ["paused all queues; 0 running jobs go on"] * 2
    assert all("forebay-coordinator" in one["answer"] for one in stacks)
    crew.all_have_ended()


@pytest.mark.shows("R-NFR-04")
def test_an_idle_worker_process_needs_less_than_50_mb(crew: Crew) -> None:
    crew.worker()
    eventually(lambda: only(crew).state == "idle", DEADLINE)

    assert 0 < (only(crew).memory or 0) < 50_000_000
