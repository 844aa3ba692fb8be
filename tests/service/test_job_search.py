"""What users who explore jobs ask for, and many of them at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event, Lock
from typing import Any

import pytest

from forebay import Forebay
from forebay.domain.concurrency_and_rate_limits import Limit
from forebay.domain.job import NewJob, QueueName
from forebay.domain.job_query import JobQuery, Page
from forebay.service.runtime.store_pool import READERS, StorePool
from forebay.service.server_security import ServerSecurity
from forebay.stores.contract.reader import Reader
from forebay.stores.factory import open_engine
from forebay.stores.memory.reader import MemoryReader
from forebay.testing.manual_clock import ManualClock
from tests.service.live_server import PATIENCE, Served, serving
from tests.worker.support import eventually


@pytest.mark.shows("R-TEST-37", "R-HTTP-34")
def test_cp5_4_search_returns_only_matches_and_pages(served: Served) -> None:
    queue = served.queue()
    made = [
        served.enqueue(queue, task=f"t{n % 2}", tags=["odd"] if n % 3 else ["even"], args=[f"word{n}"])
        for n in range(12)
    ]
    request = {"queues": [queue], "tasks": ["t1"], "tags": ["odd"], "states": ["pending"]}
    right = [made[n] for n in (11, 7, 5, 1)]

    def page(after: str | None, **more: Any) -> Any:
        body = {"where": request | more, "limit": 3, "after": after, "with_total": True}
        return served.done("POST", "/v1/jobs/search", body)

    first = page(None)
    second = page(first["after"])

    assert [job["id"] for job in first["jobs"]] == right[:3]
    assert [job["id"] for job in second["jobs"]] == right[3:]
    assert (first["total"], first["total_is_exact"], first["has_more"]) == (4, True, True)
    assert (second["after"], second["scanned_back_to"]) == (None, None)
    assert [job["id"] for job in page(None, text="word7")["jobs"]] == [made[7]]
    assert page(None, created_before="2001-01-01T00:00:00Z")["jobs"] == []


@pytest.mark.shows("R-NFR-14")
def test_a_search_among_ten_thousand_jobs_is_answered(tmp_path: Path) -> None:
    # Within half a second where no other program uses the machine: `make bench WHAT=explorer` measures it.
    with serving(open_engine(f"sqlite:///{tmp_path}/jobs.db")) as served:
        queue = served.queue()
        with closing(served.service.pool.engine.store()) as store:
            for first in range(0, 10_000, 1_000):
                names = [f"word{number:05}" for number in range(first, first + 1_000)]
                jobs = [NewJob(task="t", queue=QueueName(queue), payload=name.encode()) for name in names]
                store.insert(jobs)

        request = {"where": {"queues": [queue], "text": "word00007"}, "with_total": True}
        found = served.done("POST", "/v1/jobs/search", request)

    assert (found["total"], len(found["jobs"])) == (1, 1)


class HeldSearches:
    """Holds up searches on their threads until they may go on, and knows how many there are at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_go = Event()
        self.wanted = self.now = self.most = 0
        lock = Lock()
        search, read = MemoryReader.search, StorePool.read

        def held(reader: MemoryReader, query: JobQuery, **more: Any) -> Page:
            with lock:
                self.now += 1
                self.most = max(self.most, self.now)
            try:
                assert self.may_go.wait(PATIENCE)
                return search(reader, query, **more)
            finally:
                with lock:
                    self.now -= 1

        async def counted(pool: StorePool, call: Callable[[Reader], Any]) -> Any:
            self.wanted += 1
            return await read(pool, call)

        monkeypatch.setattr(MemoryReader, "search", held)
        monkeypatch.setattr(StorePool, "read", counted)


@pytest.mark.shows("R-TEST-38", "R-RATE-12")
def test_cp5_5_many_requests_of_pages_are_limited_and_the_store_is_not_overwhelmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = HeldSearches(monkeypatch)
    security = ServerSecurity(rate=Limit(scope="global", rate=1, burst=30))
    with serving(open_engine("memory://"), security=security) as served, ThreadPoolExecutor(10) as pages:
        submitted = [pages.submit(served.ask, "POST", "/v1/jobs/search", {}) for _ in range(100)]
        try:
            eventually(lambda: held.wanted >= 10 and held.now >= READERS)
        finally:
            held.may_go.set()
        answers = [one.result() for one in submitted]

    refused = [one for one in answers if one.status_code == 429]
    assert {one.status_code for one in answers} == {200, 429}
    assert all(int(one.headers["Retry-After"]) >= 1 for one in refused)
    assert held.most == READERS


def test_who_holds_a_job_does_not_wait_for_those_who_search(monkeypatch: pytest.MonkeyPatch) -> None:
    held = HeldSearches(monkeypatch)
    with serving(open_engine("memory://")) as served, ThreadPoolExecutor(READERS) as pages:
        job = served.claimed(served.queue())
        path, lease = f"/v1/jobs/{job['id']}", {"lease": job["lease"]}
        searches = [pages.submit(served.ask, "POST", "/v1/jobs/search", {}) for _ in range(READERS)]
        try:
            eventually(lambda: held.now == READERS)

            served.done("POST", f"{path}/heartbeat", lease, timeout=10)
            served.done("POST", f"{path}/ack", lease, timeout=10)
        finally:
            held.may_go.set()
        assert {one.result().status_code for one in searches} == {200}


def live_for_a_minute(app: Forebay, clock: ManualClock, failing: bool) -> None:
    """What is due runs; if it shall fail it does so once, and runs again."""
    app.schedules.fire_due()
    with closing(app.consumer()) as consumer:
        for _ in range(3):
            for job in consumer.claim(10):
                if failing and job.attempt == 1:
                    consumer.fail(job, ConnectionError("not yet"), after=1)
                else:
                    consumer.complete(job)
            clock.advance(seconds=2)
    clock.advance(seconds=54)


@pytest.mark.shows("R-TEST-48", "R-TEST-28")
def test_five_minutes_of_a_schedule_are_shown_with_failures_and_retries() -> None:
    clock = ManualClock(1_800_000_000_000)
    with Forebay("memory://", clock=clock) as app:
        app.task(name="tick", retries=2)(lambda: None)
        app.schedules.save("minutely", "tick", cron="* * * * *")
        clock.advance(seconds=60)
        for minute in range(5):
            live_for_a_minute(app, clock, failing=minute < 2)

        with serving(app.engine) as served:
            body = {"where": {"tasks": ["tick"], "states": ["completed"]}, "with_total": True}
            found = served.done("POST", "/v1/jobs/search", body)
            first = served.job(found["jobs"][-1]["id"])

    assert found["total"] == 5
    assert [job["attempt"] for job in found["jobs"]] == [1, 1, 1, 2, 2]
    assert [(one["attempt"], one["error"]) for one in first["attempts"]] == [(1, "not yet")]
