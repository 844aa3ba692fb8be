"""A worker dies in a transaction that completes its job: the server takes a moment to notice."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from forebay.domain.job_states import JobState
from forebay.stores.contract.claims_and_results import LeaseStatus
from forebay.stores.postgres.store import PostgresStore
from forebay.testing.manual_clock import ManualClock
from tests.stores.postgres_support import make_engine, server
from tests.stores.support import complete
from tests.worker.supervisor.test_lease_manager import WORKER, Scene


@pytest.mark.parametrize(
    ("ends", "state", "crashes"), [("rollback", JobState.PENDING, 1), ("commit", JobState.COMPLETED, 0)]
)
def test_what_a_dead_worker_has_locked_is_handed_back_when_it_is_free(
    postgres: object, clock: ManualClock, ends: str, state: JobState, crashes: int
) -> None:
    engine = make_engine(clock)
    store, reader = engine.store(), engine.reader()
    scene = Scene(engine, store, reader, clock)
    scene.welcomed()
    [job, other] = scene.claim(2)
    for one in (job, other):
        scene.write(one, is_begun=True)
    with psycopg.connect(server().url()) as connection:
        engine.complete_tx(connection, WORKER, complete(job))

        scene.dies()
        assert scene.manager.tick()
        before = (scene.job(job.id).state, scene.job(other.id).state, scene.manager.is_idle)
        getattr(connection, ends)()

    assert scene.manager.tick()
    assert before == (JobState.RUNNING, JobState.PENDING, False)
    assert (scene.job(job.id).state, scene.job(job.id).crashes) == (state, crashes)
    assert scene.manager.is_idle
    assert reader.workers() == []
    scene.close()
    store.close()
    reader.close()


def test_what_becomes_free_just_after_the_sweep_is_handed_back_too(
    postgres: object, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(clock)
    store, reader = engine.store(), engine.reader()
    scene = Scene(engine, store, reader, clock)
    scene.welcomed()
    [job] = scene.claim(1)
    scene.write(job, is_begun=True)
    look = PostgresStore.lease_status
    with psycopg.connect(server().url()) as connection:
        engine.complete_tx(connection, WORKER, complete(job))

        def noticed(*arguments: Any) -> list[LeaseStatus]:
            connection.rollback()
            return look(*arguments)

        monkeypatch.setattr(PostgresStore, "lease_status", noticed)
        scene.dies()
        assert scene.manager.tick()
        assert scene.manager.tick()

    assert (scene.job(job.id).state, scene.job(job.id).crashes) == (JobState.PENDING, 1)
    assert scene.manager.is_idle
    scene.close()
    store.close()
    reader.close()
