"""Clocks that jump and that are wrong: nothing is lost, and no job has two finishers."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from forebay import Forebay
from tests.evidence.networks import SERVERS
from tests.evidence.papers import DEADLINE, LEASE_SECONDS, Papers, SkewedClock, a_worker
from tests.urls import url_of
from tests.worker.support import eventually

HOUR: Final = 3_600


@pytest.mark.shows("R-EDGE-30", "R-EDGE-31", "R-TEST-55")
@pytest.mark.parametrize("engine", SERVERS)
def test_workers_whose_clocks_are_hours_apart_and_jump_run_each_job_once(engine: str, tmp_path: Path) -> None:
    url, papers = url_of(engine, tmp_path), Papers(tmp_path)
    (tmp_path / "clock-early").write_text(f"{-HOUR}")
    (tmp_path / "clock-late").write_text(f"{HOUR}")
    with (
        Forebay(url) as app,
        a_worker(url, tmp_path, "early"),
        a_worker(url, tmp_path, "late"),
    ):
        work = papers.task(app, lease=60)
        held = [work.using(queue=name).enqueue(f"hold {name}") for name in ("early", "late")]
        papers.accepted(*held)
        eventually(lambda: all(map(papers.holders, held)), DEADLINE)
        (tmp_path / "clock-early").write_text(f"{HOUR}")
        (tmp_path / "clock-late").write_text(f"{-HOUR}")
        for name in ("early", "late"):
            soon = work.using(queue=name, delay=0.5).enqueue(f"{name}, later")
            papers.accepted(soon)
            soon.wait(DEADLINE)
            papers.let_go(f"hold {name}")
        papers.check(app)

    assert papers.starts() == 4


@pytest.mark.shows("R-EDGE-31", "R-TEST-55")
def test_a_machine_whose_clock_jumps_to_and_fro_loses_no_job_of_its_file(tmp_path: Path) -> None:
    url, file = f"sqlite:///{tmp_path}/jobs.db", tmp_path / "clock-one"
    papers = Papers(tmp_path, SkewedClock(file))
    (tmp_path / "clock-two").symlink_to(file)  # one machine, one clock
    with (
        Forebay(url, clock=SkewedClock(file)) as app,
        a_worker(url, tmp_path, "one"),
        a_worker(url, tmp_path, "two"),
    ):
        work = papers.task(app, LEASE_SECONDS)
        # What waits for a time waits until the clock says it again; so it ends ahead of all that it has said.
        for now in (HOUR, -HOUR, 2 * HOUR):
            held, waiting = work.enqueue(f"hold {now}"), work.using(delay=0.5).enqueue(f"before {now}")
            papers.accepted(held, waiting)
            eventually(lambda held=held: papers.holders(held), DEADLINE)  # type: ignore[misc]
            file.write_text(f"{now}")
            after = work.enqueue(f"after {now}")
            papers.accepted(after)
            after.wait(DEADLINE)
            papers.let_go(f"hold {now}")
            held.wait(DEADLINE)
        papers.check(app)
