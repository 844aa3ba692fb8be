"""Every example runs as a newcomer would run it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

EXAMPLES = Path("examples").resolve()
DEADLINE_SECONDS = 120


@contextmanager
def started(example: str, *args: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """The example in a folder of its own. What it leaves running is ended with it."""
    command = [sys.executable, str(EXAMPLES / example / "main.py"), *args]
    with subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as program:
        try:
            yield program
        finally:
            with suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)


def is_alone(program: subprocess.Popen[str]) -> bool:
    """Whether an ended program has left no process behind."""
    try:
        os.killpg(program.pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.shows("R-SDK-16")
def test_every_example_has_a_test() -> None:
    assert {path.parent.name for path in EXAMPLES.glob("*/main.py")} == {
        "cron",
        "hello",
        "sample",
        "tour",
    }


@pytest.mark.shows("R-SDK-13")
def test_the_store_by_itself(tmp_path: Path) -> None:
    with started("hello", folder=tmp_path) as program:
        output, _ = program.communicate(timeout=DEADLINE_SECONDS)

    assert program.returncode == 0, output
    assert "the store is in order: yes" in output


def test_two_workers_fire_each_run_of_a_schedule_once(tmp_path: Path) -> None:
    with started("cron", "--seconds", "4", folder=tmp_path) as program:
        output, _ = program.communicate(timeout=DEADLINE_SECONDS)

    assert program.returncode == 0, output
    assert "tick   for " in output
    assert "tock   for " in output
    assert [line.rpartition(", ")[2] for line in output.splitlines()[-2:]] == ["0 of them twice"] * 2


def test_the_sample_works_and_stops_by_itself(tmp_path: Path) -> None:
    with started("sample", "--seconds", "2", "--port", "0", folder=tmp_path) as program:
        output, _ = program.communicate(timeout=DEADLINE_SECONDS)
        left_nothing = is_alone(program)

    assert program.returncode == 0, output
    assert "the dashboard is http://127.0.0.1:" in output
    assert "  ran  " in output
    assert left_nothing
    assert output.splitlines()[-1].startswith("stopped; ")


def test_the_sample_stops_in_order_at_ctrl_c(tmp_path: Path) -> None:
    with started("sample", "--port", "0", folder=tmp_path) as program:
        assert program.stdout
        before = [program.stdout.readline() for _ in range(3)]  # it has begun to enqueue
        program.send_signal(signal.SIGINT)
        output, _ = program.communicate(timeout=120)

    assert program.returncode == 0, output
    assert "the dashboard is" in before[1]
    assert "Traceback" not in output
    assert output.splitlines()[-1].startswith("stopped; ")


def test_the_tour_ends_with_its_proof(tmp_path: Path) -> None:
    with started("tour", "--jobs", "400", folder=tmp_path) as program:
        output, _ = program.communicate(timeout=DEADLINE_SECONDS)

    assert program.returncode == 0, output
    assert "gets SIGKILL while it runs" in output
    assert "Every accepted job has exactly one finisher." in output


def test_a_tour_that_is_broken_off_ends_its_workers(tmp_path: Path) -> None:
    with started("tour", folder=tmp_path) as program:
        assert program.stdout
        before = [program.stdout.readline(), program.stdout.readline()]  # its workers begin
        program.terminate()
        output, _ = program.communicate(timeout=DEADLINE_SECONDS)
        left_nothing = is_alone(program)

    assert program.returncode == 1, output
    assert "two workers begin" in before[1]
    assert left_nothing
