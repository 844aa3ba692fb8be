"""Ids that two programs make are never the same, and a store in which they were loses no job."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from msgspec.structs import replace

from forebay.domain.job import JobId, NewJob
from forebay.domain.outcome import Completed
from forebay.domain.schedule import Schedule, ScheduleDefinition
from forebay.domain.schedule_runs import PlannedRun, ScheduleAdvance
from forebay.domain.settlement import decide
from forebay.errors import StoreError
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from forebay.stores.id_generator import new_id
from tests.stores.support import WORKER, claim, everything, new_job
from tests.urls import lent_url

DEADLINE: Final = 120
# The operating system's clock cannot be set back, so uuid-utils answers as it would with such a clock: with
# an earlier time, and with random bits of its own.
FORKING: Final = """
import os, sys
import uuid_utils
from forebay.integrations.outbox.table import Outbox
from forebay import Forebay
from forebay.stores.id_generator import IdGenerator, new_id, new_worker_id
from forebay.worker.worker import Worker

now = uuid_utils.uuid7
app = Forebay("memory://")
makers = [new_id, IdGenerator(), Outbox(app)._new_id]
[make() for make in makers]
uuid_utils.uuid7 = lambda: uuid_utils.UUID(int=now().int - (2_000 << 80))

def tell():
    ids = [make() for make in makers for _ in range(3)]
    ids += [id for make in makers for id in make.create_many(3)]
    os.write(1, (" ".join([*ids, new_worker_id(), Worker(app.engine, app.registry).id]) + "\\n").encode())

for _ in range(3):
    pid = os.fork()
    if pid == 0:
        tell()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
tell()
"""


def test_ids_do_not_repeat_in_forked_processes_whose_clock_was_set_back() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKING], stdout=subprocess.PIPE, text=True, timeout=DEADLINE, check=True
    )

    lines = [line.split() for line in done.stdout.splitlines()]
    ids = list(chain.from_iterable(lines))
    assert [len(line) for line in lines] == [20] * 4
    assert len(set(ids)) == len(ids)


class Ids:
    """Makes ids, and repeats some if asked to."""

    def __init__(self) -> None:
        self.repeats: list[JobId] = []

    def __call__(self) -> JobId:
        return self.repeats.pop(0) if self.repeats else new_id()


@pytest.fixture(params=["postgresql", "redis"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with lent_url(request.param, tmp_path) as url:
        yield open_engine(url)


@pytest.fixture
def ids(engine: Any, monkeypatch: pytest.MonkeyPatch) -> Ids:
    made = Ids()
    monkeypatch.setattr(engine, "_new_id", made)
    return made


@pytest.fixture
def store(engine: Engine, ids: Ids) -> Iterator[Store]:
    with ExitStack() as stack:
        store = engine.store()
        stack.callback(store.close)
        yield store


@pytest.fixture
def reader(engine: Engine) -> Iterator[Reader]:
    reader = engine.reader()
    yield reader
    reader.close()


def payloads(reader: Reader) -> dict[JobId, bytes]:
    """All jobs of the store."""
    found = reader.jobs([job.id for job in everything(reader)])
    return {job.id: bytes(job.payload) for job in found if job is not None}


def inserted(store: Store, *jobs: NewJob) -> list[JobId | None]:
    return [receipt.id for receipt in store.insert(jobs)]


def follow_up(store: Store, job: NewJob) -> list[JobId | None]:
    [parent] = claim(store)
    end = replace(decide(parent, Completed(b"1"), 0.0), follow_ups=(job,))
    assert store.settle_and_claim(WORKER, [end]).settled == (parent.id,)
    return [None]


def fired(store: Store, job: NewJob) -> list[JobId | None]:
    definition = ScheduleDefinition(name="often", job=job, every_ms=1_000)
    assert store.save_schedule(Schedule(definition=definition, next_run_at=1, check_at=1))
    [schedule] = store.due_schedules().schedules
    move = ScheduleAdvance(
        name="often",
        revision=schedule.revision,
        runs=(PlannedRun(planned_at=1, job=job, skip_reason=""),),
        next_run_at=2,
        check_at=None,
    )
    [done] = store.fire_schedules([move])
    return [schedule_run.job_id for schedule_run in done.runs]


WAYS: Final[dict[str, Callable[[Store], list[JobId | None]]]] = {
    "one": lambda store: inserted(store, new_job(payload=b"new")),
    "several": lambda store: inserted(store, *[new_job(payload=b"new")] * 3),
    "later": lambda store: inserted(store, new_job(payload=b"new", delay_ms=60_000)),
    "keyed": lambda store: inserted(store, new_job(payload=b"new", unique_key="u")),
    "beside one with an id": lambda store: inserted(
        store, new_job(payload=b"new", id=JobId("mine")), new_job(payload=b"new")
    ),
    "follow-up": lambda store: follow_up(store, new_job(payload=b"new")),
    "fired": lambda store: fired(store, new_job(payload=b"new")),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_job_whose_made_id_is_taken_is_stored_under_another_and_the_first_stays(
    way: str, store: Store, reader: Reader, ids: Ids
) -> None:
    [first, second] = inserted(store, new_job(payload=b"first"), new_job(payload=b"second"))
    assert first is not None
    assert second is not None
    ids.repeats = [second]

    WAYS[way](store)

    assert ids.repeats == []
    kept = payloads(reader)
    assert (kept.pop(first), kept.pop(second)) == (b"first", b"second")
    assert set(kept.values()) == {b"new"}
    assert sum(counts.total for counts in reader.counts().values()) == len(kept) + 2
    assert reader.health().problems == ()


def test_a_maker_that_always_repeats_is_an_error_and_nothing_is_stored(
    store: Store, reader: Reader, engine: Any
) -> None:
    [taken] = inserted(store, new_job(payload=b"first"))
    assert taken is not None
    engine._new_id = lambda: taken
    again = engine.store()

    with pytest.raises(StoreError):
        again.insert([new_job(payload=b"new")])

    again.close()
    assert payloads(reader) == {taken: b"first"}


def test_a_repeated_id_in_a_transaction_of_the_caller_is_replaced(tmp_path: Path) -> None:
    with lent_url("postgresql", tmp_path) as url:
        engine: Any = open_engine(url)
        made = engine._new_id = Ids()
        store, reader = engine.store(), engine.reader()
        [taken] = inserted(store, new_job(payload=b"first"))
        assert taken is not None
        made.repeats = [taken]
        with psycopg.connect(engine.address.dsn) as connection:
            [receipt] = engine.insert_tx(connection, [new_job(payload=b"new")])

        assert made.repeats == []
        assert receipt.id != taken
        assert payloads(reader) == {taken: b"first", receipt.id: b"new"}
        reader.close()
        store.close()
