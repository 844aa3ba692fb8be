"""What gets lost on the way to a Redis server and back, and how it is found out what has happened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from forebay.domain.job import DEFAULT_QUEUE
from forebay.errors import StoreUnavailable
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.engine import Engine
from forebay.stores.contract.reader import Reader
from forebay.stores.contract.store import Store
from forebay.stores.factory import open_engine
from tests.redis_server import RedisServer
from tests.stores.redis_load import Load
from tests.stores.relay import Relay
from tests.stores.support import WORKER, claim, complete, everything, new_job


@pytest.fixture
def server() -> Iterator[RedisServer]:
    started = RedisServer()
    yield started
    started.close()


@pytest.fixture
def relay(server: RedisServer) -> Iterator[Relay]:
    relay = Relay(server.port)
    yield relay
    relay.close()


@pytest.fixture
def engine(relay: Relay) -> Engine:
    return open_engine(f"redis://127.0.0.1:{relay.port}/0?persistence=none")


@pytest.fixture
def store(engine: Engine) -> Iterator[Store]:
    with closing(engine.store()) as store:
        store.settle_and_claim(
            WORKER, claims=[QueueClaim(DEFAULT_QUEUE, 1)], room=1
        )  # so that its script is there
        store.insert([new_job()])
        store.settle_and_claim(WORKER, [complete(job) for job in claim(store)])
        yield store


@pytest.fixture
def reader(server: RedisServer) -> Iterator[Reader]:
    """Behind the relay's back."""
    with closing(open_engine(f"{server.url()}?persistence=none").reader()) as reader:
        yield reader
        assert reader.health().problems == ()


def anything(_data: bytes) -> bool:
    return True


@pytest.mark.shows("R-STORE-47", "R-EDGE-65")
def test_an_enqueue_that_did_not_arrive_has_not_happened(store: Store, reader: Reader, relay: Relay) -> None:
    lost = relay.lose_request(b"EVALSHA")

    with pytest.raises(StoreUnavailable):
        store.insert([new_job()])

    assert lost.lost == 1
    assert len(everything(reader)) == 1


@pytest.mark.shows("R-STORE-47", "R-STORE-51")
def test_an_enqueue_whose_answer_was_lost_is_not_sent_again_and_is_found_by_its_key(
    store: Store, reader: Reader, relay: Relay
) -> None:
    relay.lose_answer(fits=anything)

    with pytest.raises(StoreUnavailable):
        store.insert([new_job(idempotency_key="order 7")])
    [again] = store.insert([new_job(idempotency_key="order 7")])

    assert not again.is_new
    assert len(everything(reader)) == 2


@pytest.mark.shows("R-STORE-51")
def test_a_settlement_and_a_claim_whose_answer_was_lost_are_both_taken_up(
    store: Store, reader: Reader, relay: Relay
) -> None:
    _, second = store.insert([new_job()] * 2)
    [first] = claim(store)
    relay.lose_answer(fits=anything)

    with pytest.raises(StoreUnavailable):
        store.settle_and_claim(WORKER, [complete(first)], [QueueClaim(DEFAULT_QUEUE, 1)], 1)
    again = store.settle_and_claim(WORKER, [complete(first)], known=[])

    assert again.repeated == (first.id,)
    assert [job.id for job in again.recovered] == [second.id]
    assert reader.counts()[DEFAULT_QUEUE].running == 1


@pytest.mark.shows("R-STORE-49", "R-STORE-51")
def test_answers_get_lost_again_and_again_while_jobs_flow(relay: Relay) -> None:
    with Load(f"redis://127.0.0.1:{relay.port}/0?persistence=none") as load:
        lost = relay.lose_answer(every=50, times=20, fits=anything)
        while lost.lost < 20:
            load.goes_on(5)

    assert load.refused > 0
    assert load.accepted_once()
