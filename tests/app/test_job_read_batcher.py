"""Coroutines that look at one moment share one look."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence

import pytest

from forebay.app.job_read_batcher import ReadBatcher
from forebay.app.offload_thread import OffloadThread
from forebay.domain.job import Job, JobId
from forebay.errors import StoreUnavailable
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from tests.app.test_handle_async import play
from tests.stores.sqlite_support import DEADLINE
from tests.stores.support import new_job


@pytest.fixture
def offload() -> Iterator[OffloadThread]:
    offload = OffloadThread("looking")
    yield offload
    offload.close()


class JobSource:
    """Answers from a reader, writes down the questions, and can be held or made to fail."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.questions: list[set[JobId]] = []
        self.is_reached = threading.Event()
        self.is_open = threading.Event()
        self.failures = 0

    def __call__(self, ids: Sequence[JobId]) -> list[Job | None]:
        self.questions.append(set(ids))
        self.is_reached.set()
        assert self.is_open.wait(DEADLINE)
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("away")
        return self._reader.jobs(ids)


def stored(store: Store, count: int) -> list[JobId]:
    receipts = store.insert([new_job() for _ in range(count)])
    return [receipt.id for receipt in receipts if receipt.id]


def test_looks_that_come_meanwhile_are_one_question(
    store: Store, reader: Reader, offload: OffloadThread
) -> None:
    ids = stored(store, 50)
    source, looks = JobSource(reader), ReadBatcher(offload)

    async def scene() -> list[Job | None]:
        first = asyncio.create_task(looks(ids[0], source))
        await asyncio.to_thread(source.is_reached.wait, DEADLINE)
        others = [asyncio.create_task(looks(job_id, source)) for job_id in [*ids, ids[7], JobId("gone")]]
        await asyncio.sleep(0)  # lets each of them run up to its hop
        source.is_open.set()
        return [await first, *await asyncio.gather(*others)]

    found = play(scene())

    assert source.questions == [{ids[0]}, {*ids, JobId("gone")}]
    assert [job and job.id for job in found] == [ids[0], *ids, ids[7], None]


def test_an_error_is_heard_by_the_look_that_met_it_and_the_others_ask_again(
    store: Store, reader: Reader, offload: OffloadThread
) -> None:
    ids = stored(store, 4)
    source, looks = JobSource(reader), ReadBatcher(offload)

    async def scene() -> list[Job | BaseException | None]:
        first = asyncio.create_task(looks(ids[0], source))
        await asyncio.to_thread(source.is_reached.wait, DEADLINE)
        others = [asyncio.create_task(looks(job_id, source)) for job_id in ids[1:]]
        await asyncio.sleep(0)  # lets each of them run up to its hop
        source.failures = 2
        source.is_open.set()
        return await asyncio.gather(first, *others, return_exceptions=True)

    answers = play(scene())

    assert [type(answer) for answer in answers] == [StoreUnavailable, StoreUnavailable, Job, Job]
    assert [answer.id for answer in answers[2:]] == ids[2:]


def test_two_event_loops_use_one_thread(store: Store, reader: Reader, offload: OffloadThread) -> None:
    [job_id] = stored(store, 1)
    source, looks = JobSource(reader), ReadBatcher(offload)
    source.is_open.set()
    found: list[Job | None] = []

    async def scene() -> None:
        for _ in range(50):
            found.append(await looks(job_id, source))

    threads = [threading.Thread(target=lambda: play(scene())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)

    assert [job and job.id for job in found] == [job_id] * 100
    assert [thread.name for thread in threading.enumerate() if "looking" in thread.name] == ["looking_0"]
