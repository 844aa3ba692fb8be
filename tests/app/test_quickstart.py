"""The first pages do what they say when they are pasted into an empty folder."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from forebay.app.consumer import Consumer
from forebay.app.job_options import CallOptions
from tests.docs.pages import blocks, run, run_page, text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with nothing but the quickstart's program."""
    [program] = blocks("quickstart.md", "python")
    (tmp_path / "jobs.py").write_text(program)
    return tmp_path


@contextmanager
def worker(folder: Path) -> Iterator[None]:
    """The command of the page that starts a worker, until it is interrupted."""
    process = subprocess.Popen([sys.executable, "-m", "forebay", "worker", "jobs:app"], cwd=folder)
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(120) == 0


def test_the_first_program_prints_what_the_page_promises(folder: Path) -> None:
    [promised] = blocks("quickstart.md", "")

    answer = run(folder, "jobs.py")

    assert (answer.stdout, answer.stderr) == (promised, "")


@pytest.mark.shows("R-SDK-16")
def test_the_example_of_the_readme_prints_what_it_promises(tmp_path: Path) -> None:
    [promised] = blocks("../README.md", "")

    answer = run_page(tmp_path, "../README.md")

    assert (answer.stdout, answer.stderr) == (promised, "")


def test_the_commands_that_look_around_work(folder: Path) -> None:
    [commands] = blocks("quickstart.md", "console")
    assert run(folder, "jobs.py").returncode == 0

    for line in commands.splitlines():
        answer = run(folder, "-m", *shlex.split(line.removeprefix("$ ")))
        assert (answer.returncode, answer.stderr) == (0, ""), line
        assert "default" in answer.stdout or "jobs.greet" in answer.stdout


def test_a_worker_process_runs_what_another_program_enqueues(folder: Path) -> None:
    page = text("quickstart.md")
    [command] = re.findall(r"""^    python -c "(.+)"$""", page, flags=re.MULTILINE)

    with worker(folder):
        answer = run(folder, "-c", command.replace("timeout=10", "timeout=100"))

    assert "python -m forebay worker jobs:app" in page
    assert (answer.stdout, answer.stderr) == ("Hello Grace!\n", "")


def test_a_worker_process_runs_what_the_program_itself_enqueues(folder: Path) -> None:
    program = (folder / "jobs.py").read_text()
    alone = re.sub(r"    with app\.run_worker\(.*\n        (.*)\n        (.*)", r"    \1\n    \2", program)
    (folder / "jobs.py").write_text(alone.replace("timeout=10", "timeout=100"))

    with worker(folder):
        answer = run(folder, "jobs.py")

    assert "run_worker" not in alone
    assert (answer.stdout, answer.stderr) == ("Hello Ada! Hello Ada!\n", "")


def test_the_examples_of_the_page_about_enqueueing_are_a_program_that_runs(tmp_path: Path) -> None:
    answer = run_page(tmp_path, "guide/enqueue.md")

    assert (answer.stdout, answer.stderr) == ("logo\njob id logo is taken\n", "")


def test_the_examples_of_the_page_about_consumers_are_a_program_that_runs(tmp_path: Path) -> None:
    answer = run_page(tmp_path, "guide/consumer.md")

    assert (answer.stdout, answer.stderr) == ("resize 0.png\nresize 1.png\nresize 2.png\n", "")


def test_the_page_about_consumers_names_all_that_a_consumer_can_do() -> None:
    page = text("guide/consumer.md")
    names = [name for name in vars(Consumer) if not name.startswith("_") and name != "after_fork"]

    assert [name for name in names if name not in page] == []


def test_the_page_about_enqueueing_names_every_option() -> None:
    page = text("guide/enqueue.md")

    assert [name for name in CallOptions.__annotations__ if f"`{name}`" not in page] == []
