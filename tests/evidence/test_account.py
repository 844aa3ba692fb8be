"""What a soak has written down is judged: limits by the lines of handlers, levels by their quarters."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from evidence.account import Done, done_of, read_accepted
from evidence.flat import JUDGED_FROM_SECONDS, Levels
from evidence.history import Accepted
from evidence.load import LEASE_MS, LIMITS
from forebay.domain.job import JobId, QueueName

AT_ONCE = LIMITS[0].concurrency or 0
METERED = LIMITS[3].burst_size + 2 * (LIMITS[3].rate or 0)


def ran(done: Done, jobs: int, *, began: int, ended: int | None, task: str = "work") -> Done:
    """So many jobs were claimed at 0 and ran."""
    for number in range(jobs):
        job_id = JobId(f"j{number}")
        done.history.accepted[job_id] = Accepted(
            id=job_id, at=0, due_at=0, queue=QueueName("default"), task=task
        )
        done.note("start", job_id, "1", "w", "0", str(began))
        if ended is not None:
            done.note("end", job_id, "1", "w", "0", str(ended))
    return done


def test_as_many_as_a_limit_allows_may_run_at_once() -> None:
    assert list(ran(Done(), AT_ONCE, began=10, ended=20).beyond_limits()) == []
    assert list(ran(Done(), AT_ONCE + 1, began=10, ended=20).beyond_limits()) == [
        f"{AT_ONCE + 1} leases were held at once under the limit of {AT_ONCE} for global"
    ]


def test_who_has_surely_had_no_lease_does_not_count() -> None:
    assert list(ran(Done(), AT_ONCE + 1, began=LEASE_MS, ended=LEASE_MS + 10).beyond_limits()) == []
    assert list(ran(Done(), AT_ONCE + 1, began=10, ended=None).beyond_limits()) == []


def test_more_claims_than_a_rate_allows_are_seen() -> None:
    done = ran(Done(), METERED, began=10, ended=None, task="metered")

    assert [one for one in done.beyond_limits() if "task:metered" in one]


def test_the_log_and_what_was_told_are_read_back(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("start j 1 w 5 7\nend j 1 w 5 9\n")
    job = Accepted(id=JobId("j"), at=3, due_at=3, queue=QueueName("default"), task="work", sequence="s")
    (tmp_path / "told").write_bytes(msgspec.json.encode(job) + b"\n")

    assert [(start.at, start.worker) for start in done_of(tmp_path / "log").history.starts] == [(7, "w")]
    assert [(end.at, end.is_good) for end in done_of(tmp_path / "log").history.ends] == [(9, True)]
    assert read_accepted(tmp_path / "told") == {"j": job}


@pytest.mark.parametrize(
    ("late", "problems"), [(25.0, []), (40.0, ["worker, MB rose from 20.0 to 40.0"])], ids=["flat", "rising"]
)
def test_a_level_that_rises_is_seen(late: float, problems: list[str]) -> None:
    levels = Levels(JUDGED_FROM_SECONDS)
    for value in [90.0] * 10 + [20.0] * 20 + [late] * 10:
        levels._sample("worker, MB", value)

    assert list(levels.problems()) == problems
