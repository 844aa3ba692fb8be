"""The store door: a call that brings more than a job may keep is refused, and nothing of it is stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final, NamedTuple

import pytest
from msgspec.structs import replace

from forebay.domain.api_key import Grant
from forebay.domain.job import Job, JobId, NewJob, QueueName, WorkerId
from forebay.domain.job_validation import MAX_ENCRYPTION_OVERHEAD, MAX_KEY, MAX_PAYLOAD
from forebay.domain.lease import Lease
from forebay.domain.outcome import Completed
from forebay.domain.progress import MAX_LEVEL, MAX_STEP_NAME, LogLine, ProgressUpdate, StepResult
from forebay.domain.settlement import MAX_REASON, Settlement, decide
from forebay.domain.worker import WorkerInfo
from forebay.errors import ForebayError, InvalidJob, PayloadError
from forebay.payload.codec import frame
from forebay.service.api_keys import ApiKeyAdmin
from forebay.service.server_security import ServerSecurity
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from tests.service.live_server import serving

QUEUE: Final = QueueName("a")
WORKER: Final = WorkerId("w")
HUGE: Final = "x" * 1_000_000
LARGEST: Final = b"x" * MAX_PAYLOAD


class Far(NamedTuple):
    """A store as a worker with a key for one queue has it, and what is behind it."""

    store: Store
    reader: Reader


@pytest.fixture(scope="module")
def far() -> Iterator[Far]:
    with serving(open_engine("memory://"), security=ServerSecurity(requires_keys=True)) as served:
        behind = served.service.pool.engine
        with closing(behind.store()) as store, closing(behind.reader()) as reader:
            store.save_queue(QUEUE)
            grants = [Grant.parse("produce:a"), Grant.parse("consume:a")]
            token = ApiKeyAdmin(store, reader, actor="ann").create("worker", grants).token
            with closing(open_engine(served.address, key=token).store()) as known:
                yield Far(known, reader)


@pytest.fixture
def job(far: Far) -> Job:
    """A job that the worker runs."""
    [receipt] = far.store.insert([NewJob(task="t", queue=QUEUE)])
    found = far.store.settle_and_claim(WORKER, claims=[QueueClaim(QUEUE, 1_000)], room=1_000).jobs
    [job] = [one for one in found if one.id == receipt.id]
    return job


def ended(job: Job, **fields: Any) -> Settlement:
    return replace(decide(job, Completed(), 0.0), **fields)


def noted(job: Job, **fields: Any) -> ProgressUpdate:
    return ProgressUpdate(lease=Lease(job.id, job.attempt), **fields)


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"result": LARGEST + b"x"}, PayloadError, "the result has 1,048,577 bytes, the limit is 1,048,576"),
        (
            {"result": frame(LARGEST, key="k.01234567", queue=QUEUE) + b"x" * MAX_ENCRYPTION_OVERHEAD},
            PayloadError,
            "the result has",
        ),
        ({"lane": HUGE}, InvalidJob, "lane must be a text of 1 to"),
    ],
)
def test_a_settlement_that_is_too_large_is_refused(
    far: Far, job: Job, fields: dict[str, Any], error: type[ForebayError], words: str
) -> None:
    with pytest.raises(error, match=words):
        far.store.settle_and_claim(WORKER, [ended(job, **fields)])

    [kept] = far.reader.jobs([job.id])
    assert kept is not None
    assert (kept.state, kept.result) == ("running", None)


@pytest.mark.parametrize("result", [LARGEST, frame(LARGEST, key="k.01234567", queue=QUEUE)])
def test_the_largest_result_is_kept(far: Far, job: Job, result: bytes) -> None:
    far.store.settle_and_claim(WORKER, [ended(job, result=result)])

    [kept] = far.reader.jobs([job.id])
    assert kept is not None
    assert kept.result == result


def test_a_reason_is_cut(far: Far, job: Job) -> None:
    far.store.settle_and_claim(WORKER, [ended(job, reason=HUGE)])

    [kept] = far.reader.jobs([job.id])
    assert kept is not None
    assert kept.reason == HUGE[:MAX_REASON]


@pytest.mark.parametrize(
    ("step", "error", "words"),
    [
        (
            StepResult(name="s", result=LARGEST + b"x"),
            PayloadError,
            "the result of a step has 1,048,577 bytes",
        ),
        (StepResult(name=HUGE, result=b""), InvalidJob, "the name of a step must be a text of 1 to 200"),
        (StepResult(name="", result=b""), InvalidJob, "the name of a step must be a text of 1 to 200"),
    ],
)
def test_a_step_that_is_too_large_is_refused(
    far: Far, job: Job, step: StepResult, error: type[ForebayError], words: str
) -> None:
    with pytest.raises(error, match=words):
        far.store.settle_and_claim(
            WORKER, updates=[noted(job, steps=(StepResult(name="first", result=b"1"), step))]
        )

    assert far.reader.progress(job.id).steps == ()


def test_the_largest_step_is_kept(far: Far, job: Job) -> None:
    step = StepResult(name="n" * MAX_STEP_NAME, result=LARGEST)
    far.store.settle_and_claim(WORKER, updates=[noted(job, steps=(step,))])

    [kept] = far.reader.progress(job.id).steps
    assert (kept.name, kept.result) == (step.name, step.result)


def test_a_level_is_cut(far: Far, job: Job) -> None:
    far.store.settle_and_claim(WORKER, updates=[noted(job, lines=(LogLine(at=0, level=HUGE, text="t"),))])

    [line] = far.reader.progress(job.id).lines
    assert line.level == HUGE[:MAX_LEVEL]


@pytest.mark.parametrize(
    "fields",
    [{"id": WorkerId(HUGE)}, {"id": WorkerId("")}, {"paused": (QueueName(HUGE),)}, {"queues": (HUGE,)}],
)
def test_a_worker_that_says_too_much_is_refused(far: Far, fields: dict[str, Any]) -> None:
    with pytest.raises(ForebayError):
        far.store.heartbeat(WorkerInfo(**{"id": WORKER, "queues": (QUEUE,)} | fields))

    assert not any(len(worker.id) > MAX_KEY or worker.paused for worker in far.reader.workers())


def test_a_worker_is_shown_within_bounds(far: Far) -> None:
    huge = (JobId(HUGE),)
    far.store.heartbeat(
        WorkerInfo(id=WORKER, queues=(QUEUE,), paused=(QUEUE,) * 5, running=huge, recent=huge)
    )

    [shown] = far.reader.workers()
    assert shown.paused == (QUEUE,)
    assert (shown.running, shown.recent) == ((HUGE[:MAX_KEY],),) * 2
