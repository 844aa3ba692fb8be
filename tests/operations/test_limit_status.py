"""Which jobs and which workers wait for a limit."""

from __future__ import annotations

import pytest

from forebay import Forebay
from forebay.domain.job import QueueName, WorkerId
from forebay.domain.worker import WorkerInfo
from forebay.operations.limit_status import LimitStatus, limit_statuses
from forebay.stores.contract.claims_and_results import QueueClaim
from forebay.stores.contract.store import Store
from tests.clocks import FollowedClock

MAIL, MONEY = QueueName("mail"), QueueName("money")
ON_MAIL, ON_BOTH, PAUSED = WorkerId("on mail"), WorkerId("on both"), WorkerId("paused")


def of(app: Forebay) -> dict[str, LimitStatus]:
    found = app.client.read(limit_statuses)
    return {one.usage.limit.scope: one for one in found}


def crew(store: Store) -> None:
    for worker, queues, paused in (
        (ON_MAIL, (MAIL,), ()),
        (ON_BOTH, (MAIL, MONEY), ()),
        (PAUSED, (MAIL,), (MAIL,)),
    ):
        store.heartbeat(WorkerInfo(id=worker, queues=queues, paused=paused, slots=1))


@pytest.mark.shows("R-RATE-11")
def test_who_waits_for_a_limit_is_shown_with_it(app: Forebay) -> None:
    @app.task(name="send", queue="mail")
    def send() -> None:
        pass

    @app.task(name="pay", queue="money")
    def pay() -> None:
        pass

    assert of(app) == {}
    app.limits.set("queue:mail", rate=1, per=60, burst=2)
    app.limits.set("global", concurrency=9)
    app.limits.set("task:pay", concurrency=1)
    app.limits.set("key:tenant", concurrency=1)
    app.enqueue_many([send.job() for _ in range(5)])
    app.enqueue_many(
        [pay.using(limit_keys={"tenant": "x"}).job(), pay.using(limit_keys={"tenant": "x"}).job()]
    )
    app.client.write(crew)
    app.client.write(
        lambda store: store.settle_and_claim(
            ON_BOTH, claims=[QueueClaim(MAIL, 5), QueueClaim(MONEY, 5)], room=9
        )
    )

    found = of(app)

    mail = found["queue:mail"]
    assert (mail.state, mail.usage.running, mail.usage.tokens, mail.waiting) == ("out_of_tokens", 2, 0, 3)
    assert sorted(mail.waiting_workers) == [ON_BOTH, ON_MAIL]
    assert (found["global"].state, found["global"].usage.running) == ("open", 3)
    assert (found["global"].waiting, found["global"].waiting_workers) == (0, ())
    task, key = found["task:pay"], found["key:tenant"]
    assert (task.state, task.usage.running) == ("at_limit", 1)
    # It waits in one of the two lanes, whichever was looked at first.
    assert task.waiting + key.waiting == 1
    assert task.waiting_workers + key.waiting_workers == (ON_BOTH,)


def test_a_worker_that_has_died_waits_for_nothing(app: Forebay, clock: FollowedClock) -> None:
    @app.task(name="send", queue="mail")
    def send() -> None:
        pass

    app.limits.set("global", concurrency=1)
    app.enqueue_many([send.job(), send.job()])
    app.client.write(crew)
    app.client.write(
        lambda store: store.settle_and_claim(ON_MAIL, claims=[QueueClaim(MAIL, 5, 3_600_000)], room=9)
    )
    assert sorted(of(app)["global"].waiting_workers) == [ON_BOTH, ON_MAIL]

    clock.advance(ms=60_000)

    assert of(app)["global"].waiting_workers == ()
