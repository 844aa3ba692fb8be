"""The commands of the page about the service do what it says."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from tests.cli.command_runner import DEADLINE, command, environment, program
from tests.docs.pages import whole
from tests.service.curl import search_path

PAGE = "guide/service.md"


def test_the_commands_of_the_page_produce_and_consume_a_job(tmp_path: Path) -> None:
    create, serve = [shlex.split(line)[2:] for line in whole(PAGE, "console").splitlines()]
    assert program(tmp_path, *create).returncode == 0
    assert serve[-2:] == ["--port", "8080"]
    server = subprocess.Popen(
        command(*serve[:-1], "0"), cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        output = answers(tmp_path, server.stdout.readline().split()[-1])
    finally:
        server.terminate()
        server.communicate(timeout=DEADLINE)

    shown, heartbeat, kept, result = output
    call = (shown["task"], shown["args"], shown["kwargs"])
    assert call == ("mail.send", ["ada@example.com"], {"subject": "Hi"})
    assert (heartbeat["cancel"], kept["is_kept"], result["result"]) == (None, True, "sent")
    assert server.returncode == 0


def answers(folder: Path, address: str) -> list[Any]:
    """What the commands for the shell print, in their order."""
    done = subprocess.run(
        ["sh", "-ec", whole(PAGE, "sh")],
        cwd=folder,
        env={**os.environ, "SERVER": address, "PATH": search_path(folder)},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[Any] = msgspec.json.Decoder().decode_lines(done.stdout.replace("}{", "}\n{"))
    return found


def test_the_program_of_the_page_about_grpc_prints_what_it_promises(tmp_path: Path) -> None:
    page = "guide/grpc.md"
    create, serve = [shlex.split(line)[2:] for line in whole(page, "console").splitlines()]
    assert program(tmp_path, *create).returncode == 0
    assert serve[-3:] == ["127.0.0.1:9090", "--port", "8080"]
    server = subprocess.Popen(
        command(*serve[:-3], "127.0.0.1:0", "--port", "0"),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout is not None
        _, address = server.stdout.readline(), server.stdout.readline().split()[-1]
        done = subprocess.run(
            [sys.executable, "-c", whole(page, "python")],
            cwd=tmp_path,
            env={**environment(), "SERVER": address.removeprefix("grpc://")},
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
    finally:
        server.terminate()
        server.communicate(timeout=DEADLINE)

    assert (done.stdout, server.returncode) == (whole(page, ""), 0), done.stderr
