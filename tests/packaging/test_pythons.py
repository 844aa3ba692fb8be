"""Pythons that Forebay supports, and those that are installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("mode", [0o000, 0o444])
def test_a_folder_of_pythons_that_may_not_be_read_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    programs = tmp_path / "pyenv" / "versions" / "3.99.1" / "bin"
    programs.mkdir(parents=True)
    (programs / "python3.99").write_text("not a program\n")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    (tmp_path / "pyenv").chmod(mode)
    try:
        assert _as_ordinary_user(lambda: pythons.located("3.99")) == "None"
    finally:
        (tmp_path / "pyenv").chmod(0o755)


def test_a_python_that_may_not_be_run_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = tmp_path / "versions" / "3.99.1" / "bin"
    programs.mkdir(parents=True)
    (programs / "python3.99").write_text("not a program\n")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))

    assert pythons.located("3.99") is None


def _as_ordinary_user(call: Callable[[], object]) -> str:
    """Return what a call answers in a process without root's rights, which no folder's mode keeps out."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            if os.geteuid() == 0:
                os.setuid(65_534)
            os.write(writer, repr(call()).encode())
        except BaseException as exc:
            os.write(writer, repr(exc).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        answer = pipe.read().decode()
    os.waitpid(child, 0)
    return answer
