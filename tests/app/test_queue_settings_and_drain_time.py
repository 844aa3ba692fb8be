"""`app.configure` and `app.drain_seconds` on every engine, and who a job is asked for by."""

from __future__ import annotations

import asyncio
from typing import get_type_hints

import pytest

from forebay import Forebay, RateLimited
from forebay.app.queue_settings_and_drain_time import QueueOptions
from forebay.domain.queue import QueueMode, QueueSettings
from forebay.errors import ConfigError, InvalidJob


@pytest.mark.shows("R-QUEUE-17", "R-CFG-25", "R-EXT-02")
def test_what_is_named_of_a_queue_is_set(app: Forebay) -> None:
    app.limits.set("queue:mail", concurrency=3)
    app.configure_queue("mail", lease=5, max_length=9, mode="fifo")
    queue = app.configure_queue("mail", enqueue_rate=7, keep_dead=60)

    settings = queue.settings
    assert (settings.lease_ms, settings.max_length, settings.mode) == (5_000, 9, QueueMode.FIFO)
    assert (settings.enqueue_rate, settings.keep_dead_ms) == (7, 60_000)
    assert [limit.concurrency for limit in app.limits.list()] == [3]


def test_every_setting_of_a_queue_can_be_named() -> None:
    assert list(get_type_hints(QueueOptions)) == [
        name.removesuffix("_ms") for name in QueueSettings.__struct_fields__
    ]


def test_a_wrong_setting_is_refused(app: Forebay) -> None:
    with pytest.raises(ConfigError, match="there is no queue setting 'length'"):
        app.configure_queue("mail", length=9)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="there is no queue setting 'lease_ms'"):
        app.configure_queue("mail", lease_ms=9)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="max_length must be"):
        app.configure_queue("mail", max_length=0)
    with pytest.raises(InvalidJob, match="lease must be a timedelta"):
        app.configure_queue("mail", lease="1m")  # type: ignore[arg-type]
    with pytest.raises(InvalidJob, match="queue"):
        app.configure_queue("", max_length=1)


def test_a_client_is_named_for_the_app_a_task_or_a_call(app: Forebay) -> None:
    app.configure_queue("mail", client_rate=1, client_burst=1)
    task = app.task(name="send", queue="mail", client="web")(len)
    task.enqueue([])

    with pytest.raises(RateLimited) as caught:
        task.enqueue([])
    task.using(client="shop").enqueue([])
    mine = Forebay("memory://", defaults={"client": "mine"}).task(name="send")(len)

    assert caught.value.client == "web"
    assert mine.job([]).client == "mine"
    with pytest.raises(InvalidJob, match="client"):
        task.using(client="")


def test_a_drain_takes_as_long_as_the_last_minute_says(app: Forebay) -> None:
    task = app.task(name="send", queue="mail")(len)
    assert app.estimate_drain_seconds("mail") == 0
    waiting = [task.enqueue([]) for _ in range(3)]
    unknown = app.estimate_drain_seconds("mail")
    with app.run_worker():
        for job in waiting:
            job.result(timeout=120)

    async def scene() -> float | None:
        await app.configure_queue_async("mail", max_length=5)
        task.enqueue([])
        return await app.estimate_drain_seconds_async("mail")

    assert unknown is None
    assert asyncio.run(scene()) == 20
