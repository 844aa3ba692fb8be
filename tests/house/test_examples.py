"""Every example runs as a newcomer would run it."""

from __future__ import annotations

import os
import re
import shutil
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
def started(
    example: str, *args: str, folder: Path, source: Path | None = None
) -> Iterator[subprocess.Popen[str]]:
    """The example in a folder of its own, with the package of `source` if named. What it leaves running is
    ended with it."""
    command = [sys.executable, str(EXAMPLES / example / "main.py"), *args]
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(source)} if source else None,
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


def package(folder: Path, *, has_page: bool) -> Path:
    """A copy of the package, with a page that stands for the built one or without any; its folder."""
    shutil.copytree(
        EXAMPLES.parent / "src" / "forebay",
        folder / "src" / "forebay",
        ignore=shutil.ignore_patterns("static"),  # with what is compiled: each program would compile it again
    )
    if has_page:
        page = folder / "src" / "forebay" / "dashboard" / "static" / "index.html"
        page.parent.mkdir()
        page.write_text("<!doctype html>")
    return folder / "src"


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


EVENT = r"  (enqueued|completed|failed|dead) +([a-z_]+) +([0-9A-Z]{9})(  .+)?"


def test_the_sample_works_and_stops_by_itself(tmp_path: Path) -> None:
    source = package(tmp_path, has_page=True)
    with started("sample", "--seconds", "2", "--port", "0", folder=tmp_path, source=source) as program:
        output, _ = program.communicate(timeout=DEADLINE_SECONDS)
        left_nothing = is_alone(program)

    lines = output.splitlines()
    assert program.returncode == 0, output
    assert lines[1].startswith("the dashboard is at http://127.0.0.1:")  # the last line before events
    events = [match for line in lines if (match := re.fullmatch(EVENT, line))]
    assert {"enqueued", "completed"} <= {match[1] for match in events}
    assert len(events) == len([line for line in lines if line.startswith("  ")])
    assert left_nothing
    assert lines[-1].startswith("stopped; ")


def test_the_sample_names_each_job_by_an_id_of_its_own(tmp_path: Path) -> None:
    source = package(tmp_path, has_page=True)
    with started("sample", "--seconds", "4", "--port", "0", folder=tmp_path, source=source) as program:
        output, _ = program.communicate(timeout=DEADLINE_SECONDS)

    enqueued = [match[3] for match in re.finditer(EVENT, output) if match[1] == "enqueued"]
    completed = [match[3] for match in re.finditer(EVENT, output) if match[1] == "completed"]
    assert len(enqueued) == len({*enqueued}) > 2
    assert len(completed) == len({*completed}) > 2


def test_the_sample_repeats_the_address_of_the_dashboard_before_it_scrolls_away(tmp_path: Path) -> None:
    source = package(tmp_path, has_page=True)
    between = 0
    with started("sample", "--port", "0", folder=tmp_path, source=source) as program:
        assert program.stdout
        greeting = [program.stdout.readline(), program.stdout.readline()][1]
        for line in program.stdout:
            if line == greeting:
                break
            between += 1
        program.send_signal(signal.SIGINT)
        output, _ = program.communicate(timeout=DEADLINE_SECONDS)

    assert program.returncode == 0, output
    assert between == 20


def test_the_sample_without_the_page_says_how_to_get_it_and_works(tmp_path: Path) -> None:
    source = package(tmp_path, has_page=False)
    with started("sample", "--seconds", "2", "--port", "0", folder=tmp_path, source=source) as program:
        output, _ = program.communicate(timeout=DEADLINE_SECONDS)

    assert program.returncode == 0, output
    assert "there is no dashboard. The dashboard was not built" in output
    assert "`make dashboard` builds it" in output
    assert "completed" in {match[1] for match in re.finditer(EVENT, output)}
    assert "Traceback" not in output


def test_the_sample_stops_in_order_at_ctrl_c(tmp_path: Path) -> None:
    with started("sample", "--port", "0", folder=tmp_path) as program:
        assert program.stdout
        before = [program.stdout.readline() for _ in range(3)]  # it has begun to enqueue
        program.send_signal(signal.SIGINT)
        output, _ = program.communicate(timeout=120)

    assert program.returncode == 0, output
    assert "dashboard" in before[1]
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
