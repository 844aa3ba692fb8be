"""The check of `make soak` that limits held finds those that did not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.bounds import AT_ONCE, BURST, RATE, check_joins, check_limits, most_at_once
from benchmarks.effects import Log
from forebay.domain.history import Timeline
from forebay.domain.job import JobId
from forebay.domain.lifecycle import JobState
from tests.domain.making import NOW, a_job

LEASE_MS = 2_000


class Life:
    """Jobs that ran for a time each, one after the other or beside each other."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.timelines: list[Timeline] = []

    def add(self, began: int, ended: int, tenant: str, *, held_ms: int = 100) -> JobId:
        job_id = JobId(f"job-{len(self.timelines)}")
        job = a_job(
            id=job_id,
            state=JobState.COMPLETED,
            started_at=NOW + began,
            finished_at=NOW + began + held_ms,
            limit_keys={"tenant": tenant},
        )
        self.timelines.append(Timeline(job=job, attempts=(), events=()))
        with self._file.open("a") as file:
            file.write(f"start {job_id} 1 w1 7 {began}\nend {job_id} 1 w1 7 {ended}\n")
        return job_id

    def problems(self) -> list[str]:
        return list(check_limits(self.timelines, self.log(), LEASE_MS))

    def log(self) -> Log:
        log = Log(self._file)
        log.look()
        return log


@pytest.fixture
def life(tmp_path: Path) -> Life:
    return Life(tmp_path / "log")


@pytest.mark.parametrize(
    ("spans", "most"),
    [([], 0), ([(1, 5), (5, 9)], 1), ([(1, 5), (4, 9), (2, 3)], 2), ([(1, 9), (2, 8), (3, 7), (8, 9)], 3)],
)
def test_spans_that_overlap_are_counted(spans: Sequence[tuple[int, int]], most: int) -> None:
    assert most_at_once(spans) == most


def test_limits_that_are_just_kept_are_fine(life: Life) -> None:
    for number in range(AT_ONCE):
        life.add(0, 100, f"t{number // 2}")
        life.add(100, 200, f"t{number // 2}")

    assert life.problems() == []


def test_one_job_too_many_is_found(life: Life) -> None:
    for number in range(AT_ONCE + 1):
        life.add(number, 100, f"t{number}")

    assert life.problems() == [f"{AT_ONCE + 1} jobs ran at once, and {AT_ONCE} may"]


def test_one_job_too_many_of_a_tenant_is_found(life: Life) -> None:
    for number in range(3):
        life.add(number, 100, "acme")

    assert life.problems() == ["3 jobs of tenant acme ran at once, and 2 may"]


def test_a_job_that_may_have_outlived_its_lease_does_not_count(life: Life) -> None:
    for number in range(3):
        life.add(number, 100, "acme", held_ms=LEASE_MS if number == 1 else 100)

    assert life.problems() == []


def test_jobs_that_begin_too_fast_are_found(life: Life) -> None:
    for number in range(2 * (BURST + 2 * RATE)):
        life.add(number * 500 // RATE, number * 500 // RATE, f"t{number}")

    assert [problem.partition(" until")[0] for problem in life.problems()] == ["more attempts began"]


def test_a_job_that_did_not_wait_for_another_one_is_found(life: Life) -> None:
    early, late = life.add(0, 100, "a"), life.add(0, 300, "b")
    join = life.add(200, 400, "c")

    found = list(check_joins({join: [early, late]}, life.timelines, life.log()))

    assert found == [f"{join} began before {[late]} had finished"]
