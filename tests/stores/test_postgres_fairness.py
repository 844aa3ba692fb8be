"""Fairness keys on PostgreSQL: a job is never left behind in the lane of a fairness key that no claim looks
at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from forebay.domain.job import JobId, NewJob
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.postgres.engine import PostgresEngine
from forebay.stores.postgres.fairness import PostgresFairClaim
from forebay.stores.postgres.store import PostgresStore
from forebay.testing.manual_clock import ManualClock
from tests.stores.contract.steps import DEFAULT
from tests.stores.postgres_support import make_engine, problems, raw
from tests.stores.support import WORKER, claim, new_job


@pytest.fixture
def engine(clock: ManualClock, postgres: object) -> PostgresEngine:
    return make_engine(clock)


@pytest.fixture
def store(engine: PostgresEngine) -> Iterator[PostgresStore]:
    store = engine.store()
    yield store
    store.close()


@pytest.fixture
def other(engine: PostgresEngine) -> Iterator[PostgresStore]:
    store = engine.store()
    yield store
    store.close()


def job_of_key(name: str) -> NewJob:
    return new_job(limit_keys={"fairness": name})


def test_a_prune_next_to_a_claim_does_not_take_the_record_that_a_job_has_come(
    engine: PostgresEngine, store: PostgresStore, other: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    [gone] = store.insert([job_of_key("a")])
    store.cancel([JobId(gone.id or "")])
    leave, came = PostgresFairClaim._remove_idle, []

    def leave_and_go_on(fair_claim: PostgresFairClaim, fairness_keys: Sequence[str]) -> None:
        leave(fair_claim, fairness_keys)
        # The claim has seen that there is nothing, and has not committed yet.
        came.extend(other.insert([job_of_key("a")]))
        other.prune()

    monkeypatch.setattr(PostgresFairClaim, "_remove_idle", leave_and_go_on)

    assert claim(store) == []
    monkeypatch.undo()
    assert problems(engine) == ()
    assert [job.id for job in claim(store)] == [receipt.id for receipt in came]


def test_a_prune_forgets_fairness_keys_that_have_nothing_to_run(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    store.insert([job_of_key("a")])
    claim(store)

    store.prune()

    with raw() as connection:
        assert connection.execute(
            f"select count(*) from {engine.address.schema}.fairness_keys"
        ).fetchone() == (0,)


def test_a_job_with_an_unknown_fairness_key_is_found_by_a_check(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    [receipt] = store.insert([job_of_key("a")])
    with raw() as connection:
        connection.execute(f"delete from {engine.address.schema}.fairness_keys")

    [problem] = problems(engine)

    assert receipt.id is not None
    assert receipt.id in str(problem)
    assert "fairness key" in str(problem)


def test_a_claim_that_holds_the_lock_of_fairness_keys_waits_for_no_row_of_a_job(
    engine: PostgresEngine, store: PostgresStore
) -> None:
    """A transaction may hold the row of a job, and wait for one of a job that a claim behind this one
    settles."""
    [receipt] = store.insert([job_of_key("a")])
    jobs = f"{engine.address.schema}.jobs"
    with raw() as connection, connection.transaction():
        connection.execute(f"select 1 from {jobs} where id = %s for update", [receipt.id])
        request = QueueClaim(DEFAULT, 1, lanes=frozenset(["task:other"]))

        assert store.settle_and_claim(WORKER, claims=[request], room=1).jobs == ()

    assert problems(engine) == ()
