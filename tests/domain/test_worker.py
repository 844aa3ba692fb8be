"""What a worker says about itself: how long ago it beat, and how much of an answer is kept."""

from __future__ import annotations

import pytest

from forebay.domain.job import WorkerId
from forebay.domain.worker import MAX_ANSWER, Pulse, WorkerInfo, answer_as_kept


@pytest.mark.parametrize(
    ("ms_ago", "pulse"),
    [
        (-5, Pulse.ALIVE),
        (0, Pulse.ALIVE),
        (9_999, Pulse.ALIVE),
        (10_000, Pulse.STALE),
        (14_999, Pulse.STALE),
        (15_000, Pulse.DEAD),
    ],
)
def test_a_worker_that_misses_two_beats_is_stale_and_after_three_it_counts_as_dead(
    ms_ago: int, pulse: Pulse
) -> None:
    worker = WorkerInfo(id=WorkerId("w"), beat_at=1_000_000, beat_ms=5_000)

    assert worker.pulse(1_000_000 + ms_ago) is pulse


def test_an_answer_is_kept_clean_and_up_to_64_kib() -> None:
    assert answer_as_kept("a\x00b\udc80") == "a␀b?"
    assert answer_as_kept("x" * 70_000) == "x" * MAX_ANSWER
    assert MAX_ANSWER == 64 * 1_024
