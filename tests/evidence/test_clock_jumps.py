"""Clocks that jump and that are wrong: nothing is lost, and no job has two finishers."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from forebay import Forebay
from forebay.domain.job import JobId
from forebay.stores.redis import connection
from forebay.stores.redis.lua_scripts import load_scripts
from tests.evidence.networks import SERVERS
from tests.evidence.papers import DEADLINE, LEASE_SECONDS, Papers, SkewedClock, a_worker
from tests.evidence.store_clocks import SteppedStore, use_stepped_scripts
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


@pytest.mark.shows("R-EDGE-31", "R-TEST-55")
@pytest.mark.parametrize("step", [60, -60])
@pytest.mark.parametrize("engine", SERVERS)
def test_a_step_of_the_servers_clock_takes_no_job_from_a_living_worker(
    engine: str, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SteppedStore(engine, tmp_path)
    monkeypatch.setattr(connection, "load_scripts", load_scripts)  # and back again after the test
    use_stepped_scripts()
    papers = Papers(tmp_path, SkewedClock(tmp_path / "clock-store"))
    with (
        Forebay(store.url) as app,
        a_worker(store.url, tmp_path, "one"),
        a_worker(store.url, tmp_path, "two"),
    ):
        work = papers.task(app, lease=30)
        # Sweepers that have read the clock long enough ago take over all that has ended.
        eventually(lambda: store.has_maintenance("sweep"), DEADLINE)
        held = [work.enqueue(f"hold {number}") for number in range(2)]
        papers.accepted(*held)
        eventually(lambda: all(map(papers.holders, held)), DEADLINE)

        store.step_to(step)
        after = work.enqueue("after the step")
        papers.accepted(after)
        after.wait(DEADLINE)
        eventually(lambda: all(is_renewed(app, job.id, step) for job in held), DEADLINE)

        for number in range(2):
            papers.let_go(f"hold {number}")
        papers.check(app)

    assert papers.starts() == 3


def is_renewed(app: Forebay, job_id: str, step: int) -> bool:
    """Whether the holder of a job has renewed its lease since the clock was stepped ahead; and after a step
    back, whether there has been time for it."""
    job = app.client.job(JobId(job_id))
    now = app.client.read(lambda reader: reader.now())
    assert job is not None
    assert job.lease_expires_at is not None, "it was taken over"
    return job.lease_expires_at > now if step > 0 else now > (job.started_at or 0) + (step + 10) * 1_000
