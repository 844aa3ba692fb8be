"""The page about workers does what it says."""

from __future__ import annotations

from pathlib import Path

from tests.docs.pages import run_page, whole


def test_the_program_of_the_page_runs_in_an_empty_folder(tmp_path: Path) -> None:
    answer = run_page(tmp_path, "guide/workers.md")

    assert answer.returncode == 0, answer.stderr
    assert len(whole("guide/workers.md", "python").splitlines()) > 50
