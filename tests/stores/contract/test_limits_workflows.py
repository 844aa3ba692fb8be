"""Limits and workflows together: what is released waits for its place, and runs in its turn."""

from __future__ import annotations

from collections import Counter
from itertools import count

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forebay.domain.concurrency_and_rate_limits import Limit, key_scope, queue_scope
from forebay.domain.job import Dependency, Job, JobId, QueueName
from forebay.domain.outcome import Completed, Interrupted
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.store import Store
from tests.stores.contract.steps import W1, W2, ended
from tests.stores.support import new_job

NUMBERS = count()
ROUNDS = 100


class Play:
    """Two workers run a graph under limits; every step is held against what may be."""

    def __init__(self, store: Store, *, of_a_key: int, of_the_queue: int) -> None:
        self._store = store
        self._kind = f"k{next(NUMBERS)}"
        self._queue = QueueName(f"q-{self._kind}")
        self._of_a_key, self._of_the_queue = of_a_key, of_the_queue
        store.save_limit(Limit(scope=key_scope(self._kind), concurrency=of_a_key))
        store.save_limit(Limit(scope=queue_scope(self._queue), concurrency=of_the_queue))
        self._held: list[Job] = []
        self._parents: dict[JobId, list[JobId]] = {}
        self.completed: list[JobId] = []

    def insert(self, graph: list[tuple[str, set[int]]]) -> list[JobId]:
        """Jobs in one call, each with its tenant and how many places before it its parents stand."""
        needs = [
            sorted(back for back in parents if back <= place) for place, (_, parents) in enumerate(graph)
        ]
        jobs = [
            new_job(
                queue=self._queue, limit_keys={self._kind: tenant}, depends_on=tuple(map(Dependency, backs))
            )
            for (tenant, _), backs in zip(graph, needs, strict=True)
        ]
        ids = [receipt.id or JobId("") for receipt in self._store.insert(jobs)]
        self._parents = {
            ids[place]: [ids[place - back] for back in backs] for place, backs in enumerate(needs)
        }
        return ids

    def step(self, ends: int, *, is_interrupted: bool) -> None:
        """End the oldest attempts of one worker, who claims what it can."""
        worker = W1 if len(self.completed) % 2 else W2
        to_end = [job for job in self._held if job.worker == worker][:ends]
        outcome = Interrupted() if is_interrupted else Completed(b"1")
        self.completed += [] if is_interrupted else [job.id for job in to_end]
        self._held = [job for job in self._held if job not in to_end]
        answer = self._store.settle_and_claim(
            worker, [ended(job, outcome) for job in to_end], [QueueClaim(self._queue, 8)], room=8
        )
        self._held += answer.jobs
        self._check(answer.jobs)
        self._store.promote()

    def finish(self) -> None:
        """Complete whatever is held, and what comes after it."""
        for _ in range(ROUNDS):
            for worker in (W1, W2):
                mine = [job for job in self._held if job.worker == worker]
                self.completed += [job.id for job in mine]
                self._held = [job for job in self._held if job.worker != worker]
                settlements = [ended(job, Completed(b"1")) for job in mine]
                answer = self._store.settle_and_claim(
                    worker, settlements, [QueueClaim(self._queue, 8)], room=8
                )
                self._held += answer.jobs
                self._check(answer.jobs)
            self._store.promote()
            if len(self.completed) >= len(self._parents):
                break
        self._store.drop_limit(key_scope(self._kind))
        self._store.drop_limit(queue_scope(self._queue))

    def _check(self, begun: tuple[Job, ...]) -> None:
        by_key = Counter(job.limit_keys[self._kind] for job in self._held)
        assert len(self._held) <= self._of_the_queue
        assert all(running <= self._of_a_key for running in by_key.values())
        for job in begun:
            assert set(self._parents[job.id]) <= set(self.completed), "it began before its parents had ended"


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    of_a_key=st.integers(1, 2),
    of_the_queue=st.integers(1, 4),
    graph=st.lists(
        st.tuples(st.sampled_from("ab"), st.sets(st.integers(1, 5), max_size=3)), min_size=2, max_size=12
    ),
    steps=st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=8),
)
def test_a_graph_runs_once_in_its_order_and_within_limits(
    store: Store,
    of_a_key: int,
    of_the_queue: int,
    graph: list[tuple[str, set[int]]],
    steps: list[tuple[int, bool]],
) -> None:
    play = Play(store, of_a_key=of_a_key, of_the_queue=of_the_queue)
    ids = play.insert(graph)

    for ends, is_interrupted in steps:
        play.step(ends, is_interrupted=is_interrupted)
    play.finish()

    assert sorted(play.completed) == sorted(ids)
