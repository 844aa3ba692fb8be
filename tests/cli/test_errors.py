"""Ends that no user wants: words that do not fit, Ctrl-C, an app that cannot be imported."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from forebay.stores.contract.store import Store
from tests.cli.command_runner import DEADLINE, TASKS, call, environment, program, refusal

# The shell that runs the tests may have made its programs deaf to Ctrl-C.
HEARING = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from forebay.cli.main import main; main(prog_name='forebay')"
)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("jbos",), "No such command 'jbos'."),
        (("--nope", "stats"), "No such option"),
        (("jobs", "lsit"), "No such command 'lsit'."),
        (("jobs", "--nope"), "No such option"),
        (("jobs", "list", "--nope"), "No such option"),
        (("jobs", "list", "--limit", "many"), "'many' is not a valid integer"),
    ],
)
def test_every_usage_error_is_an_object_for_programs(words: tuple[str, ...], complaint: str) -> None:
    error = refusal(*words)

    assert (error["kind"], error["status"]) == ("UsageError", 2)
    assert complaint in error["message"]


@pytest.mark.parametrize(
    ("words", "step"),
    [
        (("stats", "--url", "postgresql://127.0.0.1:1/jobs"), "Check that it runs, its host and port"),
        (("stats", "--url", "redis://127.0.0.1:1/0"), "Check that it runs, its host and port"),
        (("stats", "--url", "http://127.0.0.1:1"), "Check that it runs, its host and port"),
        (
            ("stats", "--app", "lacking:app"),
            f"Install nowhere_at_all, or use the Python that has it; this one is {sys.executable}.",
        ),
        (("keys", "create", "x"), "as in --allow produce:mail"),
        (("worker",), "Name it as package.module:app"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_people_are_told_the_next_step(words: tuple[str, ...], step: str, folder: Path) -> None:
    (folder / "lacking.py").write_text("import nowhere_at_all\n")

    result = call(*words)

    assert result.exit_code in (2, 3)
    assert step in result.stderr


def test_programs_are_told_the_error_alone(folder: Path) -> None:
    message = refusal("stats", "--url", "redis://127.0.0.1:1/0")["message"]

    assert "cannot be reached" in message
    assert "Does it run" not in message


def test_a_word_behind_the_options_is_no_option(store: Store) -> None:
    result = call("jobs", "show", "--", "--json")

    assert result.exit_code == 4
    assert result.stderr == "Error: there is no job --json; it may have been pruned\n"


def interrupted(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command that has come as far as importing its app when Ctrl-C comes."""
    (folder / "tasks.py").write_text(TASKS + "open('imported', 'w').close()\n")
    program(folder, "migrate")
    job = json.loads(program(folder, "enqueue", "tasks.greet", "Ada", "--json").stdout)["id"]
    (folder / "imported").unlink()
    with subprocess.Popen(
        [sys.executable, "-c", HEARING, "jobs", "wait", job, *words],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        until = time.monotonic() + DEADLINE
        while not (folder / "imported").exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def test_ctrl_c_has_the_status_that_shells_know(app_folder: Path) -> None:
    ended = interrupted(app_folder)

    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "Error: interrupted\n")


def test_ctrl_c_is_an_object_for_programs(app_folder: Path) -> None:
    ended = interrupted(app_folder, "--json")

    assert (ended.returncode, ended.stdout) == (130, "")
    assert json.loads(ended.stderr)["error"] == {
        "kind": "CommandInterrupted",
        "message": "interrupted",
        "status": 130,
    }


@pytest.mark.parametrize("code", ["0", "'not here'", ""])
def test_an_app_that_ends_the_program_is_broken(code: str, folder: Path) -> None:
    (folder / "leaving.py").write_text(f"raise SystemExit({code})\n")

    result = program(folder, "stats", "--app", "leaving:app")

    assert result.returncode == 2
    assert "Error: leaving could not be imported: it ends the program, by SystemExit" in result.stderr
    assert 'leaving.py", line 1' in result.stderr
