"""Which Pythons Forebay says it runs on, and which are here."""

from __future__ import annotations

import subprocess
import sys

from tools import pythons


def test_every_version_that_is_promised_is_looked_for() -> None:
    assert pythons.supported() == ["3.11", "3.12", "3.13"]


def test_the_list_says_of_each_whether_it_is_here() -> None:
    done = subprocess.run(
        [sys.executable, "tools/pythons.py", "--list"], capture_output=True, text=True, check=True
    )

    lines = dict(line.removeprefix("Python ").split(": ", 1) for line in done.stdout.splitlines())
    assert list(lines) == pythons.supported()
    assert lines[f"{sys.version_info[0]}.{sys.version_info[1]}"] == sys.executable


def test_one_that_is_not_here_is_not_taken_for_another() -> None:
    assert pythons.located("3.99") is None
