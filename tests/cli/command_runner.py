"""Calling commands: inside this process for the many cases, as real programs for the main paths."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any, Final

import click
from click.testing import CliRunner, Result

from forebay.cli.main import main
from forebay.domain.job import JobId
from forebay.domain.job_states import JobState
from forebay.payload.codec import encode_call
from forebay.stores.contract.store import Store
from tests.stores.contract import steps

# Generous: a program that does nothing takes seconds to start on a machine with enough other work.
DEADLINE: Final = 120

TASKS: Final = """
from forebay import Forebay

app = Forebay("sqlite:///jobs.db")


@app.task(queue="mail", retries=0)
def greet(name: str, *, times: int = 1) -> str:
    return " ".join([f"Hello {name}!"] * times)


@app.task(retries=0)
def fail(why: str) -> None:
    raise ValueError(why)
"""


# Up to click 8.1 a runner puts both outputs into one unless it is told not to; later ones never do.
_APART: Final[dict[str, Any]] = (
    {"mix_stderr": False} if "mix_stderr" in signature(CliRunner).parameters else {}
)


class _Both(Result):
    """A result of click 8.1 whose `output` has both, as that of later ones."""

    @property
    def output(self) -> str:
        return f"{self.stdout}{self.stderr}"


def call(*words: str) -> Result:
    """Run a command in this process."""
    result = CliRunner(**_APART).invoke(main, list(words))
    if _APART:
        result.__class__ = _Both
    return result


def answer(*words: str) -> Any:
    """The JSON that a command answers with; it must succeed."""
    result = call(*words, "--json")
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return json.loads(result.stdout)


def refusal(*words: str) -> dict[str, Any]:
    """The JSON error of a command that must fail; nothing else is printed."""
    result = call(*words, "--json")
    assert result.exit_code != 0, result.output
    assert result.stdout == ""
    error: dict[str, Any] = json.loads(result.stderr)["error"]
    assert error["status"] == result.exit_code
    return error


def environment(**changes: str) -> dict[str, str]:
    """The environment of this process without settings of ours, with some variables replaced."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    return {**plain, **changes}


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "forebay", *words]


def program(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a program of its own, without a terminal."""
    return subprocess.run(
        command(*words),
        cwd=folder,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def program_answer(folder: Path, *words: str) -> Any:
    """The JSON that a real program answers with; it must succeed."""
    result = program(folder, *words, "--json")
    assert (result.returncode, result.stderr) == (0, ""), result.stdout
    return json.loads(result.stdout)


@contextmanager
def working(folder: Path, *words: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A worker while the block lasts; it must stop in order."""
    with (folder / "worker.log").open("w") as log:
        process = subprocess.Popen(
            command("worker", *words), cwd=folder, env=environment(**variables), stderr=log, text=True
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            status = process.wait(DEADLINE)
    assert status == 0, (folder / "worker.log").read_text()


def put(store: Store, *args: Any, task: str = "t", **changes: Any) -> JobId:
    """Insert a job with these arguments."""
    return steps.put(store, task=task, payload=encode_call(args, {}), **changes)


def make(store: Store, state: JobState, *args: Any, **changes: Any) -> JobId:
    """A job in the wanted state."""
    return steps.make(store, state, **{"payload": encode_call(args, {}), **changes})


def ids(listed: Sequence[dict[str, Any]]) -> list[str]:
    return [job["id"] for job in listed]


def commands(group: click.Group, path: str = "") -> dict[str, click.Command]:
    """Every command that does something, by its full name."""
    ctx = click.Context(group)
    found: dict[str, click.Command] = {}
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        if isinstance(command, click.Group):
            found |= commands(command, f"{path}{name} ")
        if not isinstance(command, click.Group) or command.invoke_without_command:
            found[path + name] = command
    return found
