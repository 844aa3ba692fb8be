"""A worker follows the weights of its queues, unless it was given some."""

from __future__ import annotations

from threading import Lock

import pytest

from forebay import Forebay
from forebay.domain.job import QueueName
from forebay.errors import StoreError
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.testing.manual_clock import ManualClock
from forebay.worker.coordinator_inbox import Inbox
from forebay.worker.queue_weights_and_pauses import (
    REFRESH_SECONDS,
    QueueWeightRefresher,
    QueueWeights,
    parse_queue_weights,
)
from forebay.worker.slots import Slots
from tests.worker.support import DEADLINE

HIGH, LOW = QueueName("high"), QueueName("low")


def queue_weights(weights: dict[QueueName, int | None], *, strict: bool = False) -> QueueWeights:
    return QueueWeights(weights, Slots(threads=1), Inbox(), strict=strict)


def unasked() -> Reader:
    raise AssertionError("the store is not to be read")


@pytest.mark.shows("R-PRI-26", "R-PRI-27", "R-WORK-23")
def test_a_worker_takes_the_weights_of_its_queues_and_sees_when_they_change(
    store: Store, engine: Engine, clock: ManualClock
) -> None:
    weights = queue_weights(parse_queue_weights(["default", "high", "low"]))
    weighing = QueueWeightRefresher(weights, engine.reader, clock)
    store.save_queue(HIGH, {"weight": 3})

    weighing.refresh_if_due()
    first = dict(weights.weights)
    store.save_queue(HIGH, {"weight": 1})
    store.save_queue(LOW, {"weight": 7})
    weighing.refresh_if_due()
    too_early = dict(weights.weights)
    clock.advance(round(REFRESH_SECONDS * 1_000))
    weighing.refresh_if_due()

    assert first == too_early == {"default": 1, "high": 3, "low": 1}
    assert weights.weights == {"default": 1, "high": 1, "low": 7}


def test_a_weight_that_the_worker_was_given_wins(store: Store, engine: Engine, clock: ManualClock) -> None:
    weights = queue_weights({HIGH: 2, LOW: None})
    store.save_queue(HIGH, {"weight": 9})
    store.save_queue(LOW, {"weight": 5})

    QueueWeightRefresher(weights, engine.reader, clock).refresh_if_due()

    assert weights.weights == {HIGH: 2, LOW: 5}


def test_who_cannot_look_goes_on_with_the_weights_it_has(clock: ManualClock) -> None:
    weights = queue_weights({HIGH: 2, LOW: None})
    before = dict(weights.weights)

    def broken() -> Reader:
        raise StoreError("too many connections")

    QueueWeightRefresher(weights, broken, clock).refresh_if_due()

    assert weights.weights == before


@pytest.mark.parametrize(
    "weights",
    [
        queue_weights({HIGH: 3, LOW: 1}),
        queue_weights({HIGH: None}),
        queue_weights({HIGH: None, LOW: None}, strict=True),
    ],
    ids=["given", "one queue", "strict"],
)
def test_without_queues_to_weigh_the_store_is_not_asked(weights: QueueWeights, clock: ManualClock) -> None:
    QueueWeightRefresher(weights, unasked, clock).refresh_if_due()


@pytest.mark.shows("R-TEST-45", "R-EDGE-41", "R-PRI-29", "R-PRI-33")
def test_queues_with_jobs_of_any_length_have_their_parts_of_a_worker_and_none_starves(app: Forebay) -> None:
    started: list[str] = []
    lock = Lock()

    @app.task(name="work")
    def work(queue: str, rounds: int) -> None:
        with lock:
            started.append(queue)
        sum(range(rounds))

    app.configure_queue("urgent", weight=3)
    jobs = [
        work.using(queue=queue).job(queue, number % 7 * 3_000)
        for queue in ("urgent", "other", "low")
        for number in range(30)
    ]
    handles = app.enqueue_many(jobs)

    with app.run_worker(threads=1, queues=["urgent", "other", "low"]):
        for handle in handles:
            handle.wait(DEADLINE)

    assert len(started) == 90
    # A claim may bring many short jobs of one queue together, but none waits until another queue is empty.
    assert set(started[:30]) == {"urgent", "other", "low"}
