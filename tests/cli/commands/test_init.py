"""`forebay init`: what it writes works."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.cli.command_runner import (
    DEADLINE,
    answer,
    call,
    command,
    environment,
    program,
    program_answer,
    refusal,
    working,
)
from tests.cli.test_terminal import on_terminal
from tests.urls import SHARED, url_of
from tests.worker.support import eventually

SEND = ("enqueue", "tasks.send_mail", "ada@example.com", "subject=Hi")


def json_of(folder: Path, *words: str) -> dict[str, str]:
    result: dict[str, str] = program_answer(folder, *words)
    return result


@pytest.mark.parametrize("engine", SHARED)
def test_a_worker_runs_the_tasks_that_were_written(engine: str, app_folder: Path) -> None:
    url = url_of(engine, app_folder)
    json_of(app_folder, "init", "shop", "--store", url)
    shop = app_folder / "shop"

    with working(shop, FOREBAY_URL=url):
        sent = program(shop, *SEND, "--app", "tasks:app", "--json", FOREBAY_URL=url)
        job = json.loads(sent.stdout)["id"]
        done = program(shop, "jobs", "wait", job, "--timeout", "100s", FOREBAY_URL=url)

    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "sent 'Hi' to ada@example.com" in done.stdout


@pytest.mark.parametrize("place", ["worker", "web"])
def test_its_own_tests_pass(place: str, folder: Path) -> None:
    answer("init", "shop", "--run-in", place)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:schemathesis"],
        cwd=folder / "shop",
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


@pytest.mark.parametrize("place", ["worker", "web"])
def test_what_it_writes_is_as_we_would_write_it(place: str, folder: Path) -> None:
    answer("init", "shop", "--run-in", place)
    files = [str(path) for path in (folder / "shop").glob("*.py")]
    rules = ["--isolated", "--line-length", "120"]

    for words in (["format", "--check"], ["check", "--select", "E,F,B,UP,SIM"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *words, *rules, *files],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The web app that was written, as its README says; its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "web:web", "--port", str(port), "--log-level", "warning"],
        cwd=folder,
        env=environment(),
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE)


def is_up(address: str) -> bool:
    try:
        return httpx2.get(f"{address}/docs", timeout=DEADLINE).status_code == 200
    except httpx2.TransportError:
        return False


def test_a_web_app_runs_them_itself(folder: Path) -> None:
    answer("init", "shop", "--run-in", "web")

    with served(folder / "shop") as address:
        eventually(lambda: is_up(address))
        mail = {"to": "ada@example.com", "subject": "Hi"}
        job = httpx2.post(f"{address}/mails", params=mail, timeout=DEADLINE).json()["job"]
        done = program(folder / "shop", "jobs", "wait", job, "--timeout", "100s")

    assert "sent 'Hi' to ada@example.com" in done.stdout


def test_two_questions_are_asked_on_a_terminal(folder: Path) -> None:
    status, shown = on_terminal(folder, command("init", "shop"), "redis\nweb\n")

    assert status == 0
    assert shown.count("?") == 2
    assert "redis://localhost:6379/0" in (folder / "shop" / "tasks.py").read_text()
    assert (folder / "shop" / "web.py").exists()
    assert "forebay[cli,redis,reload,server]" in (folder / "shop" / "requirements.txt").read_text()
    assert "cd shop" in shown
    assert "uvicorn web:web" in shown


def test_nothing_is_asked_of_who_has_said_yes(folder: Path) -> None:
    status, shown = on_terminal(folder, command("init", "shop", "--yes"))

    assert status == 0
    assert "?" not in shown
    assert "sqlite:///jobs.db" in (folder / "shop" / "tasks.py").read_text()
    assert "forebay dev" in shown


def test_the_present_folder_needs_no_name_and_may_have_other_files(folder: Path) -> None:
    (folder / "LICENSE").write_text("")

    result = answer("init")

    assert result["next"] == [
        "pip install '/path/to/forebay[cli,reload,server]'",
        "pip install -r requirements.txt",
        "forebay dev",
        "forebay enqueue tasks.send_mail ada@example.com subject=Hi",
        "pytest",
    ]
    assert sorted(path.name for path in folder.iterdir()) == sorted(["LICENSE", *result["files"]])


def test_the_present_folder_is_called_so(folder: Path) -> None:
    assert " into this folder.\n" in call("init").stdout
    assert " into shop.\n" in call("init", "shop").stdout


def test_nothing_is_overwritten(folder: Path) -> None:
    (folder / "tasks.py").write_text("mine")
    (folder / "README.md").symlink_to("nowhere")

    error = refusal("init")

    assert error["status"] == 2
    assert error["message"].startswith("README.md, tasks.py exist in ., and nothing is overwritten")
    assert "forebay init jobs" in error["message"]
    assert (folder / "tasks.py").read_text() == "mine"
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "tasks.py"]


def test_a_password_is_written_into_no_file(folder: Path) -> None:
    shown = call(
        "init", "shop", "--store", "postgresql://me:hunter2@db.example.com/shop?password=hunter3&schema=jobs"
    ).stdout

    texts = "".join(path.read_text() for path in (folder / "shop").iterdir())
    assert "postgresql://me@db.example.com/shop" in texts
    assert "hunter2" not in texts + shown
    assert "hunter3" not in texts + shown
    assert '"postgresql://me@db.example.com/shop?schema=jobs"' in texts
    assert "export FOREBAY_URL='postgresql://me:***@db.example.com/shop?" in shown


@pytest.mark.parametrize(
    ("store", "words"),
    [
        ("mysql", "write sqlite, postgresql or redis"),
        ("memory://", "write sqlite, postgresql or redis"),
        ("sqlite://jobs.db", "write sqlite:///relative.db"),
        ("postgresql://a:b/c@d", "is not the address of a server"),
    ],
)
def test_a_store_that_cannot_be_is_refused_before_anything_is_written(
    store: str, words: str, folder: Path
) -> None:
    error = refusal("init", "--store", store)

    assert error["status"] == 2
    assert words in error["message"]
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_named(folder: Path) -> None:
    (folder / "shop").write_text("")

    assert "shop/jobs cannot be written" in refusal("init", "shop/jobs")["message"]
