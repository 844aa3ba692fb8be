"""A time limit is a limit: workers whose tasks wait in C, on every engine."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forebay import Forebay, RetryPolicy
from forebay.compat.task_queue.queue import TaskQueue
from forebay.domain.job_states import JobState
from forebay.worker.stack_report import stacks
from forebay.worker.worker import Worker
from tests.worker.support import DEADLINE, eventually, no_thread_stays


@contextmanager
def hanging(app: Forebay) -> Iterator[Callable[[], object]]:
    """A task that waits in C, as for a socket without a time limit; all that do so go on when this is called,
    and at the end."""
    read_end, write_end = os.pipe()
    ends = [write_end]

    def end() -> None:
        while ends:
            os.close(ends.pop())

    @app.task(name="hang", timeout=0.2, retries=0)
    def hang() -> str:
        os.read(read_end, 1)
        return "late"

    @app.task(name="note")
    def note(number: int) -> int:
        return number

    with no_thread_stays():
        try:
            yield end
        finally:
            end()
    os.close(read_end)


def abandoned(app: Forebay) -> list[int]:
    """What workers have said with their last heartbeats."""
    return [one.abandoned for one in app.client.read(lambda reader: reader.workers())]


@pytest.mark.shows("R-WORK-18", "R-EDGE-78", "R-WORK-19")
def test_four_hung_sockets_do_not_stop_an_embedded_worker_of_four_threads(
    app: Forebay, caplog: pytest.LogCaptureFixture
) -> None:
    with hanging(app) as end, app.run_worker(threads=4) as worker:
        jobs = [app.enqueue("hang") for _ in range(4)]
        ended = [job.wait(timeout=DEADLINE) for job in jobs]
        assert {(one.state, one.reason) for one in ended} == {
            (JobState.DEAD, "Timeout: ran longer than 0.2 s")
        }
        assert [app.enqueue("note", [n]).result(timeout=DEADLINE) for n in range(8)] == list(range(8))
        assert worker.info.abandoned == 4
        assert worker.status().is_healthy
        assert len([line for line in caplog.messages if "is abandoned" in line]) == 4
        shown = stacks(worker._slots)
        assert "4 abandoned calls still run" in shown
        assert f"was abandoned and runs hang, job {jobs[0].id}, attempt 1" in shown

        end()
        eventually(lambda: worker.info.abandoned == 0)
        app.enqueue("note", [9]).result(timeout=DEADLINE)
        assert [job.refresh().state for job in jobs] == [JobState.DEAD] * 4


def test_a_worker_says_on_the_list_how_many_threads_it_has_abandoned(app: Forebay) -> None:
    with hanging(app), app.run_worker(threads=2) as worker:
        app.enqueue("hang").wait(timeout=DEADLINE)
        worker.pause()  # so that it sends a heartbeat at once

        eventually(lambda: abandoned(app) == [1])


def test_a_worker_without_a_supervisor_is_not_healthy_above_its_bound_and_goes_on_with_what_it_has(
    app: Forebay,
) -> None:
    with hanging(app) as end, app.run_worker(threads=3, max_abandoned=1) as worker:
        for job in [app.enqueue("hang") for _ in range(2)]:
            assert job.wait(timeout=DEADLINE).state is JobState.DEAD
        eventually(lambda: not worker.status().is_healthy)
        assert worker.info.is_worn
        assert app.enqueue("note", [1]).result(timeout=DEADLINE) == 1

        end()
        eventually(lambda: worker.status().is_healthy)
        assert not worker.is_over


def test_a_worker_stops_in_order_while_abandoned_threads_still_wait(
    app: Forebay, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with hanging(app):
        with app.run_worker(threads=1):
            job = app.enqueue("hang").wait(timeout=DEADLINE)
        assert job.state is JobState.DEAD
        assert "did not stop; their leases" not in caplog.text
        assert abandoned(app) == []


@pytest.mark.shows("R-SWEEP-16")
def test_an_attempt_that_was_abandoned_is_tried_again_while_its_code_still_runs(app: Forebay) -> None:
    with hanging(app), app.run_worker(threads=2):
        job = app.enqueue("hang", retries=1, retry_policy=RetryPolicy(base_ms=10))
        ended = job.wait(timeout=DEADLINE)

        assert (ended.attempt, ended.failures) == (2, 2)


def wait_for(descriptor: int) -> None:
    os.read(descriptor, 1)


def test_the_facade_of_a_queue_in_a_file_keeps_time_limits_too(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    queue = TaskQueue(str(tmp_path / "queue.db"), num_workers=1)
    try:
        job = queue.submit(wait_for, read_end, timeout_seconds=1)
        after = queue.submit(abs, -1)

        assert queue.get_result(after, timeout=DEADLINE) == 1
        assert "ran longer than 1 s" in (queue.get_status(job).error_message or "")
    finally:
        os.close(write_end)
        queue.shutdown()


LEAVING = """
import time
from forebay import Forebay

app = Forebay("memory://")

@app.task(name="sleep", timeout=0.2, retries=0)
def sleep():
    time.sleep(3_600)

with app.run_worker(threads=1):
    print(app.enqueue("sleep").wait(timeout=120).reason, flush=True)
"""


def test_a_program_ends_while_abandoned_threads_sleep() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEAVING], capture_output=True, text=True, timeout=DEADLINE, check=False
    )

    assert (done.returncode, done.stdout) == (0, "Timeout: ran longer than 0.2 s\n"), done.stderr


def test_a_worker_is_refused_that_may_abandon_fewer_than_no_threads() -> None:
    app = Forebay("memory://")
    with pytest.raises(ValueError, match="max_abandoned"):
        Worker(app.engine, app.registry, max_abandoned=-1)
