"""Functions that are enqueued by RQ's calls do the same under the real package and under ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
import rq
from rq.decorators import job as their_job
from rq.job import Dependency as TheirDependency
from rq.job import JobStatus as TheirStatus
from rq.job import get_current_job as their_current_job

from forebay import ConfigError, Forebay
from forebay.compat import rq as ours
from forebay.domain.job_states import JobState
from forebay.domain.queue import QueueSettings
from tests.importers import shop
from tests.importers.support import DEADLINE, until


class Theirs:
    """RQ's own names, as ours has them in one place."""

    Queue, Retry, Dependency = rq.Queue, rq.Retry, TheirDependency
    job, get_current_job = their_job, staticmethod(their_current_job)


def until_fine(path: str, enough: int) -> int:
    """Fails until it has been called often enough."""
    file = Path(path)
    file.write_text(f"{file.read_text() if file.exists() else ''}x")
    calls = len(file.read_text())
    if calls < enough:
        raise KeyError(path)
    return calls


def own_id(more: str) -> str:
    job = WHO[0]()
    assert job is not None
    return f"{job.id} {more} {job.meta['order']}"


WHO: list[Callable[[], Any]] = [ours.get_current_job]


def outcomes(names: Any, connection: Any, run: Callable[[], None], folder: Path) -> list[Any]:
    """What becomes of one of each."""
    shop.DONE.clear()
    WHO[0] = names.get_current_job
    queue = names.Queue("default", connection=connection)
    decorated = names.job(queue, connection=connection, timeout=30)(shop.mail)
    first = queue.enqueue(shop.mail, "first")
    sent = [
        queue.enqueue(shop.add, 2, 3),
        queue.enqueue(shop.add, args=(2,), kwargs={"b": 4}, job_timeout="1h", description="a sum"),
        queue.enqueue_call(shop.add, args=(2, 5), timeout=90, result_ttl=500, ttl=600),
        queue.enqueue(shop.add, a=2, b=6, job_id="chosen"),
        queue.enqueue(until_fine, str(folder / "two"), 2, retry=names.Retry(max=2)),
        queue.enqueue(until_fine, str(folder / "nine"), 9, retry=names.Retry(max=2, interval=0)),
        queue.enqueue(until_fine, str(folder / "once"), 2),
        queue.enqueue(own_id, "says", job_id="me", meta={"order": 7}),
        queue.enqueue(shop.mail, "child", depends_on=first),
        queue.enqueue(shop.mail, "grandchild", depends_on=names.Dependency([first], allow_failure=True)),
        queue.enqueue(shop.mail, "urgent", at_front=True),
        decorated.delay("decorated", subject="d"),
        decorated.enqueue("further", job_id="further"),
        queue.enqueue("tests.importers.shop.add", 3, 4),
    ]
    late = queue.enqueue_in(timedelta(hours=1), shop.add, 1, 1)
    later = queue.enqueue_at(datetime(2050, 1, 31, tzinfo=UTC), shop.add, 1, 1)
    assert first.get_status() == "queued"

    run()

    found = [(job.get_status(), job.return_value()) for job in (*sent, late, later)]
    flags = [
        (job.is_finished, job.is_failed, job.is_queued, job.is_scheduled) for job in (*sent, late, later)
    ]
    calls = [len((folder / name).read_text()) for name in ("two", "nine", "once")]
    more = [queue.fetch_job("chosen").id, queue.fetch_job("absent"), len(queue), shop.mail("direct")]
    return [*found, flags, calls, shop.DONE[0], sorted(shop.DONE), more]


@pytest.fixture
def app(url: str) -> Iterator[Forebay]:
    with Forebay(url) as made:
        yield made


def test_the_same_functions_do_the_same_under_both(old: redis.Redis, app: Forebay, folder: Path) -> None:
    worker = rq.SimpleWorker(["default"], connection=old)

    def all_done() -> None:
        with app.run_worker(queues=["default"], threads=1):
            for job in app.search(limit=100).jobs:
                if job.state is not JobState.SCHEDULED:
                    app.job(job.id).wait(timeout=DEADLINE)

    (folder / "theirs").mkdir()
    (folder / "ours").mkdir()
    expected = outcomes(Theirs, old, lambda: _worked(worker), folder / "theirs")
    found = outcomes(ours, app, all_done, folder / "ours")

    assert found == expected
    assert expected[0] == ("finished", 5)
    assert [each[0] for each in expected[:15]].count("failed") == 2


def _worked(worker: rq.SimpleWorker) -> None:
    assert worker.work(burst=True)


def test_options_become_ours(app: Forebay) -> None:
    queue = ours.Queue("mail", connection=app, default_timeout=60)
    retry = ours.Retry(max=4, interval=[10, 30, 60])

    one = queue.enqueue(
        shop.mail, "ada", retry=retry, ttl="1h", meta={"order": 7}, description="a mail"
    ).record
    other = queue.enqueue(shop.mail, "bob", job_timeout=-1, depends_on=[one.id]).record

    assert (one.queue, one.timeout_ms, one.policy.max_retries) == ("mail", 60_000, 4)
    assert one.metadata == {"order": 7, "description": "a mail", "rq_intervals": [10, 30, 60]}
    assert one.expires_at is not None
    assert one.expires_at - one.created_at <= 3_600_000
    assert (other.timeout_ms, other.state, other.policy.max_retries) == (None, JobState.BLOCKED, 0)
    assert [edge.on_failure for edge in app.job(other.id).parents()] == ["hold"]


def test_each_retry_waits_for_its_own_interval(app: Forebay, folder: Path) -> None:
    queue = ours.Queue("mail", connection=app)
    job = queue.enqueue(until_fine, str(folder / "x"), 9, retry=ours.Retry(max=2, interval=[0, 3_600]))

    with app.run_worker(queues=["mail"]):
        until(lambda: job.record.failures == 2)

    record = job.record
    assert record.state is JobState.RETRYING
    assert abs(record.run_at - record.updated_at - 3_600_000) < 1_000
    assert job.exc_info is not None
    assert "KeyError" in job.exc_info


def test_what_is_not_offered_is_refused_with_the_way_out(app: Forebay, folder: Path) -> None:
    queue = ours.Queue("mail", connection=app)
    kept = QueueSettings().keep_finished_ms // 1_000

    wrongs: dict[Callable[[], object], str] = {
        (lambda: queue.enqueue(shop.add, 1, 2, on_success=print)): "workflow",
        (lambda: queue.enqueue(shop.add, 1, 2, repeat=3)): "schedule",
        (lambda: queue.enqueue(shop.add, 1, 2, failure_ttl=3)): "queues configure",
        (lambda: queue.enqueue(shop.add, 1, 2, result_ttl=0)): "return None",
        (lambda: queue.enqueue(shop.add, 1, 2, result_ttl=kept + 1)): "keep_finished",
        (lambda: queue.enqueue(shop.add, 1, 2, result_ttl=-1)): "keep_finished",
        (lambda: queue.enqueue(shop.add, 1, 2, job_timeout="soon")): "1h or 23m",
        (lambda: queue.enqueue(shop.add, 1, 2, job_timeout=0)): "-1 is without end",
        (lambda: queue.enqueue(shop.add, 1, args=(2,))): "not both",
        (lambda: queue.enqueue(shop.add, 1, 2, retry=rq.Retry(max=2))): "forebay.compat.rq",
        (lambda: queue.enqueue(shop.Basket().total)): "top of a module",
        (lambda: queue.enqueue(lambda: None)): "top of a module",
        (lambda: queue.learn(_coroutine)): "coroutine",
        (lambda: queue.enqueue_at(60, shop.add, 1, 2)): "takes a datetime",  # type: ignore[arg-type]
        (lambda: queue.enqueue_in(60, shop.add, 1, 2)): "timedelta",  # type: ignore[arg-type]
        (lambda: queue.empty): "forebay queues",
        (lambda: queue.enqueue(shop.add, 1, 2).latest_result): "not offered",
        (lambda: ours.Queue("mail")): "an app of Forebay",
        (lambda: ours.Queue("mail", connection=app, is_async=False)): "forebay.testing",
        (lambda: ours.Retry(max=0)): "from 1 on",
        (lambda: ours.Retry(max=1, enqueue_at_front=True)): "not offered",
        (lambda: ours.job("mail", app, on_failure=print)): "workflow",
    }
    for wrong, words in wrongs.items():
        with pytest.raises(ConfigError, match=words):
            wrong()
    assert ours.get_current_job() is None


async def _coroutine() -> None: ...


def test_a_status_is_one_of_the_words_that_rq_has(app: Forebay) -> None:
    queue = ours.Queue(connection=app)
    queue.learn(shop.add)
    job = queue.enqueue(shop.add, 1, 2)

    assert job.get_status() is ours.JobStatus.QUEUED
    assert job.get_status() == "queued"
    assert [one.value for one in ours.JobStatus] == [one.value for one in TheirStatus]
