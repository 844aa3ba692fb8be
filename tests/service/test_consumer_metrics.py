"""Jobs that clients consume over HTTP and gRPC are in the metrics like those of a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from forebay.clock import SystemClock
from forebay.domain.alert import AlertScope
from forebay.domain.default_alert_rules import DEFAULT_ALERT_RULES
from forebay.domain.job import QueueName
from forebay.operations.alerts.metric_snapshot import MetricSnapshot
from forebay.operations.queue_stats import QueueStats, queue_stats
from forebay.service.generated import forebay_pb2
from forebay.stores.contract.engine import Engine
from forebay.stores.factory import open_engine
from tests.service.live_protocols import Spoken, speaking
from tests.service.live_server import PATIENCE
from tests.urls import ENGINES, lent_url
from tests.worker.support import eventually

MAIL = QueueName("mail")
Lease = tuple[str, str]  # the id of a job and the token of its lease


class Http:
    """A client over HTTP."""

    def __init__(self, spoken: Spoken) -> None:
        self._client = spoken.client

    def claim(self, most: int = 100, **fields: Any) -> list[Lease]:
        body = {"queues": [MAIL], "limit": most, "wait_seconds": 0, **fields}
        answer = self._client.post("/v1/claim", json=body).raise_for_status()
        return [(job["id"], job["lease"]) for job in answer.json()["jobs"]]

    def ack(self, lease: Lease) -> None:
        self._client.post(f"/v1/jobs/{lease[0]}/ack", json={"lease": lease[1]}).raise_for_status()

    def nack(self, lease: Lease) -> None:
        body = {"lease": lease[1], "error": "it broke", "error_type": "Boom"}
        self._client.post(f"/v1/jobs/{lease[0]}/nack", json=body).raise_for_status()


class Grpc:
    """A client over gRPC."""

    def __init__(self, spoken: Spoken) -> None:
        self._consumer = spoken.consumer

    def claim(self, most: int = 100, **fields: Any) -> list[Lease]:
        request = forebay_pb2.DequeueBatchRequest(queues=[MAIL], limit=most, wait_seconds=0, **fields)
        return [(job.id, job.lease) for job in self._consumer.DequeueBatch(request, timeout=PATIENCE).jobs]

    def ack(self, lease: Lease) -> None:
        self._consumer.AckTask(forebay_pb2.AckTaskRequest(id=lease[0], lease=lease[1]), timeout=PATIENCE)

    def nack(self, lease: Lease) -> None:
        request = forebay_pb2.NackTaskRequest(
            id=lease[0], lease=lease[1], error="it broke", error_type="Boom"
        )
        self._consumer.NackTask(request, timeout=PATIENCE)


both = pytest.mark.parametrize("client", [Http, Grpc])


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with lent_url(request.param, tmp_path) as url, opened(url) as engine:
        yield engine


@contextmanager
def opened(url: str) -> Iterator[Engine]:
    engine = open_engine(url)
    with closing(engine.store()) as store:  # what is in memory lives as long as a handle does
        store.save_queue(MAIL, {})
        yield engine


def stats_of(engine: Engine) -> QueueStats:
    with closing(engine.reader()) as reader:
        [found] = queue_stats(reader, [MAIL])
    return found


@pytest.mark.shows("R-MET-15", "R-MET-16", "R-MET-17", "R-MET-18")
@both
def test_what_clients_claim_and_settle_is_counted_and_timed(
    engine: Engine, client: Callable[[Spoken], Http | Grpc]
) -> None:
    with speaking(engine) as spoken:
        for _ in range(4):
            spoken.enqueue(MAIL)
        done, again, failed, _held = client(spoken).claim()
        client(spoken).ack(done)
        client(spoken).ack(again)
        client(spoken).ack(again)  # said twice, and counted once
        client(spoken).nack(failed)

    found = stats_of(engine)  # a server that ends writes what it has counted
    assert found.span.stats.counts == {"claimed": 4, "completed": 2, "failed": 1, "retried": 1}
    assert found.span.stats.errors == {"Boom": 1}
    assert (found.wait.count, found.run.count) == (4, 3)
    assert found.consumers == 1
    assert set(found.tasks) == {"t"}


@both
def test_the_end_of_a_batch_is_counted_for_each_job(
    engine: Engine, client: Callable[[Spoken], Http | Grpc]
) -> None:
    with speaking(engine) as spoken:
        for _ in range(3):
            spoken.enqueue(MAIL)
        outcomes = [{"id": job_id, "lease": lease} for job_id, lease in client(spoken).claim()]
        outcomes[2]["outcome"] = "released"
        spoken.client.post("/v1/settle", json={"outcomes": outcomes}).raise_for_status()

    found = stats_of(engine)
    assert found.span.stats.counts == {"claimed": 3, "completed": 2}
    assert found.run.count == 2  # what was handed back has not run


def test_a_claim_that_waits_for_jobs_is_an_active_consumer(engine: Engine) -> None:
    with speaking(engine) as spoken:
        Http(spoken).claim(wait_seconds=0.01)

    found = stats_of(engine)
    assert (found.consumers, found.span.stats.counts) == (1, {})


def test_a_stream_is_one_active_consumer_however_often_it_claims(engine: Engine) -> None:
    with speaking(engine) as spoken:
        for _ in range(2):
            spoken.enqueue(MAIL)
        request = forebay_pb2.DequeueStreamRequest(queues=[MAIL], window=1)
        stream = spoken.consumer.DequeueStream(request, timeout=PATIENCE)
        for _ in range(2):
            job = next(stream)
            Grpc(spoken).ack((job.id, job.lease))
        stream.cancel()

    found = stats_of(engine)
    assert found.span.stats.counts == {"claimed": 2, "completed": 2}
    assert found.consumers == 1


def test_attempts_that_a_server_finds_lost_are_counted_with_those_that_went_well() -> None:
    with opened("memory://") as engine:
        with speaking(engine) as spoken:
            jobs = [spoken.enqueue(MAIL) for _ in range(2)]
            kept, lost = Http(spoken).claim(lease_seconds=1)
            Http(spoken).ack(kept)
            assert {kept[0], lost[0]} == set(jobs)
            eventually(lambda: spoken.state(lost[0]) != "running", seconds=PATIENCE)

        counts = stats_of(engine).span.stats.counts
    assert counts == {"claimed": 2, "completed": 1, "failed": 1, "lost": 1, "retried": 1}


def test_no_rule_finds_a_queue_unserved_that_a_client_claims_from(engine: Engine) -> None:
    with speaking(engine) as spoken:
        for _ in range(2):
            spoken.enqueue(MAIL)
        [one] = Http(spoken).claim(1)
        assert unserved(engine) == []  # its job runs
        Http(spoken).ack(one)

    assert unserved(engine) == []


def test_rules_find_a_queue_unserved_that_has_no_consumer(engine: Engine) -> None:
    with speaking(engine) as spoken:
        spoken.enqueue(MAIL)

    assert unserved(engine) == ["no-workers", "queue-unserved"]


def unserved(engine: Engine) -> list[str]:
    """The rules about queues without consumers that hold now, whatever time they have to hold for."""
    rules = [DEFAULT_ALERT_RULES[name] for name in ("no-workers", "queue-unserved")]
    with closing(engine.store()) as store, closing(engine.reader()) as reader:
        outlook = MetricSnapshot(store, reader, SystemClock(), rules)
        scopes = {None: None, AlertScope.QUEUE: MAIL}
        return [
            rule.id
            for rule in rules
            if rule.parsed_condition.holds(outlook.metric_lookup(rule, scopes[rule.per]))
        ]
