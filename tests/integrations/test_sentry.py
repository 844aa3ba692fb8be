"""What Sentry's own client sends of jobs, caught at its door."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from forebay import Cancel, Forebay, RetryPolicy, Snooze
from forebay.integrations.sentry import report

WITHIN = 60.0


class Caught(Transport):
    """Keeps what would go over the network."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[dict[str, Any]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        if (event := envelope.get_event()) is not None:
            self.events.append(dict(event))


@pytest.fixture
def caught() -> Iterator[Caught]:
    caught = Caught()
    sentry_sdk.init(dsn="http://key@localhost/1", transport=caught, default_integrations=False)
    yield caught
    sentry_sdk.init()


@pytest.fixture
def app() -> Iterator[Forebay]:
    with Forebay("memory://") as app:
        report(app)
        yield app


def test_an_attempt_that_fails_is_reported_with_its_job(app: Forebay, caught: Caught) -> None:
    @app.task(name="charge", queue="money", retry_policy=RetryPolicy(max_retries=1, base_ms=1))
    def charge() -> None:
        sentry_sdk.set_tag("customer", "7")
        raise ValueError("no such card")

    with app.run_worker(threads=1):
        job = charge.using(correlation_id="order-1").enqueue()
        job.wait(timeout=WITHIN)
    first, second = caught.events
    [error] = first["exception"]["values"]
    assert (error["type"], error["value"]) == ("ValueError", "no such card")
    assert first["tags"] == {
        "forebay.task": "charge",
        "forebay.queue": "money",
        "forebay.job_id": job.id,
        "forebay.correlation_id": "order-1",
        "customer": "7",
    }
    assert first["transaction"] == "charge"
    assert [event["contexts"]["job"]["attempt"] for event in (first, second)] == [1, 2]


def test_what_one_job_says_is_not_found_with_another(app: Forebay, caught: Caught) -> None:
    @app.task
    def speak() -> None:
        sentry_sdk.set_tag("customer", "7")

    @app.task(retries=0)
    async def fail() -> None:
        raise ValueError("no")

    with app.run_worker(threads=1):
        speak.enqueue().result(timeout=WITHIN)
        fail.enqueue().wait(timeout=WITHIN)
    [event] = caught.events
    assert "customer" not in event["tags"]


def test_a_task_that_asks_for_something_has_not_failed(app: Forebay, caught: Caught) -> None:
    @app.task
    def ask(attempt: list[int]) -> None:
        raise Cancel("not needed")

    @app.task(name="later")
    def later() -> None:
        if not requested:
            requested.append(1)
            raise Snooze(0.001)

    requested: list[int] = []
    with app.run_worker(threads=1):
        later.enqueue().result(timeout=WITHIN)
        ask.enqueue([1]).wait(timeout=WITHIN)
    assert requested
    assert caught.events == []


def test_a_job_that_died_without_an_exception_is_reported_too(app: Forebay, caught: Caught) -> None:
    @app.task(name="endless", retries=0, timeout=0.05)
    async def endless() -> None:
        await asyncio.sleep(WITHIN)

    with app.run_worker(threads=1):
        job = endless.enqueue()
        job.wait(timeout=WITHIN)
    [event] = caught.events
    assert event["message"].startswith("Timeout:")
    assert event["tags"]["forebay.job_id"] == job.id
