"""Programs that install or build say that they are at work: by a bar on a terminal, by lines elsewhere."""

from __future__ import annotations

import os
import pty
import sys
from io import StringIO
from pathlib import Path
from threading import Event

import pytest

from tools.progress import BAR, BLOCK, Failed, Progress, bar, run

WITHIN = 60


class Stream(StringIO):
    """A stream that tells when a text has been written to it."""

    def __init__(self, awaited: str, *, is_terminal: bool = False) -> None:
        super().__init__()
        self.heard = Event()
        self._awaited = awaited
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> int:
        written = super().write(text)
        if self._awaited in self.getvalue():
            self.heard.set()
        return written


def test_lines_follow_each_other_while_the_work_lasts() -> None:
    stream = Stream("s: packing")
    with Progress("build", stream, line_seconds=0.01) as progress:
        progress.note("packing")
        assert stream.heard.wait(WITHIN)

    lines = stream.getvalue().splitlines()
    assert lines[0] == "build ..."
    assert lines[1].startswith("  0 s: ")
    assert lines[-1].startswith("build: done after ")
    assert "\r" not in stream.getvalue()


def test_a_terminal_has_one_line_that_moves() -> None:
    stream = Stream(bar(2), is_terminal=True)
    with Progress("build", stream):
        assert stream.heard.wait(WITHIN)

    assert "\n" not in stream.getvalue()[:-1]
    assert bar(1) in stream.getvalue()


def test_the_block_of_a_bar_goes_to_and_fro() -> None:
    places = [bar(step).index("=") - 1 for step in range(2 * (BAR - BLOCK) + 1)]

    assert places == [*range(BAR - BLOCK), *range(BAR - BLOCK, -1, -1)]


def test_a_command_on_a_terminal_shows_its_latest_line_on_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as terminal, os.fdopen(leader, "rb", buffering=0) as seen:
        monkeypatch.setattr(sys, "stdout", terminal)
        words = "import time; print('one of two', flush=True); time.sleep(1)"  # ten moves of the bar
        run("install", [sys.executable, "-c", words], cwd=Path.cwd())
        output = ""
        while "install: done after" not in output:
            output += seen.read(1_000).decode()

    assert "one of two" in output
    assert output.rpartition("\x1b[K")[2].startswith("install: done after ")


def test_a_command_that_fails_is_followed_by_its_last_lines(capfd: pytest.CaptureFixture[str]) -> None:
    words = "import sys; print('no matching package'); sys.exit(3)"

    with pytest.raises(Failed, match="ended with status 3"):
        run("install", [sys.executable, "-c", words], cwd=Path.cwd())

    output = capfd.readouterr()
    assert "install: failed after" in output.out
    assert output.err == "  no matching package\n"


def test_a_program_that_is_not_there_has_failed(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="No such file"):
        run("install", [str(tmp_path / "npm")], cwd=tmp_path)
