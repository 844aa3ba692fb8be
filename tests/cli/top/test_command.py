"""`forebay top`: once for programs, live on a terminal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest

from forebay.cli.top.view_settings import TopView
from forebay.domain.job import QueueName
from forebay.domain.job_states import JobState
from forebay.stores.contract.store import Store
from tests.cli.command_runner import DEADLINE, answer, call, command, environment, make, put
from tests.cli.commands.test_run_server import running
from tests.cli.test_terminal import WITHOUT_RICH, on_terminal
from tests.urls import SHARED, url_of
from tests.worker.support import eventually


@pytest.fixture
def busy(store: Store) -> Store:
    """Two queues, a running job and a dead one."""
    for _ in range(3):
        put(store, queue=QueueName("mail"))
    make(store, JobState.RUNNING, task="shop.pay")
    make(store, JobState.DEAD, task="shop.post")
    return store


class Terminal:
    """A live view on a terminal of its own; `shown` is all that was drawn so far."""

    def __init__(self, folder: Path, words: list[str], lines: int = 50, columns: int = 160) -> None:
        self._ours, theirs = pty.openpty()
        variables = {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": str(lines)}
        self.process = subprocess.Popen(
            words, cwd=folder, env=environment(**variables), stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        self._drawn = bytearray()
        self._reader = Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):
            while part := os.read(self._ours, 65_536):
                self._drawn += part

    @property
    def shown(self) -> str:
        return self._drawn.decode(errors="replace")

    def shows(self, text: str, since: int = 0) -> None:
        eventually(lambda: text in self.shown[since:])

    def type(self, keys: str) -> int:
        """How much was drawn before."""
        before = len(self.shown)
        os.write(self._ours, keys.encode())
        return before

    def ends(self) -> int:
        status = self.process.wait(DEADLINE)
        self._reader.join(DEADLINE)
        return status

    def close(self) -> None:
        self.process.kill()
        self.ends()
        os.close(self._ours)


@contextmanager
def live(folder: Path, *words: str, lines: int = 50, columns: int = 160) -> Iterator[Terminal]:
    terminal = Terminal(folder, command("top", "--every", "0.2", *words), lines, columns)
    try:
        yield terminal
    finally:
        terminal.close()


def test_programs_get_everything_in_one_document(busy: Store) -> None:
    result = answer("top", "--once")

    assert result["total"]["pending"] == 3
    assert [queue["name"] for queue in result["queues"]] == ["mail", "default"]
    assert [job["task"] for job in result["running"]] == ["shop.pay"]
    assert [(one["task"], one["state"]) for one in result["failures"]] == [("shop.post", "dead")]
    assert result["failures"][0]["failed_at"]
    assert result["workers"] == []
    assert "throughput" in str(result["queues"][0]["metrics"])


def test_queues_are_sorted_as_asked(busy: Store) -> None:
    by_name = answer("top", "--sort", "queue")["queues"]
    turned = answer("top", "--sort", "queue", "--reverse")["queues"]

    assert [queue["name"] for queue in by_name] == ["default", "mail"]
    assert [queue["name"] for queue in turned] == ["mail", "default"]


def test_without_a_terminal_it_is_printed_once(busy: Store) -> None:
    shown = call("top").stdout

    assert "3 pending, 1 running, 0 retrying, 1 dead" in shown
    titles = [line for line in shown.splitlines() if line in ("Workers", "Running jobs", "Newest failures")]
    assert titles == ["Workers", "Running jobs", "Newest failures"]
    assert "\x1b" not in shown


def test_an_empty_store_is_no_error(store: Store) -> None:
    assert answer("top")["queues"] == []
    assert "(none)" in call("top").stdout


@pytest.mark.parametrize("engine", SHARED)
def test_it_looks_at_every_engine(engine: str, folder: Path) -> None:
    url = url_of(engine, folder)
    answer("enqueue", "t", "--url", url)

    assert answer("top", "--url", url)["total"]["pending"] == 1


def test_it_looks_over_a_service(folder: Path, busy: Store) -> None:
    with running(folder) as address:
        result = answer("top", "--once", "--url", address)

    assert result["store"] == address
    assert [queue["name"] for queue in result["queues"]] == ["mail", "default"]
    assert [job["task"] for job in result["running"]] == ["shop.pay"]
    assert [one["task"] for one in result["failures"]] == ["shop.post"]


def test_it_lives_and_q_ends_it_with_the_terminal_as_it_was(folder: Path, busy: Store) -> None:
    with live(folder) as terminal:
        terminal.shows("3 pending, 1 running")
        put(busy, queue=QueueName("mail"))
        terminal.shows("4 pending, 1 running")
        terminal.type("q")

        assert terminal.ends() == 0
        assert "\x1b[?1049h" in terminal.shown  # the other screen, and back
        assert "\x1b[?1049l" in terminal.shown
        assert "Traceback" not in terminal.shown


def test_p_holds_the_picture_and_lets_it_go_on(folder: Path, busy: Store) -> None:
    with live(folder) as terminal:
        terminal.shows("3 pending")
        terminal.shows("PAUSED", terminal.type("p"))
        put(busy, queue=QueueName("mail"))
        terminal.shows("by running", terminal.type("s"))  # drawn again, and not looked at
        assert "4 pending" not in terminal.shown
        terminal.type("p")
        terminal.shows("4 pending")
        terminal.type("q")
        assert terminal.ends() == 0


def test_keys_sort_and_ctrl_c_ends_it(folder: Path, busy: Store) -> None:
    with live(folder) as terminal:
        terminal.shows("by pending")
        terminal.shows("by running", terminal.type("s"))
        terminal.shows("by running reversed", terminal.type("r"))
        terminal.shows("every 0.4 s", terminal.type("+"))
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.ends() == 0


def test_a_store_that_goes_away_is_said_and_looked_for_again(folder: Path, busy: Store) -> None:
    with running(folder) as address:
        terminal = Terminal(
            folder, command("top", "--every", "0.2", "--url", f"{address}?response_timeout=1")
        )
        try:
            terminal.shows("3 pending")
        except BaseException:
            terminal.close()
            raise
    try:
        terminal.shows("cannot be reached")
        assert terminal.process.poll() is None
        terminal.type("q")
        assert terminal.ends() == 0
    finally:
        terminal.close()


def test_it_fits_on_a_small_terminal(folder: Path, busy: Store) -> None:
    for _ in range(30):
        make(busy, JobState.DEAD)
    with live(folder, lines=20, columns=80) as terminal:
        terminal.shows("Newest failures (")
        terminal.shows("defau")
        assert "wait p95" not in terminal.shown
        terminal.shows("q quit")
        terminal.type("q")
        assert terminal.ends() == 0


def test_what_a_job_says_is_no_markup(folder: Path, store: Store) -> None:
    make(store, JobState.DEAD, task="[red]evil[/red]")
    with live(folder) as terminal:
        terminal.shows("[red]evil[/red]")
        terminal.type("q")
        assert terminal.ends() == 0


def test_without_rich_it_is_shown_once(folder: Path, busy: Store) -> None:
    status, shown = on_terminal(folder, [sys.executable, "-c", WITHOUT_RICH, "top"])

    assert status == 0
    assert "pip install 'forebay[cli]'" in shown
    assert "3 pending, 1 running" in shown


def test_keys_change_the_view_and_others_do_not() -> None:
    view = TopView(sort="oldest", every=2.0, is_due=False)

    assert view.apply_key("s").sort == "queue"
    assert view.apply_key("p").is_paused
    assert view.apply_key("p").apply_key("p").is_due
    assert view.apply_key("-").every == 1.0
    assert view.apply_key(" ").is_due
    assert view.apply_key("\x1b").is_over
    assert view.apply_key("x") is view
