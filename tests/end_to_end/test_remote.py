"""Workers and programs over the service, as processes of their own; servers that are killed under them."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pytest

from forebay import Forebay
from forebay.domain.queue_counts import Counts
from forebay.stores.factory import open_engine
from tests.cli.command_runner import DEADLINE, command, environment, program
from tests.docs.pages import whole
from tests.urls import url_of
from tests.worker.support import eventually

PAGE: Final = "guide/remote.md"
JOBS: Final = 120

MODULE: Final = """
from __future__ import annotations

import os
from pathlib import Path

from forebay import Forebay

folder = Path(__file__).parent
app = Forebay((folder / "url").read_text())


@app.task(name="note", queue="notes")
def note(number: int) -> int:
    with (folder / "ran.txt").open("a") as file:
        file.write(f"{number}\\n")
    return number
"""


@contextmanager
def server(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server process and its address."""
    with (folder / "server.log").open("a") as log:
        process = subprocess.Popen(
            command("server", "--port", "0", *words),
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().split()[-1]
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE)


@contextmanager
def worker(folder: Path, app: str, *words: str, **variables: str) -> Iterator[None]:
    """A worker process; it must end in order."""
    with (folder / "worker.log").open("a") as log:
        process = subprocess.Popen(
            command("worker", app, *words),
            cwd=folder,
            env=environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield
        process.send_signal(signal.SIGTERM)
        status = process.wait(DEADLINE)
    finally:
        process.kill()
        process.wait(DEADLINE)
    assert status == 0, (folder / "worker.log").read_text()


def made_key(output: str) -> str:
    """The token in what `keys create` prints."""
    return next(word for word in output.split() if word.startswith("fbk_"))


@pytest.mark.parametrize("options", [(), ("--processes", "2")], ids=["alone", "supervised"])
def test_the_programs_of_the_page_work_over_the_service(tmp_path: Path, options: tuple[str, ...]) -> None:
    create, shop, crew, serve = [shlex.split(line)[2:] for line in whole(PAGE, "console").splitlines()]
    assert program(tmp_path, *create).returncode == 0
    shop_key, crew_key = (made_key(program(tmp_path, *words).stdout) for words in (shop, crew))
    with server(tmp_path, *serve[1:]) as (_, address):
        source = whole(PAGE, "python")
        there = "https://jobs-1.example.com,jobs-2.example.com"
        assert there in source
        (tmp_path / "mail.py").write_text(source.replace(there, address))
        with worker(tmp_path, "mail:app", *options, FOREBAY_API_KEY=crew_key):
            done = subprocess.run(
                [sys.executable, "mail.py"],
                cwd=tmp_path,
                env=environment(FOREBAY_API_KEY=shop_key),
                capture_output=True,
                text=True,
                timeout=DEADLINE,
                check=False,
            )

    assert (done.returncode, done.stdout) == (0, "sent to ada@example.com\n"), done.stderr
    output = (tmp_path / "worker.log").read_text() + (tmp_path / "server.log").read_text()
    assert not [key for key in (shop_key, crew_key) if key.partition(".")[2] in output]


@pytest.mark.shows("R-EDGE-74", "R-SDK-02")
def test_two_servers_on_one_store_survive_that_one_is_killed(tmp_path: Path) -> None:
    url = url_of("postgresql", tmp_path)
    with closing(open_engine(url).store()) as store:
        store.save_queue("notes")  # type: ignore[arg-type]  # a plain text names it
    with server(tmp_path, "--url", url) as (first, one), server(tmp_path, "--url", url) as (_, two):
        servers = f"{one},{two.removeprefix('http://')}"
        (tmp_path / "url").write_text(servers)
        (tmp_path / "jobs.py").write_text(MODULE)
        with worker(tmp_path, "jobs:app"), Forebay(servers) as app:
            accepted = []
            for number in range(JOBS):
                if number == JOBS // 2:
                    # Both programs talk to this one, and jobs are on their way.
                    eventually((tmp_path / "ran.txt").exists, DEADLINE)
                    os.kill(first.pid, signal.SIGKILL)
                accepted.append(app.enqueue("note", [number], queue="notes"))
            results = [handle.result(timeout=DEADLINE) for handle in accepted]

    with closing(open_engine(url).reader()) as reader:
        counts = reader.counts(["notes"])["notes"]  # type: ignore[list-item,index]  # as above
        assert reader.health().problems == ()
    ran = {int(line) for line in (tmp_path / "ran.txt").read_text().splitlines()}
    assert results == list(range(JOBS))
    assert all(handle.is_new for handle in accepted)
    assert (counts, ran) == (Counts(completed=JOBS), set(range(JOBS)))
