"""A replica serves readers, and says so to writers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forebay.domain.job import JobId, QueueName
from forebay.domain.job_query import JobQuery
from forebay.domain.job_states import JobState
from forebay.errors import StoreError
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.server_address import PostgresAddress
from tests.servers import Postgres
from tests.stores.support import WORKER, claim, complete, new_job
from tests.worker.support import eventually

DEFAULT = QueueName("default")


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[PostgresEngine, PostgresEngine]]:
    """A server and its replica."""
    primary = Postgres(shared_buffers="16MB")
    engine = PostgresEngine(PostgresAddress(dsn=primary.url()))
    engine.store().close()
    replica = Postgres(primary, shared_buffers="16MB")
    yield engine, PostgresEngine(PostgresAddress(dsn=replica.url()))
    replica.close()
    primary.close()


@pytest.mark.shows("R-STORE-31", "R-EXT-06")
def test_a_replica_serves_counts_and_searches(pair: tuple[PostgresEngine, PostgresEngine]) -> None:
    engine, replicated = pair
    store = engine.store()
    ids = [JobId(str(receipt.id)) for receipt in store.insert([new_job()] * 3)]
    done, _ = claim(store, 2)
    store.settle_and_claim(WORKER, [complete(done)])
    reader = replicated.reader()

    eventually(lambda: reader.counts([DEFAULT])[DEFAULT].completed == 1)

    assert {job.id for job in reader.search(JobQuery()).jobs} == set(ids)
    [job] = reader.jobs([done.id])
    assert job is not None
    assert job.state is JobState.COMPLETED
    assert [job.id for job in reader.peek(DEFAULT)] == [ids[2]]
    assert reader.history(done.id) is not None
    assert reader.health().problems == ()
    reader.close()
    replica = replicated.store()
    with pytest.raises(StoreError, match="read-only"):
        replica.insert([new_job()])
    for handle in (store, replica):
        handle.close()
