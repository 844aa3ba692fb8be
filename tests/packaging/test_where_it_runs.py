"""Producers and workers inside a program need nothing of the system that Windows does not have.

There is no Windows here: what it lacks is taken from Python before the program begins. That shows that
nothing of it is used, and not that all else is as it is there.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from forebay.cli.top import command
from tests.cli.command_runner import DEADLINE, environment
from tests.urls import SHARED, url_of

WITHOUT = """
import os, select, signal, socket, sys

# click knows by the name of the system that it may use termios and tty, and that name cannot be changed.
for name in ("fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog"):
    sys.modules[name] = None


def socketpair(*_):
    with socket.create_server(("127.0.0.1", 0)) as server:
        return socket.create_connection(server.getsockname()), server.accept()[0]


socket.socketpair = socketpair
for module, names in {
    os: ["fork", "forkpty", "getpgid", "getuid", "killpg", "register_at_fork", "setsid", "uname",
         "waitid", "O_CLOEXEC", "O_DIRECTORY", "O_NONBLOCK"],
    select: ["poll", "epoll"],
    signal: ["SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGTSTP", "SIGURG", "SIGUSR1", "SIGUSR2",
             "pthread_kill"],
    socket: ["AF_UNIX", "MSG_DONTWAIT"],
}.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
"""
PROGRAM = """
import asyncio
from forebay import Forebay

app = Forebay("sqlite:///jobs.db")

@app.task(retries=0)
def double(number: int) -> int:
    return 2 * number

@app.task(retries=0)
async def triple(number: int) -> int:
    await asyncio.sleep(0)
    return 3 * number

if __name__ == "__main__":
    job = double.enqueue(21)
    with app.run_worker():
        print(job.result(timeout=100), triple.enqueue(14).result(timeout=100))
"""
PRODUCER = """
import sys
from forebay import Forebay

with Forebay(sys.argv[1]) as app:
    print(app.enqueue("t", [1]).refresh().state)
"""

COMMANDS = """
import runpy
runpy.run_module("forebay", run_name="__main__")
"""


def run(folder: Path, program: str, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(WITHOUT + program)
    return subprocess.run(
        [sys.executable, "program.py", *words],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def test_a_worker_inside_a_program_runs_blocking_tasks_and_coroutines(tmp_path: Path) -> None:
    done = run(tmp_path, PROGRAM)

    assert (done.stdout, done.stderr) == ("42 42\n", "")


@pytest.mark.parametrize("engine", SHARED)
def test_a_producer_enqueues_on_every_engine(engine: str, tmp_path: Path) -> None:
    done = run(tmp_path, PRODUCER, url_of(engine, tmp_path))

    assert (done.stdout, done.stderr) == ("pending\n", "")


def test_commands_read_and_update(tmp_path: Path) -> None:
    for words in (
        ["enqueue", "t", "--id", "one"],
        ["stats"],
        ["jobs", "show", "one"],
        ["queues", "pause", "default"],
    ):
        done = run(tmp_path, COMMANDS, *words, "--url", "sqlite:///jobs.db")
        assert (done.returncode, done.stderr) == (0, ""), (words, done.stdout)


@pytest.mark.parametrize(
    "words", [["worker", "program:app"], ["dev", "program:app"], ["server"], ["scheduler"]]
)
def test_commands_that_need_more_say_where_they_run(tmp_path: Path, words: list[str]) -> None:
    done = run(tmp_path, COMMANDS, *words)

    assert done.returncode == 2, done.stderr
    assert f"`forebay {words[0]}` does not run on Windows: run it in a container" in done.stderr
    assert "pip install" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_view_with_key_commands_is_printed_once_where_no_keys_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    messages: list[str] = []
    monkeypatch.setattr("forebay.cli.top.command.find_spec", lambda name: None)
    monkeypatch.setattr("forebay.cli.top.command.sys.stdin", Terminal())
    monkeypatch.setattr("forebay.cli.top.command.sys.stdout", Terminal())
    monkeypatch.setattr("forebay.cli.top.command.click.echo", lambda words, err: messages.append(words))

    assert not command._is_live()
    assert messages == ["Printed once because keys are read only on Linux and macOS"]


class Terminal:
    def isatty(self) -> bool:
        return True


def test_what_is_taken_away_is_what_would_be_missed(tmp_path: Path) -> None:
    done = run(tmp_path, "import resource")

    assert "import of resource halted" in done.stderr
