"""A job on its way from one store to another."""

from __future__ import annotations

import pytest

from forebay.domain.job import JobId, UniqueUntil
from forebay.domain.job_history import EventKind
from forebay.domain.job_states import JobState
from forebay.domain.store_move import JobExport, MoveComparison, fingerprint, waiting_state
from forebay.errors import IllegalTransition
from tests.domain.sample_jobs import NOW, a_job


def test_a_running_job_is_not_taken_along() -> None:
    JobExport(job=a_job(state=JobState.PENDING)).check()
    with pytest.raises(IllegalTransition, match="is running; it can be moved once it has ended"):
        JobExport(job=a_job()).check()


def test_a_job_comes_without_a_key_that_another_one_has() -> None:
    whole = JobExport(job=a_job(unique_key="u"))

    without = whole.without_unique_key(JobId("other"))

    assert without.job.unique_key is None
    assert [event.kind for event in without.events] == [EventKind.COMMENT]
    assert without.events[0].detail == "it came without its unique key u, which other holds"


@pytest.mark.parametrize(
    ("changes", "takes"),
    [
        ({"unique_key": "u"}, True),
        ({"unique_key": "u", "unique_until": UniqueUntil.STARTED}, False),
        ({"unique_key": "u", "unique_until": UniqueUntil.STARTED, "attempt": 0}, True),
        ({"unique_key": "u", "state": JobState.DEAD}, False),
        ({}, False),
    ],
)
def test_who_holds_a_key_takes_it_along(changes: dict[str, object], takes: bool) -> None:
    assert JobExport(job=a_job(**{"state": JobState.PENDING, **changes})).holds_unique_key is takes


def test_a_live_job_waits_as_its_time_and_its_parents_say() -> None:
    later, retried = a_job(run_at=NOW + 1), a_job(run_at=NOW + 1, state=JobState.RETRYING)

    assert waiting_state(later, NOW, is_blocked=True) is JobState.BLOCKED
    assert waiting_state(later, NOW + 1, is_blocked=False) is JobState.PENDING
    assert waiting_state(later, NOW, is_blocked=False) is JobState.SCHEDULED
    assert waiting_state(retried, NOW, is_blocked=False) is JobState.RETRYING


def test_a_fingerprint_is_of_what_two_stores_must_agree_about() -> None:
    job = a_job(metadata={"a": 1, "b": 2})
    moved = a_job(metadata={"b": 2, "a": 1}, seq=9, rank=3, unique_key="u")
    updated = a_job(metadata={"a": 1}, priority=7, state=JobState.COMPLETED, result=b"1")

    assert fingerprint(job) == fingerprint(moved) == fingerprint(updated)
    assert fingerprint(job) != fingerprint(a_job(metadata={"a": 1, "b": 2}, payload=b"[]"))
    assert fingerprint(job, with_end=True) == fingerprint(moved, with_end=True)
    assert fingerprint(job, with_end=True) != fingerprint(updated, with_end=True)


def test_stores_agree_where_nothing_is_missing_or_another() -> None:
    assert MoveComparison(jobs=2, forgotten=1, old_checksum="a", new_checksum="a").agrees
    assert not MoveComparison(missing=(JobId("1"),), old_checksum="a", new_checksum="a").agrees
    assert not MoveComparison(different=(JobId("1"),), old_checksum="a", new_checksum="a").agrees
    assert not MoveComparison(old_checksum="a", new_checksum="b").agrees
