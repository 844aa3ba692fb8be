"""What a newcomer does first: store, look, run, and let jobs ask for more jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forebay import Forebay, PayloadError
from forebay.domain.job_states import JobState
from forebay.domain.job_validation import MAX_PAYLOAD

PAYLOADS: list[Any] = [
    None,
    7,
    -1.5,
    "ñ \x00 ~ 漢字",
    b"\x00\xff",
    [1, [2, [3]]],
    {"deep": {"er": [{}]}},
    {"~": "tilde"},
    (1, 2),
    "x" * 100_000,
]


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'app.db'}"


@pytest.mark.shows("R-TEST-08", "R-TEST-04", "R-TEST-61")
def test_a_hundred_jobs_are_stored_seen_in_order_and_counted(url: str) -> None:
    with Forebay(url) as app:
        echo = app.task(name="echo")(lambda value: value)
        handles = [echo.enqueue(PAYLOADS[number % len(PAYLOADS)]) for number in range(100)]
        with pytest.raises(PayloadError, match="the limit is 1,048,576"):
            echo.enqueue("x" * MAX_PAYLOAD)

        assert [job.id for job in app.peek(limit=100)] == [handle.id for handle in handles]
        assert app.counts()[app.default_queue].pending == 100

        with app.run_worker(threads=1):
            results = [handle.result(timeout=120) for handle in handles]
        counts = app.counts()[app.default_queue]
        assert results == [PAYLOADS[number % len(PAYLOADS)] for number in range(100)]
        assert (counts.completed, counts.live) == (100, 0)


@pytest.mark.shows("R-DEP-20")
def test_a_job_enqueues_the_jobs_that_follow_it(url: str) -> None:
    with Forebay(url) as app:

        @app.task(name="shout")
        def shout(word: str) -> str:
            return word.upper()

        @app.task(name="split")
        def split(text: str) -> list[str]:
            return [shout.enqueue(word).id for word in text.split()]

        @app.task(name="split_async")
        async def split_async(text: str) -> list[str]:
            return [(await shout.enqueue_async(word)).id for word in text.split()]

        with app.run_worker(threads=2):
            ids = [
                *split.enqueue("ada and grace").result(timeout=120),
                *split_async.enqueue("one two").result(timeout=120),
            ]
            words = [app.job(job_id).result(timeout=120) for job_id in ids]

        assert words == ["ADA", "AND", "GRACE", "ONE", "TWO"]
        assert {app.job(job_id).refresh().state for job_id in ids} == {JobState.COMPLETED}
