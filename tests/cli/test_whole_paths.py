"""Programs that are started in a wrong folder show which store they use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command_runner import DEADLINE, TASKS, working
from tests.worker.support import eventually


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_worker_shows_the_whole_path_of_its_file_and_that_it_made_it(
    processes: str, tmp_path: Path
) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    path = tmp_path / "jobs.db"

    with working(tmp_path, "tasks:app", "--processes", processes):
        log = tmp_path / "worker.log"
        eventually(lambda: f" runs on {path}" in log.read_text(), DEADLINE)

        assert log.read_text().count(f"created a new, empty store at {path}") == 1


def test_a_worker_for_a_mistyped_queue_names_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    log = tmp_path / "worker.log"

    with working(tmp_path, "tasks:app", "--queues", "maill,default"):
        eventually(lambda: "there is no queue maill yet; did you mean mail?" in log.read_text(), DEADLINE)

    assert "no queue default" not in log.read_text()
