"""What a worker says about itself: how old its last heartbeat is, and how much of an answer is kept."""

from __future__ import annotations

import pytest

from forebay.domain.job import WorkerId
from forebay.domain.worker import HeartbeatStatus, WorkerInfo
from forebay.domain.worker_command import MAX_RESPONSE, truncate_answer


@pytest.mark.parametrize(
    ("ms_ago", "status"),
    [
        (-5, HeartbeatStatus.ALIVE),
        (0, HeartbeatStatus.ALIVE),
        (9_999, HeartbeatStatus.ALIVE),
        (10_000, HeartbeatStatus.STALE),
        (14_999, HeartbeatStatus.STALE),
        (15_000, HeartbeatStatus.DEAD),
    ],
)
def test_a_worker_that_misses_two_heartbeats_is_stale_and_after_three_it_counts_as_dead(
    ms_ago: int, status: HeartbeatStatus
) -> None:
    worker = WorkerInfo(id=WorkerId("w"), heartbeat_at=1_000_000, heartbeat_ms=5_000)

    assert worker.heartbeat_status(1_000_000 + ms_ago) is status


def test_an_answer_is_kept_clean_and_up_to_64_kib() -> None:
    assert truncate_answer("a\x00b\udc80") == "a␀b?"
    assert truncate_answer("x" * 70_000) == "x" * MAX_RESPONSE
    assert MAX_RESPONSE == 64 * 1_024
