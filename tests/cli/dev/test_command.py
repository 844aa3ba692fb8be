"""`forebay dev`: real processes in one terminal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
import pytest

from tests.cli.command_runner import DEADLINE, TASKS, command, environment, program, refusal
from tests.worker.support import eventually


class Running:
    """A `forebay dev` with all that it has said so far."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.folder = folder
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            command("dev", *words, "--port", "0"),
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.lines.append(line.rstrip("\n"))

    @property
    def output(self) -> str:
        return "\n".join(self.lines)

    def wait_for_output(self, pattern: str) -> re.Match[str]:
        def look() -> re.Match[str] | None:
            assert self.process.poll() is None or re.search(pattern, self.output), self.output
            return re.search(pattern, self.output)

        found = eventually(look)
        assert found is not None
        return found

    def ends(self) -> int:
        status = self.process.wait(DEADLINE)
        self._reader.join(DEADLINE)
        return status


@contextmanager
def developing(folder: Path, *words: str) -> Iterator[Running]:
    running = Running(folder, *words)
    try:
        yield running
    finally:
        running.process.kill()
        running.ends()
        eventually(lambda: processes_in(folder) == [])


def processes_in(folder: Path) -> list[int]:
    """All processes whose present folder is this one; zombies have none."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if os.readlink(f"/proc/{name}/cwd") == str(folder.resolve()) and int(name) != os.getpid():
                found.append(int(name))
    return found


def wait_for(folder: Path, *words: str) -> str:
    job = program(folder, "enqueue", *words, "--json").stdout
    done = program(folder, "jobs", "wait", json.loads(job)["id"], "--timeout", "100s")
    return done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_worker_service_and_dashboard_run_until_they_are_told_to_stop(app_folder: Path, number: int) -> None:
    with developing(app_folder) as running:
        page = running.wait_for_output(r"dev +\| the dashboard is at (http://\S+/dashboard/)")[1]
        health = page.replace("/dashboard/", "/health/ready")
        running.wait_for_output(r"worker \| .* runs")
        assert httpx2.get(health, timeout=DEADLINE).status_code == 200
        assert httpx2.get(page, timeout=DEADLINE).status_code in (200, 503)  # 503: the page is not built
        assert "Hello Ada!" in wait_for(app_folder, "tasks.greet", "Ada")

        running.process.send_signal(number)

        assert running.ends() == 0, running.output
        assert running.lines[-1].endswith("| all processes have stopped")
        order = [running.output.index(f"stopping the {name}") for name in ("worker", "server")]
        assert order[0] < running.output.rindex("\nworker | ") < order[1]
        assert processes_in(app_folder) == []


def test_code_that_has_changed_is_loaded_again(app_folder: Path) -> None:
    with developing(app_folder, "tasks:app") as running:
        running.wait_for_output(r"worker \| .* runs")
        running.wait_for_output("is watched")
        (app_folder / "tasks.py").write_text(f"{TASKS}\n\n@app.task\ndef new() -> int:\n    return 40 + 2\n")
        running.wait_for_output("code has changed: tasks.py")

        assert "42" in wait_for(app_folder, "tasks.new")

        running.process.send_signal(signal.SIGINT)
        assert running.ends() == 0, running.output


def test_without_reload_no_file_is_watched(app_folder: Path) -> None:
    with developing(app_folder, "--no-reload") as running:
        running.wait_for_output(r"worker \| .* runs")
        assert "is watched" not in running.output
        assert "worker process" not in running.output  # a supervisor would say so
        running.process.send_signal(signal.SIGINT)
        assert running.ends() == 0, running.output


def test_every_line_is_json_for_programs(app_folder: Path) -> None:
    (app_folder / "tasks.py").write_text(
        f"{TASKS}\n\n@app.task\ndef tell() -> None:\n    print('[1, 2]'); print('plain words')\n"
    )
    with developing(app_folder, "--json") as running:
        running.wait_for_output("Ctrl-C stops all")
        wait_for(app_folder, "tasks.tell")
        running.wait_for_output("plain words")
        running.process.send_signal(signal.SIGINT)
        assert running.ends() == 0, running.output

    lines: list[dict[str, Any]] = [json.loads(line) for line in running.lines]
    assert {line["part"] for line in lines} == {"dev", "server", "worker"}
    assert {"part": "worker", "message": "plain words"} in lines
    assert {"part": "worker", "message": "[1, 2]"} in lines
    assert any(line["part"] == "worker" and "level" in line for line in lines)


def test_a_second_signal_does_not_wait_for_jobs(app_folder: Path) -> None:
    (app_folder / "tasks.py").write_text(
        f"import time\n{TASKS}\n\n@app.task\ndef hold() -> None:\n    print('holds')\n    time.sleep(600)\n"
    )
    with developing(app_folder, "--drain-timeout", "600") as running:
        running.wait_for_output(r"worker \| .* runs")
        program(app_folder, "enqueue", "tasks.hold")
        running.wait_for_output("holds")
        running.process.send_signal(signal.SIGINT)
        running.wait_for_output("all workers stop")
        running.process.send_signal(signal.SIGINT)

        assert running.ends() == 0, running.output


@pytest.mark.parametrize("words", [[], ["--no-reload"]])
def test_a_process_that_a_task_has_left_behind_holds_nothing_up(app_folder: Path, words: list[str]) -> None:
    (app_folder / "tasks.py").write_text(
        f"import subprocess\n{TASKS}\n\n"
        "@app.task\ndef leave() -> None:\n    subprocess.Popen(['sleep', '600'])\n    print('left it')\n"
    )
    with developing(app_folder, *words) as running:
        running.wait_for_output(r"worker \| .* runs")
        program(app_folder, "enqueue", "tasks.leave")
        running.wait_for_output("left it")
        running.process.send_signal(signal.SIGINT)

        assert running.ends() == 0, running.output
        assert processes_in(app_folder) == []


def test_a_third_signal_ends_what_hears_no_other(app_folder: Path) -> None:
    (app_folder / "tasks.py").write_text(
        f"import ctypes\n{TASKS}\n\n"
        "@app.task\ndef stuck() -> None:\n    print('is stuck')\n    ctypes.PyDLL(None).sleep(600)\n"
    )
    with developing(app_folder, "--no-reload") as running:
        running.wait_for_output(r"worker \| .* runs")
        program(app_folder, "enqueue", "tasks.stuck")
        running.wait_for_output("is stuck")  # no other thread of the worker runs from here on

        def ended() -> bool:
            # Not one that arrives when all is over and the old handlers are back: it would kill.
            if {*processes_in(app_folder)} - {running.process.pid}:
                running.process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                running.process.wait(1)
            return running.process.returncode is not None

        eventually(ended)
        assert running.ends() == 0, running.output
        assert processes_in(app_folder) == []


def test_when_it_is_killed_its_parts_die_with_it(app_folder: Path) -> None:
    with developing(app_folder) as running:
        running.wait_for_output(r"worker \| .* runs")
        running.process.kill()
        running.ends()

        eventually(lambda: processes_in(app_folder) == [])


def test_a_port_that_is_taken_ends_all_and_says_so(app_folder: Path) -> None:
    with developing(app_folder) as first:
        port = first.wait_for_output(r"http://127.0.0.1:(\d+)/")[1]

        second = program(app_folder, "dev", "--port", port)

    assert second.returncode == 2
    assert "the server has ended with status 2, so all are stopped" in second.stdout
    assert "--port" in second.stdout


def test_when_the_worker_is_stopped_through_the_store_all_stop(app_folder: Path) -> None:
    with developing(app_folder, "--no-reload") as running:
        running.wait_for_output(r"worker \| .* runs")
        program(app_folder, "workers", "stop", "--all", "--yes")

        assert running.ends() == 0, running.output
        assert "the worker has ended with status 0, so all are stopped" in running.output


def test_what_cannot_begin_is_said_before_anything_starts(app_folder: Path) -> None:
    (app_folder / "inside.py").write_text('from forebay import Forebay\napp = Forebay("memory://")\n')

    assert "there is no module 'nowhere'" in refusal("dev", "nowhere:app")["message"]
    assert "lives inside one program" in refusal("dev", "inside:app")["message"]


def test_without_its_extra_the_way_out_is_named(app_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.cli.dev.command.find_spec", lambda name: None)

    message = refusal("dev", "tasks:app")["message"]

    assert "pip install 'forebay[reload]', or add --no-reload" in message


def test_the_parts_have_colours_on_a_terminal(app_folder: Path) -> None:
    import pty  # noqa: PLC0415 - here alone

    ours, theirs = pty.openpty()
    with subprocess.Popen(
        command("dev", "--port", "0"),
        cwd=app_folder,
        env=environment(TERM="xterm-256color"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        shown = bytearray()
        is_signalled = False
        with suppress(OSError):
            while part := os.read(ours, 4_096):
                shown += part
                if not is_signalled and b"\x1b[36mworker" in shown:
                    process.send_signal(signal.SIGINT)
                    is_signalled = True
        os.close(ours)
    assert process.returncode == 0
    assert b"\x1b[36mworker\x1b[0m | " in shown
