"""Lists and totals of jobs that fit: they end, and say where."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from forebay.domain.job import QueueName
from forebay.domain.job_query import JobQuery
from forebay.domain.outcome import AttemptError, Discarded
from forebay.operations import job_search
from forebay.operations.failure_groups import failure_groups
from forebay.operations.job_search import count_jobs, search_jobs
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.reader import Reader
from forebay.stores.sqlite import reader as sqlite_reader
from forebay.stores.sqlite.engine import SqliteEngine
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import DEFAULT, W1, ended
from tests.stores.support import new_job

START = 1_000_000
RARE = JobQuery(tasks=("rare",))
DEAD = Discarded(AttemptError(type="Boom", message="order 17"))


@pytest.fixture
def bounded_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    """120 jobs, one a second, of which the first is rare, and a reader that looks at five at a time."""
    clock = ManualClock(START)
    engine = SqliteEngine(str(tmp_path / "jobs.db"), clock=clock)
    store, reader = engine.store(), engine.reader()
    for number in range(120):
        store.insert([new_job(task="t" if number else "rare")])
        clock.advance(seconds=1)
    monkeypatch.setattr(sqlite_reader, "ROWS_PER_SCAN", 5)
    yield reader
    reader.close()
    store.close()


@pytest.mark.shows("R-DASH-14")
def test_a_search_stops_after_ten_looks_and_says_where(bounded_reader: Reader) -> None:
    page = search_jobs(bounded_reader, RARE, 10, None)

    assert page.jobs == ()
    assert page.after is not None
    assert page.scanned_back_to == START + 70_000


def test_a_search_that_has_stopped_can_go_on_to_the_end(bounded_reader: Reader) -> None:
    after = search_jobs(bounded_reader, RARE, 10, None).after
    after = search_jobs(bounded_reader, RARE, 10, after).after

    page = search_jobs(bounded_reader, RARE, 10, after)

    assert [job.task for job in page.jobs] == ["rare"]
    assert (page.after, page.scanned_back_to) == (None, None)


def test_a_full_page_does_not_say_that_it_stopped(bounded_reader: Reader) -> None:
    page = search_jobs(bounded_reader, JobQuery(tasks=("t",)), 40, None)

    assert len(page.jobs) == 40
    assert page.after is not None
    assert page.scanned_back_to is None


def test_a_total_is_what_was_found_until_the_search_stopped(bounded_reader: Reader) -> None:
    assert count_jobs(bounded_reader, RARE) == (0, False)
    assert count_jobs(bounded_reader, JobQuery(tasks=("rare", "t"), queues=(QueueName("default"),))) == (
        50,
        False,
    )


def test_a_total_is_exact_as_far_as_it_is_counted(
    bounded_reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_reader, "ROWS_PER_SCAN", 1_000)
    every = JobQuery(tasks=("rare", "t"))

    assert count_jobs(bounded_reader, every) == (120, True)
    monkeypatch.setattr(job_search, "EXACT_UP_TO", 119)
    assert count_jobs(bounded_reader, every) == (119, False)
    monkeypatch.setattr(job_search, "EXACT_UP_TO", 120)
    assert count_jobs(bounded_reader, every) == (120, True)


def test_failure_groups_stop_after_ten_looks_and_say_that_there_is_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = SqliteEngine(str(tmp_path / "jobs.db"), clock=ManualClock(START))
    with closing(engine.store()) as store, closing(engine.reader()) as reader:
        store.insert([new_job(task="t" if number else "rare") for number in range(60)])
        jobs = store.settle_and_claim(W1, claims=[QueueClaim(DEFAULT, 60)], room=60).jobs
        store.settle_and_claim(W1, [ended(job, DEAD) for job in jobs])
        [whole] = failure_groups(reader, RARE).groups
        monkeypatch.setattr(sqlite_reader, "ROWS_PER_SCAN", 5)

        found = failure_groups(reader, RARE)

        assert whole.jobs == 1
        assert (found.jobs, found.is_complete) == (0, False)
        assert count_jobs(reader, RARE, whole.id) == (0, False)
