"""What a program that calls a store over a broken network is told, and when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from importlib import import_module
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any, Final

import pytest

from evidence.proxy import Proxy, Way
from forebay import Forebay
from forebay.domain.job import DEFAULT_QUEUE, JobId, WorkerId
from forebay.domain.job_query import JobQuery
from forebay.domain.lease import Lease
from forebay.domain.queue import QueueSettings
from forebay.domain.worker import WorkerInfo
from forebay.errors import StoreUnavailable
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.factory import open_engine
from tests.evidence.networks import BOUND_SECONDS, PATIENT_SECONDS, Network
from tests.evidence.papers import DEADLINE, Papers, acceptance, refusal
from tests.stores.support import new_job
from tests.worker.support import eventually

ME: Final = WorkerId("me")


@pytest.fixture
def proxy(network: Network) -> Proxy:
    return network.proxy()


@pytest.fixture
def app(network: Network, proxy: Proxy) -> Iterator[Forebay]:
    """A program that waits for as long as it takes."""
    with Forebay(network.through(proxy, PATIENT_SECONDS)) as app:
        yield app


@pytest.mark.parametrize("is_after", [False, True], ids=["before it arrives", "before the answer"])
def test_an_enqueue_that_is_cut_can_be_asked_for_again_under_its_key_and_gives_one_job(
    app: Forebay, proxy: Proxy, tmp_path: Path, is_after: bool
) -> None:
    papers = Papers(tmp_path)
    work = papers.task(app)
    papers.accepted(work.enqueue("first"))
    cut = proxy.lose_answer_to(b"in doubt") if is_after else proxy.lose(b"in doubt", Way.ASKS)

    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        work.using(idempotency_key="order 7").enqueue("in doubt")
    again = work.using(idempotency_key="order 7").enqueue("in doubt")
    papers.accepted(again)
    with app.run_worker(threads=1):
        papers.check(app)

    assert cut.made == 1
    assert papers.starts() == 2


def test_a_network_that_lets_no_call_through_is_told_at_once(
    app: Forebay, proxy: Proxy, tmp_path: Path
) -> None:
    work = Papers(tmp_path).task(app)
    work.enqueue("first")
    proxy.refuse()
    proxy.cut()

    for _ in range(2):  # on the connection there was, and with a new one
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            work.enqueue("second")
    proxy.heal()

    assert work.enqueue("second").refresh().state == "pending"


Use = Callable[[Any], object]
WRITES: Final[dict[str, Use]] = {
    "insert": lambda store: store.insert([new_job()]),
    "insert many": lambda store: store.insert([new_job(unique_key=f"k{one}") for one in range(300)]),
    "settle_and_claim": lambda store: store.settle_and_claim(
        ME, claims=[QueueClaim(DEFAULT_QUEUE, 1)], room=1
    ),
    "renew": lambda store: store.renew(ME, [Lease(JobId("0" * 26), 1)]),
    "heartbeat": lambda store: store.heartbeat(WorkerInfo(id=ME)),
    "take_commands": lambda store: store.take_commands([ME]),
    "sweep": lambda store: store.sweep(ME, 10, 30_000),
    "cancel": lambda store: store.cancel([JobId("0" * 26)]),
    "save_queue": lambda store: store.save_queue(DEFAULT_QUEUE, {"max_length": 10_000}),
}
READS: Final[dict[str, Use]] = {
    "counts": lambda reader: reader.counts(),
    "search": lambda reader: reader.search(JobQuery()),
    "workers": lambda reader: reader.workers(),
}


@pytest.mark.shows("R-STORE-47")
@pytest.mark.parametrize("ways", [(), (Way.ANSWERS,)], ids=["nothing passes", "no answer passes"])
def test_no_call_waits_without_end_on_a_half_open_connection(
    network: Network, proxy: Proxy, ways: tuple[Way, ...]
) -> None:
    engine = open_engine(network.through(proxy))
    with ExitStack() as handles:
        calls: list[tuple[Use, Any]] = []
        calls += [(use, handles.enter_context(closing(engine.store()))) for use in WRITES.values()]
        calls += [(use, handles.enter_context(closing(engine.reader()))) for use in READS.values()]
        for use, handle in calls:
            use(handle)  # so that all that it needs is there, and only the answer can be missing
        proxy.swallow(*ways)

        with ThreadPoolExecutor(len(calls) + 1) as threads:
            submitted = [threads.submit(refused, use, handle) for use, handle in calls]
            connecting = threads.submit(refused, lambda new: new.store(), engine)
            errors = [one.result() for one in [*submitted, connecting]]

        assert {type(error) for error, _ in errors} == {StoreUnavailable}
        assert all(engine.location in str(error) for error, _ in errors)
        assert max(seconds for _, seconds in errors) < 10 * BOUND_SECONDS
        proxy.heal()
        for use, handle in calls:
            use(handle)


@pytest.mark.parametrize("engine", ["postgres", "redis"])
def test_what_keeps_leases_is_given_up_before_they_run_out(engine: str) -> None:
    keeping = import_module(f"forebay.stores.{engine}.connection").RENEWAL_SECONDS

    assert keeping * 1_000 <= QueueSettings().lease_ms / 3


def test_leases_are_not_lost_because_one_connection_is_forgotten(
    network: Network, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.stores.postgres.connection.RENEWAL_SECONDS", 1.0)
    monkeypatch.setattr("forebay.stores.redis.connection.RENEWAL_SECONDS", 1.0)
    engine = open_engine(network.through(proxy, response_timeout=3_600))
    calls = [WRITES[name] for name in ("renew", "heartbeat", "take_commands")]
    with ExitStack() as handles, ThreadPoolExecutor(len(calls)) as threads:
        stores = [handles.enter_context(closing(engine.store())) for _ in calls]
        for use, store in zip(calls, stores, strict=True):
            use(store)
        proxy.forget()

        errors = list(threads.map(refused, calls, stores))  # no call waits for an hour
        for use, store in zip(calls, stores, strict=True):
            use(store)

    assert {type(error) for error, _ in errors} == {StoreUnavailable}


def refused(use: Use, handle: object) -> tuple[Exception | None, float]:
    """What is said to this, and after how many seconds."""
    began = monotonic()
    try:
        use(handle)
    except Exception as exc:
        return exc, monotonic() - began
    return None, monotonic() - began


def test_a_listener_on_a_half_open_connection_makes_another_one(
    network: Network, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.stores.postgres.wakeups.CHECK_SECONDS", 0.1)
    monkeypatch.setattr("forebay.stores.redis.wakeups.CHECK_SECONDS", 0.1)
    notified = Event()
    with closing(open_engine(network.through(proxy)).wakeups()) as wakeups:
        wakeups.start(notified.set)
        assert notified.wait(DEADLINE)
        before = proxy.connects
        proxy.swallow()
        eventually(lambda: proxy.connects > before, DEADLINE)
        notified.clear()
        proxy.heal()

        assert notified.wait(DEADLINE)


def test_a_request_that_arrives_after_its_caller_has_given_up_gives_no_second_job(
    network: Network, app: Forebay, proxy: Proxy, tmp_path: Path
) -> None:
    papers = Papers(tmp_path)
    work = papers.task(app)
    papers.accepted(work.enqueue("first"))
    with Forebay(network.through(proxy)) as hasty:
        proxy.hold(Way.ASKS)
        refusal(papers.task(hasty), "")
        proxy.heal()
    papers.accepted(acceptance(work))
    with app.run_worker(threads=1):
        papers.check(app)

    assert papers.starts() == 2


def test_a_slow_network_with_doubled_connects_only_takes_longer(
    app: Forebay, proxy: Proxy, tmp_path: Path
) -> None:
    papers = Papers(tmp_path)
    work = papers.task(app)
    app.counts()  # to make the tables there takes too many words
    proxy.double()
    proxy.throttle(1_000_000)
    proxy.delay(0.002)

    papers.accepted(*app.enqueue_many([work.job(f"{number} {'x' * 1_000}") for number in range(20)]))
    with app.run_worker(threads=2):
        papers.check(app)

    assert papers.starts() == 20
