"""How a supervisor starts a process, and what it says about its end."""

from __future__ import annotations

import os
import signal

import pytest

from forebay.worker.supervisor.worker_process import describe_exit, spawn


def test_a_process_that_cannot_be_started_leaves_nothing_open() -> None:
    before = set(os.listdir("/dev/fd"))

    with pytest.raises(FileNotFoundError):
        spawn(lambda channel, page: ["/no such program"])

    assert set(os.listdir("/dev/fd")) == before


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "ended with exit status 0"),
        (3, "ended with exit status 3"),
        (-signal.SIGSEGV, "was killed by SIGSEGV"),
        (-63, "was killed by signal 63"),
    ],
)
def test_the_end_of_a_process_is_told_in_words(status: int, words: str) -> None:
    assert describe_exit(status) == words
