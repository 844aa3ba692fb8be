"""The pages about workers and executors do what they say."""

from __future__ import annotations

from pathlib import Path

from tests.docs.pages import run_page, whole


def test_the_program_of_the_page_runs_in_an_empty_folder(tmp_path: Path) -> None:
    answer = run_page(tmp_path, "guide/workers.md")

    assert answer.returncode == 0, answer.stderr
    assert len(whole("guide/workers.md", "python").splitlines()) > 50


def test_the_program_of_the_page_about_executors_runs_in_an_empty_folder(tmp_path: Path) -> None:
    answer = run_page(tmp_path, "guide/executors.md")

    assert answer.returncode == 0, answer.stderr
    assert "isolated=True" in whole("guide/executors.md", "python")


def test_the_program_of_the_page_about_control_runs_in_an_empty_folder(tmp_path: Path) -> None:
    answer = run_page(tmp_path, "guide/operating-workers.md")

    assert answer.returncode == 0, answer.stderr
    assert "worker.pause()" in whole("guide/operating-workers.md", "python")
