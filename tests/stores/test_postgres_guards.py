"""Each statement that writes under a lease, by itself: with one part of the fence wrong it touches no row.

Through the store contract most of these guards stand behind another one, because the engine has locked the
lease and looked at it in the same transaction. They are kept all the same: a change of the order of the looks
must not lose them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import psycopg
import pytest

from forebay.domain.concurrency_and_rate_limits import Limit, key_scope
from forebay.domain.job import Job
from forebay.domain.retry_policy import RetryPolicy
from forebay.stores.postgres.connection import use_our_types
from forebay.stores.postgres.schema_setup_and_check import statements_for
from forebay.testing.manual_clock import ManualClock
from tests.stores.postgres_support import make_engine, server
from tests.stores.support import WORKER, claim, fail, new_job

Values = dict[str, Any]
WRONG: Final[Values] = {"job_id": "other", "attempt": 99, "worker": "other"}
# Statements that end a lease, renew it or look for it.
GUARDED: Final = (
    "finish",
    "mark_dead",
    "return_to_queue",
    "complete",
    "settle_before_claim",
    "renew",
    "leases_lock_available",
    "leases_present",
)


class Bench:
    """A store with a job that runs and holds places, and one that has failed once; statements are run against
    it in transactions that are undone."""

    def __init__(self, clock: ManualClock) -> None:
        engine = make_engine(clock, keeps_sessions=True)
        self._statements = statements_for(engine.address.schema)
        self._schema = engine.address.schema
        store = engine.store()
        store.save_limit(Limit(scope=key_scope("tenant"), concurrency=5))
        store.insert([new_job(limit_keys={"tenant": "a"})] * 2 + [new_job(policy=RetryPolicy(max_retries=1))])
        self.job, _, self.failed = claim(store, 3)
        store.settle_and_claim(WORKER, [fail(self.failed, after_ms=1_000)])
        store.close()
        self.raw = psycopg.connect(server().url())
        use_our_types(self.raw.adapters)

    def values(self, job: Job) -> Values:
        end = {"failures": 0, "crashes": 0, "reason": None, "result": None}
        place = {"rank": 1, "age_capped": False, "rescore_at": None, "lane": None, "run_at": 1}
        token = {"job_id": job.id, "attempt": job.attempt, "worker": job.worker}
        return {**end, **place, **token, "now": job.updated_at, "errors": None, "lease_ms": 1_000}

    def rows(self, name: str, job: Job, **changes: Any) -> int:
        """How many leases a statement finds or ends."""
        values = {**self.values(job), **changes}
        values |= {"ids": [values["job_id"]], "tokens": [f"{values['job_id']}:{values['attempt']}"]}
        values |= {"attempts": [values["attempt"]], "reasons": [None], "results": [None]}
        if name == "complete":
            values |= {"failures": [0], "crashes": [0]}
        values["state"] = {"return_to_queue": "pending", "mark_dead": "dead"}.get(name, "completed")
        if name == "leases_present":
            values["now"] = None
        try:
            before = self.leases()
            self.raw.execute("select set_config('forebay_tx.now', '1', true)")
            cursor = self.raw.execute(self._statements[name], values, binary=True)
            # One of them has a row for its answer, whatever it has found.
            found = cursor.fetchall() if cursor.description and name != "settle_before_claim" else []
            return max(len(found), before - self.leases())
        finally:
            self.raw.rollback()

    def leases(self) -> int:
        [(count,)] = self.raw.execute(f"select count(*) from {self._schema}.leases").fetchall()
        return int(count)

    def places(self, name: str, **values: Any) -> list[tuple[str, int]]:
        """The places that are left after a statement."""
        try:
            self.raw.execute(self._statements[name], values, binary=True)
            return self.raw.execute(
                f"select id, attempt from {self._schema}.limit_slots order by id"
            ).fetchall()
        finally:
            self.raw.rollback()


@pytest.fixture
def bench(clock: ManualClock, postgres: object) -> Iterator[Bench]:
    bench = Bench(clock)
    yield bench
    bench.raw.close()


@pytest.mark.shows("R-LEASE-22", "R-JOB-27")
def test_a_statement_touches_a_lease_only_with_the_whole_token(bench: Bench) -> None:
    for name in GUARDED:
        assert bench.rows(name, bench.job) == 1, name
        found = {part: bench.rows(name, bench.job, **{part: wrong}) for part, wrong in WRONG.items()}
        assert found == dict.fromkeys(WRONG, 0), name


def test_an_end_is_known_by_its_attempt_and_by_who_has_told_it(bench: Bench) -> None:
    assert bench.rows("failed_attempt", bench.failed) == 1
    assert {
        part: bench.rows("failed_attempt", bench.failed, **{part: wrong}) for part, wrong in WRONG.items()
    } == (dict.fromkeys(WRONG, 0))


def test_places_of_a_later_attempt_stay(bench: Bench) -> None:
    held = bench.places("limit_slots_release_ended", ids=[], attempts=[])
    assert len(held) == 2

    assert bench.places("limit_slots_release_ended", ids=[bench.job.id], attempts=[99]) == held
    assert len(bench.places("limit_slots_release_ended", ids=[bench.job.id], attempts=[1])) == 1
