"""What people see: tables on a terminal, questions, and bars."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from forebay.cli.output import cell, format_duration, format_instant
from forebay.domain.job import QueueName
from forebay.domain.job_states import JobState
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from tests.cli.command_runner import call, command, environment, program, put
from tests.stores.contract import steps

HEADS = ["queue", "state", "sched", "block", "pending", "run", "retry", "done", "dead", "canc", "drain"]
WITHOUT_RICH = "import sys; sys.modules['rich'] = None; from forebay.cli.main import main; main()"


def on_terminal(folder: Path, words: list[str], typed: str = "", columns: int = 200) -> tuple[int, str]:
    """Run a program on a terminal of its own, type something, and give its status and what was shown."""
    ours, theirs = pty.openpty()
    variables = {"TERM": "xterm-256color", "COLUMNS": str(columns), "LINES": "50"}
    with subprocess.Popen(
        words, cwd=folder, env=environment(**variables), stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        os.write(ours, typed.encode())
        shown = bytearray()
        with suppress(OSError):  # how a terminal says that no process is left on the other side
            while part := os.read(ours, 4_096):
                shown += part
        os.close(ours)
    return process.returncode, shown.decode()


@pytest.fixture
def waiting(store: Store) -> Store:
    steps.put_many(store, 3)
    return store


def test_a_terminal_gets_a_table_with_a_bold_head(folder: Path, waiting: Store) -> None:
    status, shown = on_terminal(folder, command("stats"))

    assert status == 0
    assert "\x1b[1m" in shown
    assert "default" in shown


def test_without_rich_the_table_is_plain(folder: Path, waiting: Store) -> None:
    status, shown = on_terminal(folder, [sys.executable, "-c", WITHOUT_RICH, "stats"])

    assert status == 0
    assert "\x1b" not in shown
    assert "queue    state   sched  block" in shown


def test_without_a_terminal_the_table_is_plain(waiting: Store) -> None:
    lines = call("stats").stdout.splitlines()

    assert lines[0] == ("queue    state   sched  block  pending  run  retry  done  dead  canc")
    assert lines[1] == ("default  active      0      0        3    0      0     0     0     0")


def plain_lines(shown: str) -> list[str]:
    return re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()


def test_a_list_of_jobs_has_a_line_for_each_on_a_terminal_of_80_columns(folder: Path, store: Store) -> None:
    reason = "a reason of many words, which is longer than any terminal is wide"
    job_id = put(store, task="shop.orders.confirmation.send_by_mail", queue=QueueName("confirmations"))
    store.cancel([job_id], reason)
    put(store, priority=-100)

    _, shown = on_terminal(folder, command("jobs", "list"), columns=80)

    head, waiting, cancelled = plain_lines(shown)
    assert head.split() == ["id", "queue", "task", "state", "prio", "try", "age", "reason"]
    assert all(len(line) <= 80 for line in (head, waiting, cancelled))
    assert cancelled.startswith(job_id)
    assert re.search(r" con\w*… +sho\S*… +cancelled +0 +0 +\w+ +a r.*…$", cancelled.rstrip())
    assert re.search(r" pending +-100 +0 ", waiting)


def test_counts_fit_on_a_terminal_of_80_columns(folder: Path, waiting: Store) -> None:
    _, shown = on_terminal(folder, command("queues", "list"), columns=80)

    head, line = plain_lines(shown)
    assert head.split() == HEADS
    assert line.split() == ["default", "active", "0", "0", "3", "0", "0", "0", "0", "0", "?"]


def test_what_a_job_says_is_no_markup(folder: Path, store: Store) -> None:
    put(store, task="[red]evil[/red]")

    _, shown = on_terminal(folder, command("jobs", "list"))

    assert "[red]evil[/red]" in shown


def test_a_user_who_says_yes_gets_what_was_asked_and_a_bar(
    folder: Path, waiting: Store, reader: Reader
) -> None:
    status, shown = on_terminal(folder, command("jobs", "delete", "--all"), "y\n")

    assert status == 0
    assert "Delete 3 jobs in sqlite:///jobs.db? [y/N]:" in shown
    assert "100%" in shown
    assert "3 jobs deleted" in shown
    assert reader.counts()["default"].total == 0  # type: ignore[index]


@pytest.fixture
def mixed(store: Store) -> Store:
    """A dead letter, and jobs that wait."""
    steps.make(store, JobState.DEAD)
    steps.put_many(store, 3)
    return store


LONG = [
    ("queues", "purge", "default", "--yes"),
    ("jobs", "cancel", "--all", "--yes"),
    ("dead", "revive", "--all", "--yes"),
    ("dead", "purge", "--all", "--yes"),
    ("queues", "delete", "default", "--force", "--yes"),
    ("move", "--from", "sqlite:///jobs.db", "--to", "sqlite:///new.db"),
]


@pytest.mark.parametrize("words", LONG, ids=" ".join)
def test_whatever_works_in_batches_has_a_bar_on_a_terminal(
    words: tuple[str, ...], folder: Path, mixed: Store
) -> None:
    status, shown = on_terminal(folder, command(*words))

    assert status == 0
    assert "100%" in shown


@pytest.mark.parametrize("words", LONG, ids=" ".join)
def test_and_none_on_a_pipe(words: tuple[str, ...], folder: Path, mixed: Store) -> None:
    done = program(folder, *words)

    assert (done.returncode, done.stderr) == (0, "")
    assert "%" not in done.stdout


def test_a_migration_says_that_it_goes_on(folder: Path) -> None:
    words = command("migrate", "--url", "sqlite:///[new].db")

    assert "migrating sqlite:///[new].db ..." in on_terminal(folder, words)[1]
    assert program(folder, "migrate", "--url", "sqlite:///other.db").stderr == ""


def test_a_user_who_says_no_keeps_everything(folder: Path, waiting: Store, reader: Reader) -> None:
    status, shown = on_terminal(folder, command("jobs", "delete", "--all"), "n\n")

    assert status == 1
    assert "Error: nothing was done" in shown
    assert reader.counts()["default"].pending == 3  # type: ignore[index]


def test_ctrl_d_at_a_question_is_a_no(folder: Path, waiting: Store, reader: Reader) -> None:
    status, shown = on_terminal(folder, command("jobs", "delete", "--all"), "\x04")

    assert status == 1
    assert "Error: nothing was done" in shown
    assert reader.counts()["default"].pending == 3  # type: ignore[index]


def test_control_characters_and_long_texts_do_not_reach_the_terminal() -> None:
    assert cell("a\x1b[2Jb\nc\x9bd") == "a�[2Jb�c�d"
    assert cell("x" * 100) == "x" * 59 + "…"
    assert cell(None) == ""


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (None, ""),
        (0, "0ms"),
        (999, "999ms"),
        (1_000, "1s"),
        (61_000, "1m1s"),
        (7_200_000, "2h"),
        (90_061_000, "1d1h"),
    ],
)
def test_lengths_are_short(ms: int | None, shown: str) -> None:
    assert format_duration(ms) == shown


def test_instants_are_in_utc() -> None:
    assert format_instant(1_800_000_000_000) == "2027-01-15 08:00:00Z"
    assert format_instant(None) == ""


def test_states_are_all_in_the_head_of_the_table(waiting: Store) -> None:
    assert call("queues", "list").stdout.splitlines()[0].split() == HEADS
    assert len(HEADS) == 3 + len(JobState)
